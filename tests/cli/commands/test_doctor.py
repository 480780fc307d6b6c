"""``taut doctor``."""

import json

import numpy as np
import pytest
import torch

import taut
from taut.cli import _checks
from taut.noise import SecureGenerator


def statuses(answer):
    return {check["name"]: check["status"] for check in answer["checks"]}


def test_a_sound_installation_passes(run_json):
    answer = run_json("doctor")
    assert answer["ok"]
    assert "broken" not in statuses(answer).values()
    expected = {"certified computation", "generator", "normal numbers", "float32", "ledger"}
    assert expected | {"training", "numpy", "extra torch"} <= set(statuses(answer))
    assert answer["versions"]["taut"] == taut.__version__
    assert answer["versions"]["numpy"] == np.__version__


@pytest.fixture
def few_checks(monkeypatch):
    """Leave out what takes long, so that one check at a time can be broken."""
    for name in ("_ledger", "_training", "_torch"):
        monkeypatch.setattr(_checks, name, lambda: ("ok", ""))


@pytest.fixture
def broken(run, request):
    request.getfixturevalue("few_checks")

    def call():
        result = run("doctor --json")
        assert result.exit_code == 1
        answer = json.loads(result.stdout)
        assert not answer["ok"]
        return {name for name, status in statuses(answer).items() if status == "broken"}

    return call


def test_a_wrong_certified_value_is_found(broken, monkeypatch):
    monkeypatch.setattr(_checks, "_EPSILON", 1.829)
    assert broken() == {"certified computation"}


def test_a_biased_generator_is_found(broken, monkeypatch):
    monkeypatch.setattr(
        SecureGenerator,
        "standard_normal",
        lambda _, size: np.random.default_rng(0).uniform(-1.7, 1.7, size),
    )
    assert broken() == {"normal numbers"}


def test_a_constant_generator_is_found(broken, monkeypatch):
    monkeypatch.setattr(SecureGenerator, "bytes", lambda _, n: b"\x55" * n)
    assert "generator" in broken()


def test_a_package_that_does_not_import_is_found(broken, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert broken() == {"extra demo"}


@pytest.mark.usefixtures("few_checks")
def test_an_absent_extra_is_no_fault(run, run_json, monkeypatch):
    version = _checks._version
    monkeypatch.setattr(_checks, "_version", lambda p: None if p == "matplotlib" else version(p))
    assert statuses(run_json("doctor"))["extra report"] == "absent"
    assert "pip install 'taut[report]'" in run("doctor").stdout


@pytest.mark.usefixtures("few_checks")
def test_shortened_products_are_a_warning(run_json, monkeypatch):
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert statuses(run_json("doctor"))["float32"] == "warning"


@pytest.mark.usefixtures("few_checks")
def test_page_names_what_is_broken(run, monkeypatch):
    assert "all is well" in run("doctor").stdout
    monkeypatch.setattr(_checks, "_EPSILON", 1.829)
    result = run("doctor")
    assert result.exit_code == 1
    assert "broken: certified computation" in result.stdout
