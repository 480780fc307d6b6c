"""Sums and products of doubles are the rational numbers that they should be."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from taut.noise._exact.grid_values import MOST_STEPS, in_steps
from taut.noise._exact_sums import (
    COEFFICIENT_ERROR,
    FixedPoint,
    carried,
    coefficients,
    column_sums,
    combined,
    fine_axes,
    fixed_point,
    in_chunks,
    moderate,
    moment_limbs,
)

EXTREMES = [0.0, 5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, -1.7e308, 1.0, -1.0]
finite = st.one_of(st.sampled_from(EXTREMES), st.floats(allow_nan=False, allow_infinity=False))


def turn(size, columns=None, seed=0):
    table = np.random.default_rng(seed).normal(size=(size, columns or size))
    return fine_axes(np.linalg.qr(table)[0])


def dot(one, other):
    return sum((Fraction(a) * Fraction(b) for a, b in zip(one, other, strict=True)), Fraction(0))


def entries(fixed):
    """Return all entries of a table as rational numbers."""
    rows = [FixedPoint(fixed.limbs[:, i], fixed.exponent) for i in range(fixed.limbs.shape[1])]
    return [[row.fraction(j) for j in range(row.limbs.shape[1])] for row in rows]


@given(arrays(np.float64, 3, elements=finite))
def test_doubles_are_written_exactly(vector):
    fixed = fixed_point(vector)
    assert [fixed.fraction(i) for i in range(3)] == [Fraction(x) for x in vector.tolist()]
    units = [Fraction(n) * Fraction(2) ** fixed.exponent for n in fixed.integers()]
    assert units == [Fraction(x) for x in vector.tolist()]


@settings(max_examples=50)
@given(arrays(np.float64, (2, 3), elements=finite), arrays(np.float64, (3, 2), elements=finite))
def test_products_are_exact(rows, matrix):
    product = fixed_point(rows).times(in_chunks(matrix))
    exact = [[dot(row, column) for column in matrix.T.tolist()] for row in rows.tolist()]
    assert entries(product) == exact


@settings(max_examples=50)
@given(arrays(np.float64, st.tuples(st.integers(0, 9), st.just(2)), elements=finite))
def test_sums_are_exact(rows):
    total = column_sums(rows)
    assert [total.fraction(i) for i in range(2)] == [
        sum((Fraction(x) for x in column), Fraction(0)) for column in rows.T.tolist()
    ]


@pytest.mark.parametrize("size", [1, 7, 4096, 4097, 9000])
def test_long_products_are_exact(size):
    rng = np.random.default_rng(size)
    # All limbs as large as they get, and of one sign: the sum that could be rounded.
    row = np.full(size, 1 - 2.0**-53) * rng.choice([1.0, 2.0**-33], size)
    axis = np.full(size, 1 - 2.0**-53)
    product = fixed_point(row[None, :]).times(in_chunks(axis[:, None]))
    assert entries(product) == [[dot(row.tolist(), axis.tolist())]]


@given(arrays(np.float64, 4, elements=st.floats(-1e9, 1e9)), st.integers(0, 99))
def test_doubles_of_products_are_right_to_the_last_bits(vector, seed):
    axes = turn(4, seed=seed)
    product = fixed_point(vector[None, :]).times(in_chunks(axes))
    exact = [dot(vector.tolist(), axis) for axis in axes.T.tolist()]
    for found, truth in zip(product.doubles()[0].tolist(), exact, strict=True):
        assert abs(Fraction(found) - truth) <= abs(truth) * Fraction(1, 2**50) + Fraction(5e-324)


@given(arrays(np.float64, 3, elements=finite), st.integers(-1022, 1013))
def test_steps_are_those_of_the_rational_number(vector, exponent):
    value = in_steps(fixed_point(vector), np.full(3, exponent, dtype=np.intc))
    for i, number in enumerate(vector.tolist()):
        steps = Fraction(number) / Fraction(2) ** exponent
        cut = max(min(steps, Fraction(MOST_STEPS)), Fraction(-MOST_STEPS))
        assert value.exact(i) == cut
        assert abs(int(value.whole[i]) + Fraction(float(value.rest[i])) - cut) < Fraction(1, 2**52)
        assert abs(value.rest[i]) <= 0.5


class TestCoefficients:
    @settings(max_examples=50)
    @given(arrays(np.float64, (2, 6), elements=finite), st.integers(0, 99))
    def test_error(self, given_rows, seed):
        axes = turn(6, 4, seed)
        rows = moderate(given_rows)[0]
        found = coefficients(rows, axes)
        for i, row in enumerate(rows.tolist()):
            largest = Fraction(max(map(abs, row)))
            for j, axis in enumerate(axes.T.tolist()):
                truth = dot(row, axis)
                allowed = abs(truth) / 2**51 + 6 * Fraction(COEFFICIENT_ERROR) * largest
                assert abs(Fraction(float(found[i, j])) - truth) <= allowed + Fraction(5e-324)

    @pytest.mark.parametrize("size", [3, 130, 2500])
    def test_rows_are_as_if_alone(self, size):
        axes = turn(size, 5)
        rows = np.random.default_rng(1).standard_normal((40, size))
        rows[::3] *= 1e-200
        together = coefficients(rows, axes)
        assert (together[::-1] == coefficients(rows[::-1], axes)).all()
        for i in range(0, 40, 7):
            assert (together[i] == coefficients(rows[i : i + 1], axes)[0]).all()
        assert together == pytest.approx(rows @ axes, rel=1e-9, abs=1e-13)
        assert combined(together, axes) == pytest.approx(rows @ axes @ axes.T, rel=1e-9, abs=1e-12)

    def test_moderate_rows_stay(self):
        rows, factors = moderate(np.array([[1.0, -2.0], [1.7e308, 1.0], [0.0, 0.0]]))
        assert rows[0].tolist() == [1, -2]
        assert factors.tolist() == [1, 2.0**64, 1]
        assert rows[1, 0] * factors[1] == 1.7e308


@pytest.mark.parametrize("last", [1, 2, 3])
def test_second_moments_are_those_of_rows_cut_to_forty_bits(last):
    rows = np.random.default_rng(0).uniform(-1, 1, (2048, 3))
    rows[:1000] = [1.0, -1.0, 1 - 2.0**-53]
    kept = [
        [Fraction(math.trunc(Fraction(x) * 2**40), 2**40) for x in row] for row in rows.tolist()
    ]
    exact = [[sum(row[i] * row[j] for row in kept) for j in range(3)] for i in range(3)]
    wanted = [[exact[i][j] if max(i, j) >= 3 - last else 0 for j in range(3)] for i in range(3)]
    assert entries(carried(moment_limbs(rows.T.copy(), last), -80)) == wanted
