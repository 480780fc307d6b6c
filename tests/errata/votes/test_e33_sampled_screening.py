"""E33: Figure 4.5 applies a formula whose condition fails, and the saving is 21 %."""

import math

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from taut.accounting import screening_rdp

K, THRESHOLD, SIGMA, RATE, COUNT, DELTA = 300, 210, 85.0, 0.25, 8192, 1e-5
ORDERS = range(2, 60)
Z = (np.arange(K + 1.0) - THRESHOLD) / SIGMA


def screening(order):
    passed, failed = log_ndtr(Z), log_ndtr(-Z)
    both = []
    for i, j in ((slice(1, None), slice(-1)), (slice(-1), slice(1, None))):
        power = np.logaddexp(
            order * passed[i] + (1 - order) * passed[j], order * failed[i] + (1 - order) * failed[j]
        )
        both.append(power.max() / (order - 1))
    return max(both)


def sampled_exactly(order):
    p, largest = ndtr(Z), 0.0
    for present, absent in ((p[1:], p[:-1]), (p[:-1], p[1:])):
        mixed = (1 - RATE) * absent + RATE * present
        for a, b in ((mixed, absent), (absent, mixed)):
            moment = a**order * b ** (1 - order) + (1 - a) ** order * (1 - b) ** (1 - order)
            largest = max(largest, math.log(moment.max()) / (order - 1))
    return largest


def binomial(order, base, weight):
    """Return the sampled divergence, with ``weight`` on the terms from the third on."""
    total = sum(
        math.comb(order, j)
        * (1 - RATE) ** (order - j)
        * RATE**j
        * ((weight if j > 2 else 1) * math.exp((j - 1) * base[j]) - 1)
        for j in range(2, order + 1)
    )
    return math.log1p(total) / (order - 1)


def epsilon(divergence):
    return min(COUNT * divergence(a) + math.log(1 / DELTA) / (a - 1) for a in ORDERS)


def test_the_condition_on_odd_moments_fails_for_half_of_the_pairs():
    p = ndtr((np.arange(301.0) - 180) / 75)
    third = [(a - b) ** 3 * (b**-2 - (1 - b) ** -2) for a, b in ((p[1:], p[:-1]), (p[:-1], p[1:]))]
    assert sum(int((moment < 0).sum()) for moment in third) == 298


def test_the_figure_stands_all_the_same():
    base = {j: screening(j) for j in ORDERS}
    exact = epsilon(sampled_exactly)
    assert exact == pytest.approx(1.0422, abs=1e-4)
    assert epsilon(lambda a: binomial(a, base, 1)) == pytest.approx(exact, rel=1e-4)
    assert epsilon(lambda a: binomial(a, base, 3)) == pytest.approx(11.558, abs=1e-3)
    assert all(binomial(a, base, 1) >= sampled_exactly(a) * (1 - 1e-9) for a in ORDERS)


def test_the_saving_is_a_fifth():
    gaussian = {j: j / (2 * SIGMA**2) for j in ORDERS}
    plain = epsilon(lambda a: binomial(a, gaussian, 1))
    assert plain == pytest.approx(1.3132, abs=1e-4)
    assert 1 - epsilon(sampled_exactly) / plain == pytest.approx(0.206, abs=1e-3)


def test_taut_evaluates_the_pairs():
    orders = np.array([2.0, 7.5, 24.0])
    found = screening_rdp(K, THRESHOLD, SIGMA, orders, RATE)
    assert found == pytest.approx([sampled_exactly(a) for a in orders], rel=1e-6)
