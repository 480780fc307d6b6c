"""Printed bounds stay on their safe side."""

from decimal import Decimal
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut._rounding import round_down, round_up


@given(st.floats(min_value=0.0, allow_infinity=False), st.integers(1, 17))
def test_rounding_never_crosses_the_value(value, digits):
    assert Decimal(round_down(value, digits)) <= Decimal(value) <= Decimal(round_up(value, digits))


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [(2.00001, "2.01", "2.00"), (0.0, "0", "0"), (1.0, "1", "1"), (inf, "Infinity", "Infinity")],
)
def test_rounding_to_three_digits(value, up, down):
    assert (round_up(value, 3), round_down(value, 3)) == (up, down)
