"""Reference values of posterior sampling, one test per value."""

import json
import math
from pathlib import Path

import pytest
from oracles.posteriors import exact_profile, hockey_stick, posterior
from scipy import optimize

from taut.estimators import PosteriorPair

VALUES = Path(__file__).parent / "values"
CHECKS = {
    check["id"]: check
    for check in json.loads((VALUES / "posterior.json").read_text(encoding="utf-8"))
}


def given(name):
    check = CHECKS[name]
    return check["inputs"], check["expected"], check["rel_tol"]


def test_exact_epsilon():
    inputs, expected, tolerance = given("ops-exact-eps")
    growth, delta = inputs["mu"], inputs["delta"]
    shift = inputs["A"] / (1 + growth)
    added, removed = expected["eps"]
    ours = PosteriorPair(shift, growth).epsilon(delta)
    assert ours == pytest.approx(added, rel=tolerance)
    assert ours >= added * (1 - 1e-14)
    back = optimize.brentq(
        lambda e: math.log(exact_profile(shift, growth, e, removal=True) / delta), 0.5, 1.0
    )
    assert back == pytest.approx(removed, rel=tolerance)
    assert expected["printed_formula"] < added


def test_counterexample():
    inputs, expected, tolerance = given("ops-counterexample")
    rows = [inputs["x"]] * inputs["rows"]
    targets = [inputs["y"]] * inputs["rows"]
    x, y = inputs["added"]
    laws = (
        posterior(rows, targets, 0.0, inputs["gamma"]),
        posterior([*rows, x], [*targets, y], 0.0, inputs["gamma"]),
    )
    found = hockey_stick(*laws, inputs["claimed_eps"])
    assert found == pytest.approx(expected["true_delta_at_claimed_eps"], rel=tolerance)
    growth = 1 / inputs["rows"]
    shift = math.sqrt(inputs["gamma"] * growth) * 2 / (1 + growth)
    epsilon = PosteriorPair(shift, growth).epsilon(inputs["delta"])
    assert epsilon == pytest.approx(expected["true_eps"], rel=tolerance)
