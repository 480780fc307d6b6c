"""E8: a factor 3 inside the logarithm is a factor 3^k on delta after k runs, not 3."""

import math

import pytest


def moment(order, rate, sigma, weight):
    """Return (order - 1) * epsilon(order) with ``weight`` on the terms from the third on."""
    total = (1 - rate) ** (order - 1) * (order * rate - rate + 1)
    for j in range(2, order + 1):
        term = math.comb(order, j) * (1 - rate) ** (order - j) * rate**j
        total += (weight if j >= 3 else 1) * term * math.exp(j * (j - 1) / (2 * sigma**2))
    return math.log(total)


def log_delta(runs, epsilon, weight):
    orders = range(2, 24)
    return min(runs * moment(a, 0.1, 1.0, weight) - (a - 1) * epsilon for a in orders)


@pytest.mark.parametrize(
    ("runs", "epsilon", "factor"), [(1, 3.0, 2.64), (10, 20.0, 16402), (10, 40.0, 56172)]
)
def test_ratio_of_deltas_grows_with_the_number_of_runs(runs, epsilon, factor):
    ratio = math.exp(log_delta(runs, epsilon, 3) - log_delta(runs, epsilon, 1))
    assert ratio == pytest.approx(factor, rel=1e-2)
    assert ratio <= 3**runs
    assert (ratio > 3) == (runs > 1)
