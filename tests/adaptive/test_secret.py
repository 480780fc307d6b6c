"""Secrets reach mechanisms, and nothing else."""

import copy
import inspect
import json
import logging
import pickle

import numpy as np
import pytest

from taut.adaptive import Secret
from taut.adaptive._secret import reveal
from taut.errors import UnsoundConfiguration

LOOKS = {
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "equal": lambda secret: secret == 1234.5,
    "unequal": lambda secret: secret != 1234.5,
    "less": lambda secret: secret < 2000,
    "if": lambda secret: 1 if secret else 0,
    "float": float,
    "int": int,
    "hash": hash,
    "array": lambda secret: np.asarray(secret, dtype=float),
    "sorted": lambda secret: sorted([secret, Secret(3.0)]),
    "list": list,
    "state": lambda secret: secret.__getstate__(),
    "in": lambda secret: 3 in secret,
    "item": lambda secret: secret[0],
    "round": round,
    "bytes": bytes,
    "complex": complex,
    "percent": lambda secret: "%d" % secret,  # noqa: UP031
    "set": lambda secret: setattr(secret, "_Secret__open", None),
    "delete": lambda secret: delattr(secret, "_Secret__open"),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_refuses_to_be_looked_at(look):
    with pytest.raises(UnsoundConfiguration, match="depends on the data"):
        look(Secret(1234.5))


def test_prints_and_logs_without_its_value(caplog):
    secret = Secret(1234.5)
    logging.getLogger("mine").warning("loss %s %r", secret, secret)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret:.3f}", f"{[secret]}", caplog.text]
    assert all("1234" not in text for text in shown)
    assert "depends on the data" in caplog.text


def test_json_does_not_take_it():
    with pytest.raises(TypeError):
        json.dumps({"loss": Secret(1234.5)})
    assert "1234" not in json.dumps({"loss": Secret(1234.5)}, default=str)


def test_has_no_dictionary_and_no_subclasses():
    assert not hasattr(Secret(1.0), "__dict__")
    with pytest.raises(TypeError, match="not subclassed"):
        type("Shown", (Secret,), {})


def test_tools_that_list_attributes_find_no_value():
    members = dict(inspect.getmembers(Secret(1234.5)))
    slots = [getattr(Secret(1234.5), f"_Secret{name}") for name in Secret.__slots__]
    assert all(not isinstance(value, float) for value in [*members.values(), *slots])
    assert "1234" not in repr(members)


def test_mechanisms_see_it():
    assert reveal(Secret(1234.5)) == 1234.5
