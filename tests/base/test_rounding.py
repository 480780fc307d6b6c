"""Printed bounds stay on their safe side."""

from decimal import Decimal
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut._base.rounding import (
    places_up,
    round_down,
    round_up,
    scientific_down,
    scientific_up,
)


@given(st.floats(min_value=0.0, allow_infinity=False), st.integers(1, 17))
def test_rounding_never_crosses_the_value(value, digits):
    assert float(round_down(value, digits)) <= value <= float(round_up(value, digits))
    shortest = Decimal(repr(value))
    assert Decimal(round_down(value, digits)) <= shortest <= Decimal(round_up(value, digits))


@given(st.integers(0, 9_999), st.integers(-8, 8))
def test_numbers_that_fit_the_digits_stay(number, exponent):
    value = float(f"{number}e{exponent}")
    assert float(round_up(value, 4)) == float(round_down(value, 4)) == value


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (2.00001, "2.01", "2.00"),
        (0.0, "0", "0"),
        (1.0, "1", "1"),
        (100.0, "100", "100"),
        (0.1, "0.1", "0.1"),
        (0.7, "0.7", "0.7"),
        (0.1875, "0.188", "0.187"),
        (inf, "Infinity", "Infinity"),
    ],
)
def test_rounding_to_three_digits(value, up, down):
    assert (round_up(value, 3), round_down(value, 3)) == (up, down)


@given(st.floats(min_value=1e-300, max_value=1e300), st.integers(1, 17))
def test_scientific_rounding_never_crosses_the_value(value, digits):
    assert float(scientific_down(value, digits)) <= value <= float(scientific_up(value, digits))


@given(st.floats(min_value=0.0, max_value=1e12), st.integers(0, 6))
def test_places_never_fall_below_the_value(value, places):
    assert value <= float(places_up(value, places)) <= value + 10.0**-places * (1 + 1e-9) + 1e-3
    assert places_up(1.0, 3) == "1.000"
