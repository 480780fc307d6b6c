"""The enclosed tail of the normal distribution, against arithmetic of many digits."""

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.noise._random.normal_tail import normal_tail_bounds, pi_bounds

POINTS = [
    Fraction(1, 10**300),
    Fraction(1, 10**9),
    Fraction(1, 3),
    Fraction(1),
    Fraction(22, 7),
    Fraction(9),
    Fraction(31, 2),
    Fraction(40),
]


def scaled_tail(point, bits):
    return mpmath.erfc(mpmath.mpf(point.numerator) / point.denominator / mpmath.sqrt(2)) * 2**bits


@pytest.mark.parametrize("bits", [1, 63, 127, 319, 703])
def test_pi(bits):
    with mpmath.workprec(2 * bits + 100):
        low, high = pi_bounds(bits)
        assert low <= mpmath.pi * 2**bits <= high
    assert high - low <= 2


@pytest.mark.parametrize("bits", [1, 63, 127, 319])
@pytest.mark.parametrize("point", POINTS, ids=float)
def test_tail_is_enclosed_to_the_last_bit(point, bits):
    low, high = normal_tail_bounds(point, bits)
    with mpmath.workprec(bits + 2500):
        assert low <= scaled_tail(point, bits) < high + 1
    assert high - low <= 1


@given(st.fractions(Fraction(1, 1000), 12, max_denominator=10**6), st.integers(1, 200))
def test_any_point(point, bits):
    low, high = normal_tail_bounds(point, bits)
    with mpmath.workprec(bits + 500):
        assert low <= scaled_tail(point, bits) < high + 1
    assert high - low <= 1


def test_far_out_nothing_is_left():
    assert normal_tail_bounds(Fraction(1000), 63) == (0, 0)
