"""Sums of products of two rows: exact, and no record longer than the noise allows."""

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

import taut
from taut.audit import replay
from taut.noise import FixedRows, GaussianProducts, SeededForExperiments
from taut.noise._exact_sums import coarse, outer_products

RANDOM = np.random.default_rng(0)
LEFT, RIGHT = RANDOM.standard_normal((50, 2)), RANDOM.standard_normal((50, 3)) * 4
PRODUCTS = GaussianProducts(left_clip=1.5, right_clip=5.0, scale=10.0)


@pytest.mark.parametrize(("adjacency", "reach"), [("add_remove", 1), ("replace", 2)])
def test_loss_is_that_of_the_longest_record(adjacency, reach):
    products = GaussianProducts(1.5, 5.0, 10.0, adjacency)
    assert products.mu == pytest.approx(reach * 0.75)
    assert products.mu >= reach * 0.75
    exact = taut.gaussian(10 / (7.5 * reach)).epsilon(delta=1e-6)
    assert products.loss.epsilon(delta=1e-6) >= exact


def test_release_is_the_clipped_sum_with_noise_of_the_stated_scale():
    short = LEFT * np.minimum(1, 1.5 / np.linalg.norm(LEFT, axis=1))[:, None]
    other = RIGHT * np.minimum(1, 5 / np.linalg.norm(RIGHT, axis=1))[:, None]
    right, source = FixedRows(RIGHT, 5.0), SeededForExperiments(0)
    draws = np.array([PRODUCTS.release(LEFT, right, source) for _ in range(200)])
    errors = draws - short.T @ other
    assert np.abs(errors.mean(axis=0)).max() < 4.5 * 10 / math.sqrt(200)
    assert errors.std(axis=0) == pytest.approx(np.full((2, 3), 10.0), rel=0.25)


def test_sums_are_those_of_integers_in_any_order():
    left, right = (coarse(RANDOM.uniform(-1, 1, (9000, width))) for width in (2, 3))
    order = RANDOM.permutation(9000)
    whole, mixed = outer_products(left, right), outer_products(left[order], right[order])
    assert np.array_equal(whole.doubles(), mixed.doubles())
    few = outer_products(left[:40], right[:40])
    pairs = zip(left[:40, 1].tolist(), right[:40, 2].tolist(), strict=True)
    exact = sum(Fraction(a) * Fraction(b) for a, b in pairs)
    assert Fraction(float(few.doubles()[1, 2])) == exact


def test_cutting_makes_no_entry_longer_and_loses_little():
    rows = RANDOM.uniform(-1, 1, (100, 3))
    cut = coarse(rows)
    assert (np.abs(cut) <= np.abs(rows)).all()
    assert np.abs(cut - rows).max() < 2**-20


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf, 1e308, 5e-324])
def test_no_entry_stops_it(entry):
    right = FixedRows([[entry, 1.0], [1.0, 1.0]], 2.0)
    assert np.isfinite(GaussianProducts(1.0, 2.0, 1.0).release([[1.0], [entry]], right)).all()


@pytest.mark.parametrize("row", [0, 49])
def test_replay_finds_nothing(row):
    def release(tables):
        return PRODUCTS.release(tables[0], FixedRows(tables[1], 5.0))

    less = np.delete(LEFT, row, axis=0), np.delete(RIGHT, row, axis=0)
    found = replay(release, (LEFT, RIGHT), less, claim=PRODUCTS.loss)
    assert found.passed, str(found)
    assert found.exercised


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["left_clip", "right_clip", "scale"])
def test_bad_parameters_are_refused(name, bad):
    with pytest.raises(ValueError, match=name):
        GaussianProducts(**{"left_clip": 1.0, "right_clip": 1.0, "scale": 1.0, name: bad})


def test_scale_beyond_floats_is_refused():
    with pytest.raises(ValueError, match="orders of magnitude"):
        GaussianProducts(1.0, 1.0, 1e200)


def test_right_rows_must_be_those_that_were_clipped():
    for right in (RIGHT, 10**30):
        with pytest.raises(TypeError, match="right must be of class FixedRows"):
            PRODUCTS.release(LEFT, right)


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="50 rows with clip"):
        PRODUCTS.release(LEFT, FixedRows(RIGHT, 4.0))
    with pytest.raises(ValueError, match="50 rows"):
        PRODUCTS.release(LEFT, FixedRows(RIGHT[1:], 5.0))
    with pytest.raises(ValueError, match="table"):
        FixedRows([1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="clip"):
        FixedRows([[1.0]], 1e200)


def test_rows_do_not_depend_on_how_many_are_clipped_together():
    rows = RANDOM.standard_normal((3000, 200)) * 4
    rows[[0, 1500, 2999], 7] = np.nan
    whole = FixedRows(rows, 5.0).entries
    parts = [FixedRows(rows[start : start + 7], 5.0).entries for start in (0, 1305, 1500, 2993)]
    for start, part in zip((0, 1305, 1500, 2993), parts, strict=True):
        assert np.array_equal(whole[start : start + 7], part)


def test_clipping_takes_little_memory():
    rows = RANDOM.standard_normal((40_000, 50))
    tracemalloc.start()
    FixedRows(rows, 5.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * rows.nbytes
