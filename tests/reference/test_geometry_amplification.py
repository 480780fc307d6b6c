"""Reference values of coordinate-wise and twice sampling, one test per value.

The numbers are in ``geometry_amplification.json``: the release as a factory call, the question, the
expected answer with its tolerance, and how it was obtained.
"""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

from taut.accounting._adjacency import Half
from taut.accounting._comparisons.equal_compute import sampled_mean_error
from taut.accounting._mechanisms import coordinates as _coordinates
from taut.accounting.renyi._conversions import epsilon_from_rdp

PATH = Path(__file__).parent / "values" / "geometry_amplification.json"
CHECKS = json.loads(PATH.read_text(encoding="utf-8"))


def make(release, **more):
    return getattr(_coordinates, release["make"])(**release["with"], **more)


def divergence(release, half, order):
    ((primitive, _),) = make(release).terms
    return float(primitive.renyi(half, np.array([float(order)]))[0])


def calibrated(release, ask):
    """Return the sigma at which the classic conversion meets epsilon."""

    def excess(log_sigma):
        ((primitive, _),) = make(release, sigma=math.exp(log_sigma)).terms

        def rdp(orders):
            return ask["steps"] * primitive.renyi(Half.REMOVE, orders)

        orders = range(2, ask["largest_order"] + 1)
        found = epsilon_from_rdp(rdp, ask["delta"], conversion="classic", orders=orders)
        return math.log(found.value / ask["epsilon"])

    return math.exp(brentq(excess, math.log(0.3), math.log(5.0), xtol=1e-10))


def enumerated_mean_error(rows, record_rate, rate):
    """Return the mean squared error over all samples and masks, without the formula."""
    rows = np.array(rows)
    n, d = rows.shape
    total = 0.0
    for chosen in itertools.product((0, 1), repeat=n):
        p = math.prod(record_rate if c else 1 - record_rate for c in chosen)
        for mask in itertools.product((0, 1), repeat=n * d):
            weight = p * math.prod(rate if m else 1 - rate for m in mask)
            kept = rows * np.array(chosen)[:, None] * np.array(mask).reshape(n, d)
            error = kept.sum(axis=0) / (n * record_rate * rate) - rows.mean(axis=0)
            total += weight * float(error @ error)
    return total


def answer(check):
    release, ask = check["release"], check["ask"]
    if "rdp" in ask:
        return max(divergence(release, half, ask["rdp"]) for half in (Half.ADD, Half.REMOVE))
    if "half" in ask:
        return divergence(release, Half(ask["half"]), ask["order"])
    if "calibrate" in ask:
        return calibrated(release, ask)
    rates = release["record_rate"], release["coordinate_rate"]
    value = sampled_mean_error(release["rows"], math.prod(rates))
    assert enumerated_mean_error(release["rows"], *rates) == pytest.approx(value, rel=1e-10)
    return value


@pytest.mark.parametrize("check", CHECKS, ids=[check["id"] for check in CHECKS])
def test_reference(check):
    found, expected = answer(check), check["expected"]
    match check["kind"]:
        case "value":
            assert found == pytest.approx(expected, rel=check["tolerance"], abs=0)
        case "at_least":
            assert found >= expected
        case "at_most":
            assert found <= expected
        case _:
            pytest.fail(f"unknown kind {check['kind']!r}")
