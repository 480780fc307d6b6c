"""Reference values of sampled Renyi divergences, one test per value."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from taut import renyi

VALUES = Path(__file__).parent / "values"
CHECKS = json.loads((VALUES / "renyi.json").read_text(encoding="utf-8"))


def poisson_outputs(without, with_it):
    """Return the larger divergence, of either direction, of two Poisson distributions."""

    def one_way(p, q, order):
        moment = q * (p / q) ** order - order * p + (order - 1) * q
        return moment / (order - 1)

    return lambda orders: np.array(
        [max(one_way(without, with_it, a), one_way(with_it, without, a)) for a in orders]
    )


@pytest.mark.parametrize("check", CHECKS, ids=[check["id"] for check in CHECKS])
def test_reference(check):
    ((name, arguments),) = check["curve"].items()
    make = poisson_outputs if name == "poisson_outputs" else getattr(renyi, name)
    curve = renyi.poisson(
        make(*arguments), check["rate"], method=check["method"], tau=check.get("tau")
    )
    (value,) = curve(np.array([float(check["order"])]))
    assert value == pytest.approx(check["expected"], rel=check["tolerance"])
    assert math.isfinite(value)
