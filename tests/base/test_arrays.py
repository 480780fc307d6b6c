"""Conversions to floats lose nothing without a word."""

import warnings
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taut._base.arrays import along_rows, column_norms, numbers_or_missing, real_numbers
from taut.noise import Box, optimal_gaussian, optimal_laplace

BAD = [
    (np.ma.masked_array([1.0, 2.0], mask=[False, True]), "must not have masked entries"),
    (np.array([1.0, 2.0j]), "must be real numbers, got an array of the type complex128"),
    ([True, False], "must be real numbers, got an array of the type bool"),
    (["1", "2"], "must be real numbers"),
    ([1.0, [2.0]], "must be numbers in rows of one length"),
    ([1.0, None], "must be real numbers"),
]


@pytest.mark.parametrize(("values", "message"), BAD)
def test_refused(values, message):
    with pytest.raises(ValueError, match=f"widths {message}"):
        real_numbers(values, "widths")


@pytest.mark.parametrize(("values", "message"), BAD)
@pytest.mark.parametrize("make", [optimal_gaussian, optimal_laplace])
def test_weights(make, values, message):
    with pytest.raises(ValueError, match=f"weights {message}"):
        make(Box([1.0, 2.0]), epsilon=1.0, delta=1e-6, weights=values)


@pytest.mark.parametrize(
    "values",
    [
        [1, 2],
        np.array([1, 2], dtype=np.uint8),
        np.array([1, 2], dtype=np.float32),
        [Decimal(1), Decimal(2)],
        [Fraction(1), 2],
        np.ma.masked_array([1.0, 2.0], mask=False),
    ],
)
def test_kept(values):
    found = real_numbers(values, "widths")
    assert found.dtype == np.float64
    assert found.tolist() == [1.0, 2.0]


def test_not_copied():
    values = np.array([1.0, 2.0])
    assert real_numbers(values, "widths") is values


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 30))
def test_norms_of_columns_are_the_same_wherever_a_column_stands(seed, rows, columns):
    table = np.random.default_rng(seed).normal(size=(rows, columns)) * 10
    norms = column_norms(table)
    for first in range(min(columns, 9)):
        moved = column_norms(np.ascontiguousarray(table[:, first:]))
        assert np.array_equal(moved, norms[first:])
    assert norms == pytest.approx(np.linalg.norm(table, axis=0))


@pytest.mark.parametrize("columns", range(1, 12))
def test_rows_are_reduced_as_numpy_does_to_the_last_bit(columns):
    random = np.random.default_rng(columns)
    table = random.normal(size=(500, columns)) * 10.0 ** random.integers(-8, 9, (500, columns))
    table[0, 0], table[1], table[2, -1] = np.nan, -0.0, np.inf
    for rows in (table, table[::2], table[:1], table[:0]):
        expected = rows.sum(axis=1), rows.max(axis=1, initial=-np.inf)
        found = along_rows(np.add, rows, 0.0), along_rows(np.maximum, rows, -np.inf)
        assert all(map(partial(np.array_equal, equal_nan=True), found, expected))
    whole = np.isfinite(table)
    assert np.array_equal(along_rows(np.logical_and, whole, True), whole.all(axis=1))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, None, 3], [1, np.nan, 3]),
        ([1.0, "x", Decimal(3), 1j], [1, np.nan, 3, np.nan]),
        ([None], [np.nan]),
        ([True, None], [1, np.nan]),
        ([True, False], [1, 0]),
        ([np.ma.masked, 2.0], [np.nan, 2]),
        ([np.ma.array(1.0, mask=True), np.ma.array(2.0)], [np.nan, 2]),
        ([np.float32(0.5), np.int64(2), np.array(3.0), torch.tensor(4.0)], [0.5, 2, 3, 4]),
        ([pd.NA, pd.NaT, np.longdouble(2)], [np.nan, np.nan, 2]),
        (np.ma.masked_array([1.0, 2.0], mask=[True, False]), [np.nan, 2]),
        (np.ma.masked_array([1, 2], mask=[True, False]), [np.nan, 2]),
        (np.array([1, None, 10**400], dtype=object), [1, np.nan, np.inf]),
        (pd.Series([1, None, 3], dtype="Int64"), [1, np.nan, 3]),
        (pl.Series([1, None, 3]), [1, np.nan, 3]),
        ([], []),
        ([[1.0], [2.0]], [[1], [2]]),
    ],
)
def test_missing_entries_of_records_are_not_numbers(values, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = numbers_or_missing(values, "data")
    np.testing.assert_array_equal(found, np.array(expected, dtype=float))


@pytest.mark.parametrize(
    "values", [["1", "2"], np.array(["1"]), [[1.0], [1.0, 2.0]], np.array([1j]), np.array([True])]
)
def test_types_of_arrays_are_refused_as_without_records(values):
    with pytest.raises(ValueError, match="data must be"):
        numbers_or_missing(values, "data")
