"""E23: the limits for many coordinates lie below the loss at every finite number of them."""

import math

import pytest

from taut.accounting import twice_sampled
from taut.accounting.diagnostics import estimate_many_coordinates


def poisson(order, rate, cumulant):
    """Return the moment of a sample from those of the base, in the form without cancellation."""
    return math.log1p(
        sum(
            math.comb(order, v) * (1 - rate) ** (order - v) * rate**v * math.expm1(cumulant(v))
            for v in range(2, order + 1)
        )
    )


def cells(rate, half_square):
    """Return the moments of one masked coordinate, half_square = shift^2 / (2 sigma^2)."""
    return lambda order: poisson(order, rate, lambda v: v * (v - 1) * half_square)


RECORDS, COORDINATES, SIGMA, ORDER = 0.02, 0.5, 0.6, 4
TAU = 1 / (2 * SIGMA**2)


def twice(count):
    cell = cells(COORDINATES, TAU / count)
    return poisson(ORDER, RECORDS, lambda v: count * cell(v)) / (ORDER - 1)


def test_corollary_5_5_is_a_lower_bound():
    limit = poisson(ORDER, RECORDS, lambda v: v * (v - 1) * COORDINATES**2 * TAU) / (ORDER - 1)
    assert limit == pytest.approx(8.461e-4, rel=1e-4)
    truth = {16: 9.458e-4, 100: 8.608e-4, 1000: 8.476e-4}
    for count, value in truth.items():
        assert twice(count) == pytest.approx(value, rel=1e-4)
        assert twice(count) > limit
        loss = twice_sampled(
            RECORDS, COORDINATES, SIGMA, clip_inf=1 / math.sqrt(count), dimension=10**6
        )
        assert loss.rdp(ORDER) >= twice(count) * (1 - 1e-12)
        assert estimate_many_coordinates(loss, ORDER) == pytest.approx(limit, rel=1e-9)


def test_theorem_5_3_has_the_limit_of_p_2_only():
    order, rate, count = 8, 0.02, 256
    truth = count * cells(rate, 1 / count**2 / 2)(order) / (order - 1)  # p = 1, c = sigma = 1
    assert order * rate**2 / 2 == pytest.approx(1.6e-3)
    assert truth == pytest.approx(6.25e-6, rel=1e-4)


def test_the_rate_for_small_q_has_the_wrong_exponent():
    order, rate, tau = 2, 1e-9, 5.0
    truth = cells(rate, tau)(order) / (order - 1)
    assert truth == pytest.approx(order / 2 * rate**2 * math.expm1(2 * tau), rel=1e-6)
    assert truth / (order * rate**2 * math.expm1(tau)) == pytest.approx(74.7, rel=1e-3)
