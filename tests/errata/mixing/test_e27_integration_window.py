"""E27: an integration window that does not follow the order misses the peak of the moment."""

import math

import numpy as np
import pytest
from oracles.mixed_noise import log_density

from taut.accounting import mixed_gaussian


def log_moment(k, z, width, right):
    """Return log of the integral of f(x-1)^k f(x)^(1-k) up to ``right``, by the trapezoid rule."""
    x = np.linspace(-width / 2 - 12 * z, right, 8001)
    exponent = k * log_density(x - 1, z, width) + (1 - k) * log_density(x, z, width)
    exponent[[0, -1]] -= math.log(2)
    return float(np.logaddexp.reduce(exponent)) + math.log(x[1] - x[0])


def fixed(k, z, width):
    return log_moment(k, z, width, width / 2 + 8 * z)


def moving(k, z, width):
    return log_moment(k, z, width, width / 2 + k + 12 * z)


@pytest.mark.parametrize(
    ("k", "truth", "found"), [(3, 22.252, 20.893), (4, 48.626, 39.625), (5, 84.008, 58.938)]
)
def test_the_moment_is_too_small_by_orders_of_magnitude(k, truth, found):
    z, width = 0.335, 11.25
    assert moving(k, z, width) == pytest.approx(truth, abs=1e-3)
    assert fixed(k, z, width) == pytest.approx(found, abs=1e-3)
    assert mixed_gaussian(z, width).rdp(k) * (k - 1) == pytest.approx(truth, abs=1e-3)


RATE, STEPS, DELTA = 0.001, 1000, 1e-5
ORDERS = range(2, 20)  # as far as the published calculator goes


def log_weight(order, k):
    chosen = math.log(math.comb(order, k))
    return chosen + (order - k) * math.log1p(-RATE) + k * math.log(RATE)


def epsilon(moments):
    found = []
    for order in ORDERS:
        ks = range(2, order + 1)
        excess = [log_weight(order, k) + math.log(math.expm1(moments[k])) for k in ks]
        cumulant = float(np.logaddexp(0.0, np.logaddexp.reduce(excess)))
        found.append((STEPS * cumulant + math.log(1 / DELTA)) / (order - 1))
    return min(found)


def test_so_is_epsilon():
    z, width = 1.0, 20.0
    claimed = epsilon({k: fixed(k, z, width) for k in ORDERS})
    right = epsilon({k: moving(k, z, width) for k in ORDERS})
    assert claimed == pytest.approx(0.640, abs=2e-3)
    assert right == pytest.approx(0.889, abs=2e-3)
