"""Points of a grid: one record is one point, whatever the others are."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.statistics._mechanisms.fine_points import fine_grid

ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(values=st.lists(ANY | st.integers(0, 3).map(float), max_size=30), more=ANY)
def test_a_record_more_is_a_point_more(values, more):
    grid = fine_grid(0, 8, step=0.5)
    before = Counter(grid.points(np.array(values, dtype=float)).tolist())
    after = Counter(grid.points(np.array([*values, more], dtype=float)).tolist())
    assert (after - before).total() == 1
    assert not before - after


@given(st.lists(ANY, max_size=20), st.randoms())
def test_order_does_not_matter(values, random):
    grid = fine_grid(-1, 1)
    mixed = list(values)
    random.shuffle(mixed)
    assert np.array_equal(grid.points(np.array(values)), grid.points(np.array(mixed)))


def test_equal_records_are_spread_evenly():
    grid = fine_grid(0, 4, step=1)
    points = grid.points(np.full(1023, 2.0))
    assert np.array_equal(np.diff(points), np.full(1022, 1 << 10))
    assert {grid.value(int(point)) for point in points} == {2.0}


def test_points_are_sorted_by_value_and_within_the_grid():
    grid = fine_grid(0, 10)
    values = np.random.default_rng(0).normal(5, 4, 1000)
    points = grid.points(values)
    assert (np.diff(points) >= 0).all()
    assert 0 <= points.min() <= points.max() < grid.places
    rounded = [grid.value(int(point)) for point in points]
    assert np.allclose(rounded, np.sort(np.clip(values, 0, 10)), atol=grid.step)


def test_broken_values_have_places_of_their_own():
    grid = fine_grid(0, 8, step=1)
    values = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308])
    assert [grid.value(int(point)) for point in grid.points(values)] == [0.0, 0.0, 4.0, 8.0, 8.0]


def test_no_records_are_no_points():
    assert fine_grid(0, 1).points(np.empty(0)).size == 0


@pytest.mark.parametrize(
    ("lower", "upper"), [(0, 1), (18, 90), (-1e9, 1e9), (1e9, 1e9 + 1), (-3e-9, 1e-8), (0, 1e150)]
)
def test_default_grid_lies_within_the_bounds(lower, upper):
    grid = fine_grid(lower, upper)
    first, last = grid.value(0), grid.value(grid.places - 1)
    assert lower <= first < last <= upper
    assert grid.cells <= 2**33
    assert last - first >= (upper - lower) * (1 - 1e-5)


def test_whole_numbers_are_on_the_default_grid():
    assert fine_grid(0, 1_000_000).step < 1


@pytest.mark.parametrize(
    ("step", "match"),
    [(0.3, "power of two"), (0.0, "greater than 0"), (64.0, "two values"), (2.0**-40, "fewer")],
)
def test_steps_that_do_not_fit_are_refused(step, match):
    with pytest.raises(ValueError, match=match):
        fine_grid(1, 50, step)
