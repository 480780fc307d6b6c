"""Certified intervals and the root search on their safe sides."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut.accounting._engines.bounds import falls_below


def test_gap_is_the_width():
    assert taut.Bounds(1.0, 1.5).gap == 0.5


def test_gap_of_an_infinite_answer_is_zero():
    assert taut.Bounds(math.inf, math.inf).gap == 0.0


def test_bounds_unpack():
    lower, upper = taut.Bounds(1.0, 2.0)
    assert (lower, upper) == (1.0, 2.0)


@given(
    rate=st.floats(1e-6, 1e6),
    level=st.floats(math.log(1e-300), -1e-9).map(math.exp),
    guess=st.floats(0, 1e9),
)
def test_falls_below_brackets_the_root_of_an_exponential(rate, level, guess):
    low, high = falls_below(lambda x: math.exp(-rate * x), level, guess)
    assert math.exp(-rate * high) <= level
    assert math.exp(-rate * low) > level
    assert high - low <= 1e-11 * high


def test_falls_below_is_zero_where_the_function_starts_below():
    assert falls_below(lambda x: 0.1 / (1 + x), 0.5, 1.0) == (0.0, 0.0)


def test_falls_below_is_infinite_where_the_function_never_falls():
    assert falls_below(lambda _: 0.2, 0.1, 1.0).upper == math.inf


def test_falls_below_survives_a_drop_to_zero():
    low, high = falls_below(lambda x: 0.5 if x < 3 else 0.0, 0.1, 1.0)
    assert low < 3 <= high
    assert high == pytest.approx(3, rel=1e-11)
