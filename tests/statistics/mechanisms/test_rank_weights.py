"""Weights of ranks: their promise for every pair, in integers."""

import itertools
import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.statistics._mechanisms.rank_weights import LEAST_RATE, RankWeights

RATES = [Fraction(1, 1000), Fraction(1, 7), Fraction(1), Fraction(9), Fraction(80), Fraction(5000)]


def falls_no_faster(weights, u, v):
    """Say whether weights differ by a factor of exp(rate |u - v|) at most, in 60 digits."""
    with mpmath.workdps(60):
        rate = mpmath.mpf(weights.rate.numerator) / weights.rate.denominator
        ratio = mpmath.mpf(weights.at(u)) / weights.at(v)
        return abs(mpmath.log(ratio)) <= rate * abs(u - v)


@pytest.mark.parametrize("rate", RATES)
def test_all_small_distances(rate):
    weights = RankWeights(rate)
    assert all(falls_no_faster(weights, u, v) for u in range(40) for v in range(40) if u != v)


@settings(max_examples=40, deadline=None)
@given(
    rate=st.fractions(min_value="1/1000", max_value=30, max_denominator=10**6),
    place=st.floats(0, 1.2),
    step=st.integers(1, 50),
)
def test_any_distance(rate, place, step):
    weights = RankWeights(rate)
    u = math.floor(place * weights.reach)
    assert falls_no_faster(weights, u, u + step)


@pytest.mark.parametrize("rate", RATES[:4])
def test_weights_are_exponentials_where_they_matter(rate):
    weights = RankWeights(rate)
    for distance in (0, 1, 2, math.ceil(20 / rate)):
        exact = math.exp(-rate * distance)
        assert weights.at(distance) / weights.at(0) == pytest.approx(exact, rel=1e-12)


def test_beyond_the_reach_all_weigh_the_least():
    weights = RankWeights(Fraction(1, 3))
    assert weights.at(weights.reach + 1) == weights.at(10**12) == weights.least
    assert weights.least < weights.at(0) * 2.0**-90


def test_the_constant_is_needed():
    """Without it, integers fall faster than they may: the margin is no decoration."""
    weights = RankWeights(Fraction(1))
    bare = [weights.at(u) - weights.least for u in range(weights.reach)]
    steps = [a / b for a, b in itertools.pairwise(bare) if b > 0]
    assert max(steps) > math.e * 1.01


def test_a_rate_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match="rate must be at least"):
        RankWeights(LEAST_RATE / 2)
