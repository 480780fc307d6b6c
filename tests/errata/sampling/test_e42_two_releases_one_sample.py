"""E42: two releases on one sample are not two sampled releases."""

import math

import pytest

import taut

RATE, STEPS, DELTA = 0.02, 10_000, 1e-5
ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))


def plain(rdp):
    """Convert a curve as Mironov (2017) does."""
    return min(rdp(a) + math.log(1 / DELTA) / (a - 1) for a in ORDERS)


def tighter(rdp):
    """Convert a curve as Canonne, Kamath and Steinke (2020) do."""
    return min(rdp(a) + math.log1p(-1 / a) - math.log(DELTA * a) / (a - 1) for a in ORDERS)


def sampled(multiplier):
    return STEPS * taut.gaussian(multiplier).poisson(RATE)


@pytest.mark.parametrize(
    ("z", "claimed", "right"), [(2.0838, 8.000, 8.649), (0.5690, 111.204, 227.903)]
)
def test_doubling_claims_too_little(z, claimed, right):
    doubled = sampled(z).rdp
    assert plain(lambda a: 2 * doubled(a)) == pytest.approx(claimed, abs=1e-3)
    assert plain(sampled(z / math.sqrt(2)).rdp) == pytest.approx(right, abs=1e-3)


@pytest.mark.parametrize(
    ("z", "claimed", "spent"), [(2.0838, 7.276, 7.307), (0.5690, 109.2, 211.8)]
)
def test_more_is_spent_than_claimed(z, claimed, spent):
    # Of two releases on one sample with all of an example in either, as embedding and residual.
    one = taut.gaussian(z)
    both = STEPS * (one + one).poisson(RATE)
    doubled = sampled(z).rdp
    assert tighter(lambda a: 2 * doubled(a)) < claimed
    assert both.epsilon_bounds(DELTA).lower > spent > claimed


def test_without_sampling_doubling_is_right():
    one, wide = taut.gaussian(2.0), taut.gaussian(2.0 / math.sqrt(2))
    assert 2 * one.rdp(3.0) == pytest.approx(wide.rdp(3.0), rel=1e-12)
