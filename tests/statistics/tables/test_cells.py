"""Cells: where each record is counted, and where it is not."""

import math
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taut.statistics import Categories, Intervals
from taut.statistics._tables.batch import Batch


def places(cells, values):
    column = values if isinstance(values, np.ndarray) else np.array(values)
    return cells.places(Batch.of_arrays({cells.name: column}, len(column))).tolist()


def test_labels_are_matched_and_all_others_are_elsewhere():
    cells = Categories("region", ["north", "south"])
    assert places(cells, ["south", "west", "north", "", "North"]) == [1, 2, 0, 2, 2]


def test_objects_are_matched_one_by_one():
    column = np.array(["south", None, 3, math.nan, ["north"], "north"], dtype=object)
    assert places(Categories("r", ["north", "south"]), column) == [1, 2, 2, 2, 2, 0]


def test_numbers_match_whole_labels_only():
    assert places(Categories("x", [3, -1]), [3.0, -1.0, 3.5, math.nan, math.inf]) == [0, 1, 2, 2, 2]
    assert places(Categories("x", [True, False]), np.array([False, True])) == [1, 0]


def test_masked_entries_are_in_no_cell():
    column = np.ma.array(["a", "b"], mask=[False, True])
    assert places(Categories("x", ["a", "b"]), column) == [0, 2]


def test_intervals_contain_their_lower_ends_and_the_last_both():
    cells = Intervals("x", [0, 1, 2])
    assert places(cells, [-0.1, 0.0, 0.5, 1.0, 2.0, 2.1, math.nan]) == [2, 0, 0, 1, 1, 2, 2]


def test_infinite_edges_leave_out_missing_values_alone():
    cells = Intervals("x", [-math.inf, 0, math.inf])
    assert places(cells, [-math.inf, -1, 0, math.inf, math.nan]) == [0, 0, 1, 1, 2]


def test_cells_are_shown_with_their_ends():
    assert Intervals("x", [0, 0.5, 1], other=True).labels_shown == ("[0, 0.5)", "[0.5, 1]", "other")
    assert Intervals.even("x", 0, 10, 5).edges == (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    assert (Categories("x", [1], other=True).size, Categories("x", [1]).size) == (2, 1)


edges = st.lists(st.floats(allow_nan=False), min_size=2, unique=True).filter(
    lambda found: any(map(math.isfinite, found)) and max(found) != sys.float_info.max
)


@example([sys.float_info.max, math.inf], [0.0])
@given(edges, st.lists(st.floats(), min_size=1))
def test_intervals_are_those_of_bisection(ends, values):
    ordered = np.sort(ends)
    with np.errstate(over="ignore"):  # above the largest double
        above = np.nextafter(ordered, np.inf)
    near = np.concatenate([values, ordered, above])
    last = ordered[-1]
    expected = [
        len(ordered) - 1
        if math.isnan(v) or v < ordered[0] or v > last
        else min(int(np.searchsorted(ordered, v, side="right")) - 1, len(ordered) - 2)
        for v in near
    ]
    cells = Intervals("x", ordered)
    assert places(cells, near) == expected
    counted = cells.histogram(Batch.of_arrays({"x": near}, near.size))
    assert counted.tolist() == np.bincount(expected, minlength=cells.inner + 1).tolist()


def test_histograms_of_even_edges_count_every_value_at_its_place():
    cells = Intervals.even("x", -1, 1, 37)
    ends = np.array(cells.edges)
    many = np.random.default_rng(0).normal(size=5000)
    near = np.concatenate(
        [many, ends, np.nextafter(ends, -np.inf), np.nextafter(ends, np.inf), [np.nan, np.inf]]
    )
    counted = cells.histogram(Batch.of_arrays({"x": near}, near.size))
    assert counted.tolist() == np.bincount(places(cells, near), minlength=38).tolist()


def test_an_edge_with_no_double_above_it_is_refused():
    with pytest.raises(ValueError, match="below the largest double, or inf"):
        Intervals("x", [0, sys.float_info.max])


def test_crowded_edges_are_bisected():
    ends = [*np.linspace(0, 1e-9, 20), 1.0]
    assert places(Intervals("x", ends), [0.0, 5e-10, 0.5, math.nan]) == [0, 9, 19, 20]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("north", "must be a list, got the text 'north'"),
        ([], "all texts, all whole numbers"),
        (["a", 1], "all texts, all whole numbers"),
        ([0.5], "take Intervals"),
        (["a", "a"], "got 'a' twice"),
        ([1 << 53], "below 2.53"),
    ],
)
def test_bad_labels_are_refused(labels, words):
    with pytest.raises(ValueError, match=words):
        Categories("region", labels)


@pytest.mark.parametrize("labels", [10, None])
def test_a_number_of_cells_is_no_list_of_labels(labels):
    with pytest.raises(TypeError, match=r"must be a list, got .*take Intervals"):
        Categories("region", labels)


@pytest.mark.parametrize("ends", [[1], [1, 0], [0, 0], [0, math.nan], [-math.inf, math.inf]])
def test_bad_edges_are_refused(ends):
    with pytest.raises(ValueError, match="edges of column 'x'"):
        Intervals("x", ends)
