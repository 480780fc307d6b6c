"""E30: for the same epsilon, mixing injects more variance than Gaussian noise alone."""

import math

import pytest
from oracles import mixed_noise

from taut.accounting import compare_mixing, mixed_gaussian

RATE, STEPS, Z, WIDTH, P, DELTA = 0.03, 3400, 0.335, 11.25, 100, 1e-5
ORDERS = range(2, 16)


def mixed_moment(k):
    return P * mixed_noise.log_moment(k, 1 / math.sqrt(P), Z, WIDTH)


def epsilon(moment, orders=ORDERS):
    moments, found = {k: moment(k) for k in orders}, []
    for a in orders:
        total = sum(
            math.comb(a, k) * (1 - RATE) ** (a - k) * RATE**k * math.expm1(min(moments[k], 600.0))
            for k in range(2, a + 1)
        )
        found.append((STEPS * math.log1p(total) + math.log(1 / DELTA)) / (a - 1))
    return min(found)


def gaussian(sigma):
    return epsilon(lambda k: k * (k - 1) / (2 * sigma**2))


def equal_sigma(target):
    low, high = 0.5, 5.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian(middle) > target else (low, middle)
    return high


def test_a_fifth_of_the_variance_would_do():
    mixed, injected = epsilon(mixed_moment), math.hypot(Z, WIDTH / math.sqrt(12))
    enough = equal_sigma(mixed)
    assert mixed == pytest.approx(8.000, abs=1e-3)
    assert injected == pytest.approx(3.265, abs=1e-3)
    assert enough == pytest.approx(1.414, abs=1e-3)
    assert (injected / enough) ** 2 == pytest.approx(5.33, abs=0.02)
    assert gaussian(injected) == pytest.approx(2.82, abs=0.01)


def test_taut_has_the_comparison():
    step = mixed_gaussian(Z, WIDTH, sensitivity_inf=1 / math.sqrt(P), rate=RATE)
    found = compare_mixing(STEPS * step, DELTA, conversion="classic")
    assert found.variance_ratio == pytest.approx(5.33, abs=0.02)
    assert found.epsilon_equal_variance < found.epsilon
