"""Values and sums in grid steps are the rational numbers that they should be."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from taut.noise import Blocks, Box, L1Ball, L2Ball, LInfBall, LpIntersection
from taut.noise._exact.grid_values import MOST_STEPS, exact_sum, exact_value

finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e6, 1e6)


def one_exponent(exponent, size=1):
    return np.full(size, exponent, dtype=np.intc)


def clipped(steps):
    return max(min(steps, MOST_STEPS), -MOST_STEPS)


def approximate(value, i=0):
    return int(value.whole[i]) + Fraction(float(value.rest[i]))


@given(finite, st.integers(-1022, 1013))
def test_value_is_exact(number, exponent):
    value = exact_value(np.array([number]), one_exponent(exponent))
    exact = clipped(Fraction(number) / Fraction(2) ** exponent)
    assert value.exact(0) == exact
    # Exact in doubles as well, but for what is below the smallest of them.
    assert abs(approximate(value) - exact) <= Fraction(2) ** -1075
    assert abs(value.rest[0]) <= 0.5


@given(arrays(np.float64, st.tuples(st.integers(0, 12), st.just(2)), elements=moderate))
def test_sum_is_that_of_rationals(rows):
    exponents = np.array([-3, -20], dtype=np.intc)
    value = exact_sum(rows, exponents)
    for i, exponent in enumerate((-3, -20)):
        steps = [Fraction(x) / Fraction(2) ** exponent for x in rows[:, i]]
        kept = [int(s * 2**120) for s in steps]  # towards zero
        exact = Fraction(sum(kept), 2**120)
        assert value.exact(i) == exact
        assert abs(approximate(value, i) - exact) < Fraction(1, 2**50)
        assert -1 <= value.rest[i] <= 1


def test_one_record_moves_the_sum_by_what_it_contributes():
    # In doubles a row of 1 moves this sum by 2.
    rows, record = np.array([[2.0**53 + 2]]), np.array([[1.0]])
    assert np.concatenate([rows, record]).sum() - rows.sum() == 2
    both = exact_sum(np.concatenate([rows, record]), one_exponent(20))
    assert both.exact(0) - exact_sum(rows, one_exponent(20)).exact(0) == Fraction(1, 2**20)


def test_order_does_not_matter():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((5000, 3)) * 10.0 ** rng.integers(-12, 12, (5000, 3))
    exponents = np.array([-10, -20, 3], dtype=np.intc)
    forward, backward = exact_sum(rows, exponents), exact_sum(rows[::-1], exponents)
    assert [forward.exact(i) for i in range(3)] == [backward.exact(i) for i in range(3)]
    assert forward.exact(0) != 0


def test_portions_make_no_difference(monkeypatch):
    rows = np.random.default_rng(1).standard_normal((1000, 2))
    exponents = np.array([-10, -12], dtype=np.intc)
    whole = exact_sum(rows, exponents)
    monkeypatch.setattr("taut.noise._exact.grid_values._SUMMED_PORTION", 64)
    pieces = exact_sum(rows.astype(np.float64), exponents)
    assert [whole.exact(i) for i in range(2)] == [pieces.exact(i) for i in range(2)]
    assert (whole.whole == pieces.whole).all()


def test_narrow_types_are_summed_as_they_are():
    rows = np.array([[0.1], [0.2]], dtype=np.float32)
    assert exact_sum(rows, one_exponent(0)).exact(0) == sum(Fraction(float(x)) for x in rows[:, 0])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_huge_rows_and_sums_are_cut(sign):
    rows = np.full((4, 1), sign * 1e300)
    value = exact_sum(rows, one_exponent(-10))
    assert value.exact(0) == sign * 4 * 2**42
    assert value.whole[0] == sign * 4 * 2**42
    many = exact_sum(np.full((5000, 1), sign * 1e300), one_exponent(-10))
    assert many.exact(0) == sign * MOST_STEPS
    assert (many.whole[0], many.rest[0]) == (sign * MOST_STEPS, 0.0)
    at_edge = exact_sum(np.full((1024, 1), sign * 2.0**42), one_exponent(0))
    assert at_edge.exact(0) == at_edge.whole[0] == sign * MOST_STEPS


def test_sum_of_nothing():
    value = exact_sum(np.empty((0, 2)), one_exponent(0, 2))
    assert value.whole.tolist() == [0, 0]
    assert value.exact(1) == 0


WIDTHS = np.random.default_rng(3).uniform(0.1, 1.0, 130)
TURN = np.linalg.qr(np.random.default_rng(4).normal(size=(130, 130)))[0]


@pytest.mark.parametrize("kept", [np.float64, np.float32])
@pytest.mark.parametrize(
    "one",
    [
        Box(WIDTHS, l2=2.5, l1=20.0),
        Blocks([2, 128], [1.0, 0.5], linf=[0.8, math.inf], cap=1.05),
        L1Ball(130, 1.0),
        L2Ball(130, 1.0),
        LInfBall(130, 0.5),
        LpIntersection(130, {1: 50.0, 2: 3.0, 3: 2.5}),
        Box(WIDTHS, TURN, l2=2.5),
        Blocks([2, 128], [1.0, 0.5], basis=TURN),
        Blocks([2, 128], [1.0, 0.5], basis=TURN[:, :2]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_clipping_of_a_row_does_not_depend_on_the_others(one, kept):
    """Otherwise one record could move the contributions of all."""
    rows = np.random.default_rng(2).standard_normal((100, 130)).astype(kept)
    rows[::3] *= 0.01  # some are inside
    together = one.clip(rows)
    assert (together[:-1] == one.clip(rows[:-1])).all()
    assert (together[::-1] == one.clip(rows[::-1])).all()
    for i in range(0, 100, 7):
        assert (together[i] == one.clip(rows[i])).all()
