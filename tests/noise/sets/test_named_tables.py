"""Columns by name: mappings and data frames, without knowing their library."""

import math

import numpy as np
import pytest

from taut.noise import Box, Histogram, L1Ball, SeededForExperiments, optimal_laplace

BOX = Box({"age": 100.0, "visits": 10.0})


class Frame:
    """What pandas and polars have in common."""

    def __init__(self, **columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return self._columns[name]


class NAType:
    """Stands for pandas.NA."""


FRAME = Frame(
    name=np.array(["a", "b"]), visits=np.array([3, 99]), age=np.array([40.0, 50.0], np.float32)
)


def noise():
    return optimal_laplace(BOX, epsilon=1.0)


def test_names_order_the_columns_and_leave_others_out():
    assert BOX.columns == ("age", "visits")
    assert BOX.clip(FRAME).tolist() == [[40, 3], [50, 10]]
    assert BOX.clip({"visits": [1], "age": [2]}).tolist() == [[2, 1]]


def test_sums_come_back_by_name_and_are_those_of_the_array():
    seeded = [SeededForExperiments(seed=4) for _ in range(2)]
    by_name = noise().release_sum(FRAME, seeded[0])
    plain = noise().release_sum([[40, 3], [50, 99]], seeded[1])
    assert by_name == dict(zip(["age", "visits"], plain.tolist(), strict=True))


def test_a_set_without_names_takes_those_of_the_table():
    one = optimal_laplace(Box([100.0, 10.0]), epsilon=1.0)
    assert list(one.release_sum({"a": [1.0], "b": [2.0]})) == ["a", "b"]


def test_replace_one_keeps_the_names():
    assert BOX.differences().columns == ("age", "visits")
    assert BOX.differences().clip(FRAME).tolist() == [[40, 3], [50, 10]]
    assert L1Ball(2, 1.0).differences().named(["a", "b"]).contributions.columns == ("a", "b")


def test_every_set_can_be_named():
    one = L1Ball(3, 1.0).named("abc"[i] for i in range(3))
    assert one.columns == ("a", "b", "c")
    assert one != L1Ball(3, 1.0)


def test_missing_entries_are_broken_rows_and_no_error():
    table = {"age": [40, None, NAType()], "visits": np.array([1, 2, 3])}
    assert BOX.clip(table).tolist() == [[40, 1], [0, 0], [0, 0]]


class Numbered:
    """A frame of pandas that was made from an array: its columns are numbers."""

    columns = (0, 1)

    def __array__(self, dtype=None, copy=None):
        return np.array([[1.0, 2.0]], dtype=dtype)

    def __getitem__(self, number):
        return np.array([[1.0, 2.0]])[:, number]


def test_numbered_columns_are_no_names():
    assert isinstance(noise().release_sum(Numbered()), np.ndarray)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"age": [1.0]}, "must have the column 'visits'; it has 'age'"),
        ({"age": [1.0], "visit": [2.0]}, "did you mean 'visit'"),
        ({"age": [1.0], "visits": [2.0, 3.0]}, "columns of one length"),
        ({"age": [1.0], "visits": [[2.0]]}, "columns of one length"),
        ({"age": [1.0], "visits": ["x"]}, "column 'visits' must be real numbers"),
        ({"age": [True], "visits": [2.0]}, r"column 'age' must be real.*\.astype\(float\)"),
    ],
)
def test_a_table_that_does_not_fit_is_explained(table, message):
    with pytest.raises(ValueError, match=message):
        BOX.clip(table)
    with pytest.raises(ValueError, match=message):
        noise().release_sum(table)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["a"], "2 names, one per coordinate, got 1"),
        (["a", "a"], "got 'a' more than once"),
        ([1, 2], "must be texts"),
        ("ab", "got the text 'ab'"),
    ],
)
def test_names_that_do_not_fit(columns, message):
    with pytest.raises(ValueError, match=message):
        L1Ball(2, 1.0).named(columns)


def test_dummies_are_refused_as_booleans_with_the_way_out():
    dummies = {"north": np.array([True, False]), "south": np.array([False, True])}
    with pytest.raises(ValueError, match=r"\.astype\(float\)"):
        Histogram(["north", "south"]).clip(dummies)


def test_repeated_columns_of_a_frame_are_refused():
    frame = Frame(age=np.ones(2), visits=np.ones(2))
    frame.columns = ["age", "visits", "age"]
    with pytest.raises(ValueError, match="'age' more than once"):
        BOX.clip(frame)


def test_nan_in_a_named_table_is_a_zero_row():
    assert BOX.clip({"age": [math.nan], "visits": [1.0]}).tolist() == [[0, 0]]
