"""E25: at the price of the same gradients, plain sampling of records beats twice sampling."""

import math

import pytest

from taut.accounting import equal_compute_plan, twice_sampled

LARGEST = 20
SIGMA, RECORDS, COORDINATES, COUNT, STEPS, DELTA = 0.6067228667, 0.02, 0.5, 100, 5000, 1e-5


def poisson(rate, base):
    """Return the moments of a Poisson sample at orders 0 to LARGEST from those of its base."""
    return [0.0, 0.0] + [
        math.log1p(
            sum(
                math.comb(a, v) * (1 - rate) ** (a - v) * rate**v * math.expm1(base[v])
                for v in range(2, a + 1)
            )
        )
        for a in range(2, LARGEST + 1)
    ]


def gaussian(sigma):
    return [v * (v - 1) / (2 * sigma**2) for v in range(LARGEST + 1)]


def epsilon(moments):
    return min((STEPS * moments[a] + math.log(1 / DELTA)) / (a - 1) for a in range(2, LARGEST + 1))


def test_scaling_the_rows_costs_less_than_masking_them():
    cell = poisson(COORDINATES, gaussian(SIGMA * math.sqrt(COUNT)))
    twice = poisson(RECORDS, [COUNT * value for value in cell])
    # The same records, the same mean and noise: multiply each row by the rate of coordinates.
    plain = poisson(RECORDS, gaussian(SIGMA / COORDINATES))
    # What the paper compares with: as many cells, hence half the gradients.
    fewer = poisson(RECORDS * COORDINATES, gaussian(SIGMA))
    assert all(p < t for p, t in zip(plain[2:], twice[2:], strict=True))
    assert epsilon(twice) == pytest.approx(8.000, abs=1e-3)
    assert epsilon(plain) == pytest.approx(7.931, abs=1e-3)
    assert epsilon(fewer) == pytest.approx(18.57, abs=1e-2)


def test_taut_prints_the_plain_plan_beside():
    step = twice_sampled(RECORDS, COORDINATES, SIGMA, clip_inf=0.1, dimension=10**5)
    plan = equal_compute_plan(STEPS * step, DELTA)
    assert plan.multiplier == pytest.approx(SIGMA / COORDINATES)
    assert plan.twice_epsilon == pytest.approx(7.25, abs=1e-2)
    assert plan.epsilon == pytest.approx(6.63, abs=1e-2)
