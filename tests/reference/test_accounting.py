"""Reference values of the accounting room, one test per value.

The numbers are in ``accounting.json``: the sum as factory calls, the question, the expected answer
with the error of the expectation itself, and how it was obtained.
"""

import cmath
import json
from pathlib import Path

import pytest

import taut

CHECKS = json.loads(
    (Path(__file__).parent / "values" / "accounting.json").read_text(encoding="utf-8")
)


def make(check):
    """Return the sum that a check is about."""
    total = taut.zero(adjacency=check["adjacency"])
    for term in check["loss"]:
        factory = getattr(taut.accounting, term["make"])
        relation = "replace" if "fixed_size" in term else check["adjacency"]
        release = factory(**term["with"], adjacency=relation)
        if "poisson" in term:
            release = release.poisson(term["poisson"])
        if "fixed_size" in term:
            release = release.fixed_size(*term["fixed_size"], adjacency=check["adjacency"])
        total += term["count"] * release
    return total


def ask(loss, question, tolerance):
    """Return the answer to a question as two ends."""
    ((name, arguments),) = question.items()
    if name == "epsilon":
        return loss.epsilon_bounds(**arguments, tolerance=max(tolerance, 1e-9))
    if name == "delta":
        return loss.delta_bounds(**arguments, tolerance=max(tolerance, 1e-9))
    if name == "rdp":
        return loss.rdp(**arguments)
    if name == "rdp_epsilon":
        return loss.explain(**arguments).rdp_epsilon
    assert name == "characteristic_function"
    return cmath.exp(loss.log_mgf(1j * arguments["at"]))


@pytest.mark.parametrize("check", CHECKS, ids=[check["id"] for check in CHECKS])
def test_reference(check):
    answer = ask(make(check), check["ask"], check["tolerance"])
    expected, tolerance = check["expected"], check["tolerance"]
    match check["kind"]:
        case "bracket":
            lower, upper = answer
            assert lower - check["expected_error"] <= expected <= upper + check["expected_error"]
            assert upper - lower <= tolerance * upper
        case "ceiling":
            lower, upper = answer
            assert lower <= expected + check["expected_error"]
            assert upper <= expected * (1 + tolerance)
            assert upper - lower <= tolerance * upper
        case "value":
            assert answer == pytest.approx(expected, rel=tolerance, abs=0)
        case "range":
            assert expected[0] * (1 - tolerance) <= answer <= expected[1] * (1 + tolerance)
        case "complex":
            assert answer == pytest.approx(complex(*expected), rel=tolerance, abs=0)


def test_identifiers_are_unique():
    identifiers = [check["id"] for check in CHECKS]
    assert len(set(identifiers)) == len(identifiers)
