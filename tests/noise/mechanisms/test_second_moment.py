"""Second moments in groups of columns: exact sums, and no record longer than the noise allows."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.audit import replay
from taut.errors import InfeasibleBudget
from taut.noise import GaussianMoments, SeededForExperiments, gaussian_moments
from taut.noise._exact import moment_sums

SIZES, CLIPS = (3, 1), (2.0, 5.0)
MOMENTS = {
    adjacency: gaussian_moments(
        SIZES,
        CLIPS,
        epsilon=1.0,
        delta=1e-6,
        shares=[[3.0, 2.0], [2.0, 1.0]],
        adjacency=adjacency,
    )
    for adjacency in ("add_remove", "replace")
}
ROWS = np.random.default_rng(0).standard_normal((40, 4)) * 3


def member(seed):
    """Return a row whose groups have their full length."""
    random = np.random.default_rng(seed)
    x = random.standard_normal(3)
    return np.append(2.0 * x / np.linalg.norm(x), random.choice([-5.0, 5.0]))


def whitened(change, moments):
    """Return the length of a symmetric change in units of the noise of its entries."""
    upper = np.triu_indices(len(change))
    return float(np.linalg.norm(change[upper] / moments.entry_scales[upper]))


class TestLoss:
    @given(st.integers(0, 2**32))
    def test_every_record_of_full_length_is_hidden_alike(self, seed):
        moments, x = MOMENTS["add_remove"], member(seed)
        assert whitened(np.outer(x, x), moments) == pytest.approx(moments.mu, rel=1e-9)
        assert whitened(np.outer(x, x), moments) <= moments.mu

    @given(st.integers(0, 2**32), st.integers(0, 2**32))
    def test_replaced_records_are_hidden(self, one, other):
        moments, x, y = MOMENTS["replace"], member(one), member(other)
        assert whitened(np.outer(x, x) - np.outer(y, y), moments) <= moments.mu

    def test_orthogonal_records_need_all_of_the_noise(self):
        moments = MOMENTS["replace"]
        x, y = np.array([2.0, 0, 0, 5]), np.array([0, 2.0, 0, 5])
        assert whitened(np.outer(x, x) - np.outer(y, y), moments) < moments.mu
        groups = gaussian_moments(
            (3, 2),
            CLIPS,
            epsilon=1.0,
            delta=1e-6,
            shares=[[3.0, 2.0], [2.0, 1.0]],
            adjacency="replace",
        )
        x, y = np.array([2.0, 0, 0, 5, 0]), np.array([0, 2.0, 0, 0, 5])
        assert whitened(np.outer(x, x) - np.outer(y, y), groups) == pytest.approx(groups.mu)

    @settings(max_examples=10)
    @given(st.integers(0, 2**32))
    def test_products_of_groups_alone_move_twice_as_far(self, seed):
        random = np.random.default_rng(seed)
        shares = (
            random.uniform(size=(3, 3)) ** 4 * (1 - np.eye(3)) + np.diag(random.uniform(size=3)) / 9
        )
        moments = gaussian_moments(
            (1, 1, 1),
            (1.0, 2.0, 3.0),
            epsilon=1.0,
            delta=1e-6,
            shares=np.triu(shares) + np.triu(shares, 1).T,
            adjacency="replace",
        )
        cube = np.array(list(itertools.product([-1.0, 0, 1], repeat=3))) * moments.clips
        moved = [whitened(np.outer(x, x) - np.outer(y, y), moments) for x in cube for y in cube]
        assert max(moved) <= moments.mu
        assert moments.loss.epsilon(delta=1e-6) <= 1.0

    @pytest.mark.parametrize("adjacency", MOMENTS)
    def test_keeps_the_promise(self, adjacency):
        loss = MOMENTS[adjacency].loss
        assert str(loss.adjacency) == adjacency
        assert loss.epsilon(delta=1e-6) <= 1.0
        assert loss.epsilon(delta=1e-6) == pytest.approx(1.0, rel=1e-6)

    def test_shares_add_up(self):
        moments = MOMENTS["add_remove"]
        whole = [(4.0 / moments.scales[0][0]) ** 2, (10.0 / moments.scales[0][1]) ** 2]
        whole.append((25.0 / moments.scales[1][1]) ** 2)
        assert np.array(whole) / sum(whole) == pytest.approx([0.5, 1 / 3, 1 / 6])


class TestRelease:
    def test_is_the_clipped_sum_with_noise_of_the_stated_scales(self):
        rows = np.array([[6.0, 0, 8, 7], [1, 1, 0, -2], [math.nan, 1, 1, 1], [1, 1, 1, math.inf]])
        clipped = np.array([[1.2, 0, 1.6, 5], [1, 1, 0, -2]])
        moments, source = MOMENTS["add_remove"], SeededForExperiments(0)
        draws = np.array([moments.release(rows, source) for _ in range(1000)])
        assert np.array_equal(draws, draws.transpose(0, 2, 1))
        errors = (draws.mean(axis=0) - clipped.T @ clipped) / moments.entry_scales
        assert np.abs(errors).max() * math.sqrt(1000) < 4.5
        assert draws.std(axis=0) == pytest.approx(moments.entry_scales, rel=0.1)

    def test_sums_are_those_of_integers(self):
        rows = np.random.default_rng(1).standard_normal((9000, 4)) * [1, 1e-9, 1e9, 1e-300]
        found = MOMENTS["add_remove"]._sums([rows]).integers()
        order = np.random.default_rng(2).permutation(len(rows))
        whole = MOMENTS["add_remove"]._sums([rows[order]])
        assert whole.integers() == found
        parts = [MOMENTS["add_remove"]._sums([part]) for part in (rows[:1], rows[1:])]
        together = [Fraction(0)] * len(found)
        for part in parts:
            together = [t + part.fraction(i) for i, t in enumerate(together)]
        assert together == [whole.fraction(i) for i in range(len(found))]
        blocks = MOMENTS["add_remove"]._sums([rows[:1], rows[1:17], rows[17:]])
        assert blocks.integers() == found

    def test_sums_are_the_same_where_threads_of_products_cannot_be_limited(self, monkeypatch):
        rows = np.random.default_rng(1).standard_normal((9000, 4))
        found = MOMENTS["add_remove"]._sums([rows]).integers()
        monkeypatch.setattr(moment_sums, "threadpool_limits", None)
        assert MOMENTS["add_remove"]._sums([rows]).integers() == found

    def test_blocks_may_be_one_table_that_is_filled_again(self):
        rows = np.random.default_rng(5).uniform(-1, 1, (200_000, 4))
        table = np.empty((2500, 4))

        def filled():
            for start in range(0, len(rows), len(table)):
                table[:] = rows[start : start + len(table)]
                yield table

        moments = MOMENTS["add_remove"]
        found = moments.release_blocks(filled(), SeededForExperiments(1))
        assert np.array_equal(found, moments.release(rows, SeededForExperiments(1)))

    @pytest.mark.parametrize("entry", [math.nan, math.inf, 1e308, -1e308, 5e-324])
    def test_no_entry_stops_it(self, entry):
        released = MOMENTS["add_remove"].release([[entry, 1.0, 0.0, entry]])
        assert np.isfinite(released).all()

    def test_no_rows_are_noise_alone(self):
        assert MOMENTS["add_remove"].release(np.zeros((0, 4))).any()

    def test_pairs_without_a_share_are_zero(self):
        moments = gaussian_moments(
            SIZES, CLIPS, epsilon=1.0, delta=1e-6, shares=[[1.0, 1.0], [1.0, 0.0]]
        )
        released = moments.release(ROWS)
        assert released[3, 3] == 0
        assert (released[:3] != 0).all()

    def test_noise_is_fresh(self):
        first, second = (MOMENTS["add_remove"].release(ROWS) for _ in range(2))
        assert (first != second).any()


class TestReplay:
    @pytest.mark.parametrize("row", range(5))
    def test_neighbours_differ_by_no_more_than_declared(self, row):
        found = replay(MOMENTS["add_remove"].release, ROWS, np.delete(ROWS, row, axis=0))
        assert found.passed

    def test_clip_that_was_forgotten_is_found(self, monkeypatch):
        monkeypatch.setattr(moment_sums, "_factors", lambda columns, _: np.ones(columns.shape[1]))
        rows = np.vstack([[3.9, 3.9, 3.9, 7.9], np.full((3, 4), 0.5)])
        assert not replay(MOMENTS["add_remove"].release, rows, rows[1:]).passed


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"sizes": ()}, "as many"),
            ({"sizes": (3,)}, "as many"),
            ({"sizes": (3, 4096)}, "at most 4096"),
            ({"sizes": (3, 0)}, "size"),
            ({"clips": (1.0, math.nan)}, "clip"),
            ({"clips": (1.0, 1e40)}, "between"),
            ({"scales": ((1.0,),)}, "symmetric"),
            ({"scales": ((1.0, 2.0), (3.0, 1.0))}, "symmetric"),
            ({"scales": ((1.0, math.inf), (math.inf, 1.0))}, "finite"),
            ({"scales": ((0.0, 0.0), (0.0, 0.0))}, "not all 0"),
            ({"scales": ((1e-320, 0.0), (0.0, 1.0))}, "orders of magnitude"),
        ],
    )
    def test_of_mechanisms(self, settings, words):
        given = {"sizes": SIZES, "clips": CLIPS, "scales": ((1.0, 1.0), (1.0, 1.0)), **settings}
        with pytest.raises(ValueError, match=words):
            GaussianMoments(**given)

    @pytest.mark.parametrize(
        ("shares", "words"), [([[1.0]], "symmetric"), ([[0.0, 0.0], [0.0, -1.0]], "not all 0")]
    )
    def test_of_shares(self, shares, words):
        with pytest.raises(ValueError, match=words):
            gaussian_moments(SIZES, CLIPS, epsilon=1.0, delta=1e-6, shares=shares)

    def test_of_promises_beyond_floats(self):
        with pytest.raises(InfeasibleBudget):
            gaussian_moments(SIZES, CLIPS, epsilon=0.0, delta=1e-300)

    @pytest.mark.parametrize("rows", [np.zeros((2, 3)), np.zeros(4)])
    def test_of_shapes(self, rows):
        with pytest.raises(ValueError, match="4 columns"):
            MOMENTS["add_remove"].release(rows)
