"""Columns as integers of a public unit: one function of the value, within a public reach."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.statistics import ClippedColumn

AGE = ClippedColumn("age", 18, 90)


def test_middle_is_zero_and_ends_are_the_reach():
    assert AGE.integers(np.array([18.0, 54.0, 90.0])).tolist() == [-AGE.reach, 0, AGE.reach]
    assert AGE.span == 2 * AGE.reach
    assert AGE.reach * AGE.unit == 36.0


@pytest.mark.parametrize("value", [1e308, math.inf, 91.0])
def test_values_beyond_the_range_are_its_ends(value):
    assert AGE.integers(np.array([value, -value])).tolist() == [AGE.reach, -AGE.reach]


def test_missing_value_is_zero():
    assert AGE.integers(np.array([math.nan])).tolist() == [0]


bounds = st.floats(-1e30, 1e30).flatmap(
    lambda low: st.tuples(st.just(low), st.floats(low, 1e30)).filter(
        lambda pair: pair[1] - pair[0] > 1e-12 * max(abs(pair[0]), abs(pair[1]), 1e-18)
    )
)


@given(bounds, st.floats(allow_nan=False))
def test_integer_is_the_rounded_distance_from_the_middle_and_within_reach(ends, value):
    column = ClippedColumn("x", *ends)
    (found,) = column.integers(np.array([value])).tolist()
    exact = Fraction(min(max(value, column.lower), column.upper)) - Fraction(column.middle)
    # Half a unit for rounding, and what the difference of two doubles rounds off.
    tolerance = Fraction(column.unit) / 2 + abs(exact) / 2**52 + Fraction(5e-324)
    assert abs(found * Fraction(column.unit) - exact) <= tolerance
    assert abs(found) <= column.reach <= 1 << 30
    low, high = column.integers(np.array(ends)).tolist()
    assert low <= found <= high
    assert high - low == column.span


@given(bounds, st.lists(st.floats(), min_size=1))
def test_integer_depends_on_the_value_alone(ends, values):
    column = ClippedColumn("x", *ends)
    array = np.array(values)
    one_by_one = [int(column.integers(array[i : i + 1])[0]) for i in range(len(values))]
    assert column.integers(array).tolist() == one_by_one


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [
        (90, 18, r"lower of column 'age' must be below upper, got lower=90, upper=18"),
        (5, 5, "must be below upper"),
        (math.nan, 5, "lower of column 'age' must be a finite number"),
        (0, math.inf, "upper of column 'age' must be a finite number"),
        (0, 1e31, "at most 1e.30 in magnitude"),
        (1e15, 1e15 + 1, "at least 1000 apart.* from a public number nearby"),
        (0, 1e-31, "at least 1e-30 apart.* count in other units"),
        ("0", 1, "must be a real number"),
    ],
)
def test_bad_bounds_are_refused(lower, upper, words):
    with pytest.raises(ValueError, match=words):
        ClippedColumn("age", lower, upper)


@pytest.mark.parametrize("name", ["", 3])
def test_name_is_a_text(name):
    with pytest.raises(ValueError, match="must be a text"):
        ClippedColumn(name, 0, 1)
