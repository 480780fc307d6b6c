"""Sums of Laplace noise have an epsilon at delta zero that is exact, where a float can hold it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut

NUMBERS = st.floats(1e-3, 1e3)


@given(st.lists(st.tuples(st.integers(1, 1_000), NUMBERS, NUMBERS), min_size=1, max_size=4))
def test_pure_epsilon_is_the_exact_sum_rounded_up(terms):
    parts = [n * taut.laplace(scale, sensitivity) for n, scale, sensitivity in terms]
    lower, upper = sum(parts, taut.PrivacyLoss()).epsilon_bounds(0.0)
    exact = sum(n * Fraction(sensitivity) / Fraction(scale) for n, scale, sensitivity in terms)
    assert Fraction(lower) <= exact <= Fraction(upper)
    assert Fraction(upper) <= exact * (1 + Fraction(1, 10**14))


@pytest.mark.parametrize(("count", "scale"), [(3, 16.0), (5, 8.0), (1_000, 64.0), (7, 0.5)])
def test_what_a_float_can_hold_is_not_moved(count, scale):
    assert (count * taut.laplace(scale)).epsilon(0.0) == count / scale
