"""Rows are brought into their set without losing more than needed, whatever they hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from taut.noise import clipping
from taut.noise._sets.projections import (
    as_table,
    clip_l2,
    clip_l2_then_linf,
    clip_lp,
    project_l1,
    project_l2_box,
    row_norms,
)

entries = st.floats(-1e6, 1e6, allow_subnormal=False)
rows = st.lists(entries, min_size=4, max_size=4).map(lambda row: np.array([row]))
radii = st.floats(1e-3, 1e3)


class TestNorms:
    @pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, math.inf])
    @pytest.mark.parametrize("size", [1e-310, 1e-200, 1.0, 1e200, 1e307])
    def test_neither_overflow_nor_vanish(self, p, size):
        (norm,) = row_norms(np.array([[1.0, -1.0]]) * size, p)
        assert norm == pytest.approx(size * (1.0 if p == math.inf else 2 ** (1 / p)), rel=1e-9)

    def test_zero_row(self):
        assert row_norms(np.zeros((1, 3)), 2.0) == [0.0]


class TestTables:
    def test_broken_rows_become_zero(self):
        table = as_table([[1.0, math.nan], [math.inf, 0.0], [1.0, 2.0]], 2)
        assert table.tolist() == [[0, 0], [0, 0], [1, 2]]

    def test_broken_rows_raise_on_request(self):
        with pytest.raises(ValueError, match="got 1 with NaN or infinity"):
            as_table([[math.nan]], 1, "raise")

    def test_unknown_policy(self):
        with pytest.raises(ValueError, match="'zero' or 'raise', got non_finite='keep'"):
            as_table([[1.0]], 1, "keep")

    @pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 2, 2)])
    def test_other_shapes(self, shape):
        with pytest.raises(ValueError, match="rows must have 2 columns"):
            as_table(np.ones(shape), 2)


class TestProjections:
    @given(rows, radii, radii)
    def test_box_in_ball_satisfies_the_optimality_conditions(self, row, radius, bound):
        found = project_l2_box(row, bound, radius)
        assert row_norms(found, 2.0)[0] <= radius * (1 + 1e-9)
        assert np.abs(found).max() <= bound
        # Entries below their bound are scaled by one factor, those at it by no more than that.
        moved = np.abs(row) > 0
        factors = np.abs(found[moved] / row[moved])
        free = np.abs(found[moved]) < bound * (1 - 1e-12)
        if free.any():
            assert np.ptp(factors[free]) <= 1e-9
            assert (factors <= factors[free].max() * (1 + 1e-9)).all()
            if row_norms(found, 2.0)[0] < radius * (1 - 1e-9):
                assert factors[free].min() >= 1 - 1e-12

    @pytest.mark.parametrize("seed", range(5))
    def test_agrees_with_a_general_solver(self, seed):
        rng = np.random.default_rng(seed)
        v, bounds = rng.normal(size=4) * 3, rng.uniform(0.2, 2, size=4)
        radius = 0.7 * float(np.linalg.norm(np.minimum(np.abs(v), bounds)))
        general = minimize(
            lambda s: ((s - v) ** 2).sum(),
            np.zeros(4),
            bounds=list(zip(-bounds, bounds, strict=True)),
            constraints={"type": "ineq", "fun": lambda s: radius**2 - s @ s},
            options={"ftol": 1e-14},
        )
        assert project_l2_box(v[None], bounds, radius)[0] == pytest.approx(general.x, abs=1e-5)

    @given(rows, radii)
    def test_l1_ball_is_reached_by_equal_steps(self, row, radius):
        found = project_l1(row, radius)
        if row_norms(row, 1.0)[0] <= radius:
            assert (found == row).all()
            return
        assert row_norms(found, 1.0)[0] == pytest.approx(radius, rel=1e-6, abs=1e-8)
        steps = (np.abs(row) - np.abs(found))[found != 0]
        assert np.ptp(steps) <= 1e-9 * np.abs(row).max()
        assert (np.abs(row)[found == 0] <= steps.max() * (1 + 1e-9)).all()

    @given(rows, radii, radii)
    def test_projection_keeps_more_than_the_papers_order(self, row, radius, bound):
        projected, sequential = (
            project_l2_box(row, bound, radius),
            clip_l2_then_linf(row, radius, bound),
        )
        assert np.abs(sequential).max() <= bound
        assert row_norms(sequential, 2.0)[0] <= radius * (1 + 1e-12)
        slack = 1e-9 * float(np.abs(row).max())
        assert np.linalg.norm(row - projected) <= np.linalg.norm(row - sequential) + slack

    def test_infinite_bounds_are_no_bounds(self):
        row = np.array([[3.0, 4.0]])
        assert project_l2_box(row, math.inf, 1.0) == pytest.approx(clip_l2(row, 1.0))

    def test_zero_bounds_cut_to_zero(self):
        found = project_l2_box(np.array([[3.0, 4.0, 1.0]]), [0.0, 1.0, 5.0], 1.2)
        assert found[0, 0] == 0
        assert row_norms(found, 2.0)[0] == pytest.approx(1.2)


@pytest.mark.parametrize("p", [0.0, -1.0, math.nan])
def test_bad_exponent(p):
    with pytest.raises(ValueError, match="p must be greater than 0"):
        clip_lp(np.ones((1, 2)), p, 1.0)


def test_exponents_in_few_bits_are_taken_without_a_warning():
    assert clip_lp(np.ones((1, 2)), np.float32(0.5), 1.0) == pytest.approx(np.full((1, 2), 0.25))


class TestPublicClips:
    ROWS = np.array([[3.0, -4.0, 0.1], [0.1, 0.2, 0.0], [math.nan, 1.0, 1.0]])

    def test_shapes_and_flaws(self):
        for clip in (
            lambda rows, **options: clipping.clip_lp(rows, 3.0, 1.0, **options),
            lambda rows, **options: clipping.clip_l2(rows, 1.0, **options),
            lambda rows, **options: clipping.clip_linf(rows, 0.5, **options),
            lambda rows, **options: clipping.clip_l2_then_linf(rows, 1.0, 0.5, **options),
            lambda rows, **options: clipping.project_l2_linf(rows, 1.0, 0.5, **options),
        ):
            table = clip(self.ROWS)
            assert table.shape == (3, 3)
            assert (table[2] == 0).all()
            assert table[1] == pytest.approx(self.ROWS[1])
            assert clip(self.ROWS[0]) == pytest.approx(table[0])
            with pytest.raises(ValueError, match="rows must be finite"):
                clip(self.ROWS, non_finite="raise")
            with pytest.raises(ValueError, match="vector or a table"):
                clip(np.zeros((1, 1, 1)))

    def test_bounds(self):
        rows = np.random.default_rng(0).normal(size=(50, 6)) * 3
        for found in (
            clipping.clip_l2_then_linf(rows, 1.2, 0.6),
            clipping.project_l2_linf(rows, 1.2, 0.6),
        ):
            assert (np.linalg.norm(found, axis=1) <= 1.2 * (1 + 1e-12)).all()
            assert (np.abs(found) <= 0.6 * (1 + 1e-12)).all()

    def test_bad_bounds(self):
        with pytest.raises(ValueError, match="radius must"):
            clipping.clip_l2([1.0], 0.0)
        with pytest.raises(ValueError, match="bound must"):
            clipping.clip_linf([1.0], -1.0)
        with pytest.raises(ValueError, match="bound must"):
            clipping.project_l2_linf([1.0], 1.0, math.nan)
        with pytest.raises(ValueError, match="p must"):
            clipping.clip_lp([1.0], 0.0, 1.0)


def test_projection_keeps_an_entry_that_fills_the_ball():
    """A tiny entry beside one at both bounds must not take everything with it."""
    row = np.array([[0.0, 1.0, 1e-9]])
    np.testing.assert_allclose(
        project_l2_box(row, 0.03125, 0.03125), [[0.0, 0.03125, 3.125e-11]], rtol=1e-9
    )


def test_norms_of_rows_of_any_size():
    found = clipping.row_norms([[3e200, 4e200], [3e-200, -4e-200], [0.0, 0.0]], 2.0)
    assert found == pytest.approx([5e200, 5e-200, 0.0], rel=1e-15)
    assert clipping.row_norms([1.0, -2.0], math.inf) == pytest.approx([2.0])


@pytest.mark.parametrize("p", [0.0, -1.0, math.nan])
def test_norms_need_an_exponent(p):
    with pytest.raises(ValueError, match="p must be finite and greater than 0"):
        clipping.row_norms([1.0], p)
