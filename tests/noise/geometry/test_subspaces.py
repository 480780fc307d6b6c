"""Subspaces of public vectors: orthonormal, the right ones, and only public."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import UnsoundConfiguration
from taut.noise import optimal_gaussian
from taut.noise.geometry import Provenance, public_subspaces


def vectors(count, dimension, values, seed=0, dtype=np.float64):
    """Return rows with the given singular values."""
    random = np.random.default_rng(seed)
    left = np.linalg.qr(random.standard_normal((count, len(values))))[0]
    right = np.linalg.qr(random.standard_normal((dimension, len(values))))[0]
    return (left * values @ right.T).astype(dtype)


def defect(basis):
    return np.abs(basis.T @ basis - np.eye(basis.shape[1])).max()


STEPS = np.repeat([8.0, 3.0, 1.0, 0.1], [3, 4, 5, 18])


class TestTheRightOnes:
    def test_singular_values_and_blocks_are_those_of_numpy(self):
        rows = vectors(60, 40, STEPS)
        spaces = public_subspaces(rows, [3, 4, 5], provenance="public")
        _, sizes, directions = np.linalg.svd(rows, full_matrices=False)
        assert spaces.singular_values == pytest.approx(sizes[:12], rel=1e-9)
        for start, end in ((0, 3), (3, 7), (7, 12)):
            overlap = directions[start:end] @ spaces.basis[:, start:end]
            assert np.linalg.svd(overlap, compute_uv=False) == pytest.approx(1.0, abs=1e-8)

    def test_distinct_values_give_singular_vectors(self):
        rows = vectors(30, 50, 2.0 ** -np.arange(10))
        spaces = public_subspaces(rows, [4], provenance="public", iterations=20)
        _, _, directions = np.linalg.svd(rows, full_matrices=False)
        overlap = np.abs(np.sum(directions[:4].T * spaces.basis, axis=0))
        assert overlap == pytest.approx(1.0, abs=1e-9)

    def test_complement_is_last(self):
        spaces = public_subspaces(vectors(20, 15, STEPS[:12]), [3, 4], provenance="public")
        assert spaces.ranks == (3, 4, 8)
        assert (spaces.dimension, spaces.basis.shape) == (15, (15, 7))
        assert spaces.provenance is Provenance.PUBLIC

    def test_no_complement_where_nothing_is_left(self):
        rows = vectors(20, 6, np.arange(6, 0, -1.0))
        assert public_subspaces(rows, [2, 4], provenance="public").ranks == (2, 4)

    def test_same_seed_same_basis(self):
        rows = vectors(20, 15, STEPS[:12])
        one, other = (
            public_subspaces(rows, [3], provenance="public", rotate=True, seed=5) for _ in range(2)
        )
        assert np.array_equal(one.basis, other.basis)


class TestOrthonormal:
    @settings(max_examples=30, deadline=None)
    @given(
        count=st.integers(8, 40),
        dimension=st.integers(8, 60),
        ranks=st.lists(st.integers(1, 4), min_size=1, max_size=2),
        spread=st.floats(0.0, 8.0),
        seed=st.integers(0, 2**32),
        rotate=st.booleans(),
    )
    def test_to_float64_however_the_spectrum_falls(
        self, count, dimension, ranks, spread, seed, rotate
    ):
        rows = vectors(count, dimension, 10.0 ** -np.linspace(0, spread, 8), seed)
        spaces = public_subspaces(rows, ranks, provenance="public", seed=seed, rotate=rotate)
        assert defect(spaces.basis) < 1e-14
        assert sum(spaces.ranks) == dimension

    def test_from_float32(self):
        rows = vectors(50, 9_000, STEPS, dtype=np.float32)
        spaces = public_subspaces(rows, [3, 4], provenance="public")
        assert spaces.basis.dtype == np.float64
        assert defect(spaces.basis) < 1e-14
        exact = np.linalg.svd(rows.astype(np.float64), compute_uv=False)[:7]
        assert spaces.singular_values == pytest.approx(exact, rel=1e-9)

    @pytest.mark.slow
    def test_many_coordinates(self):
        random = np.random.default_rng(0)
        scores = random.standard_normal((200, 60)) * np.repeat([10.0, 3.0, 1.0], 20)
        rows = scores.astype(np.float32) @ random.standard_normal((60, 300_000), dtype=np.float32)
        spaces = public_subspaces(rows, [20, 20], provenance="public")
        assert defect(spaces.basis) < 1e-14


class TestRotation:
    def test_keeps_every_subspace(self):
        rows = vectors(60, 40, STEPS)
        plain = public_subspaces(rows, [3, 4], provenance="public")
        turned = plain.rotated(seed=1)
        for part in (slice(0, 3), slice(3, 7)):
            projections = [s.basis[:, part] @ s.basis[:, part].T for s in (plain, turned)]
            assert projections[0] == pytest.approx(projections[1], abs=1e-13)
        assert not np.allclose(plain.basis, turned.basis)

    def test_spreads_vectors_over_entries(self):
        random = np.random.default_rng(3)
        rows = random.standard_normal((300, 80)) / np.arange(1, 81) ** 1.5
        plain = public_subspaces(rows, [40], provenance="public")
        largest = [np.median(np.abs(rows @ s.basis).max(axis=1)) for s in (plain, plain.rotated())]
        assert largest[1] < 0.6 * largest[0]


class TestBlocks:
    def test_least_noise_is_the_closed_form(self):
        spaces = public_subspaces(vectors(60, 40, STEPS), [3, 4], provenance="public")
        noise = optimal_gaussian(spaces.blocks([2.0, 1.0, 0.5]), multiplier=1.0)
        width = 2 * math.sqrt(3) + 1 * math.sqrt(4) + 0.5 * math.sqrt(33)
        assert noise.total_variance == pytest.approx(width**2, rel=1e-9)

    def test_bounds_on_entries_and_a_cap(self):
        spaces = public_subspaces(vectors(60, 40, STEPS), [4, 4], provenance="public", rotate=True)
        blocks = spaces.blocks([2.0, 1.0, 0.5], linf=[0.5, 0.4, math.inf], cap=1.2)
        assert blocks.max_l2 == pytest.approx(1.2)
        assert blocks.contains(blocks.clip(np.arange(40.0)))

    def test_split_is_the_same_basis(self):
        spaces = public_subspaces(vectors(60, 40, STEPS), [12], provenance="public")
        split = spaces.split([3, 4])
        assert split.ranks == (3, 4, 33)
        assert np.array_equal(split.basis, spaces.basis[:, :7])
        assert split.notes == ()
        assert len(spaces.split([2]).notes) == 1


class TestRefusals:
    @pytest.mark.parametrize("ranks", [[21], [10, 11], [5, 5, 5, 6], [30]])
    def test_more_than_the_rank_names_it(self, ranks):
        rows = vectors(40, 60, np.linspace(2, 1, 20))
        with pytest.raises(ValueError, match=r"numerical rank of the vectors, 20, got"):
            public_subspaces(rows, ranks, provenance="public")

    def test_more_than_the_rank_in_float32(self):
        rows = vectors(40, 6_000, np.linspace(2, 1, 20), dtype=np.float32)
        with pytest.raises(ValueError, match=r"numerical rank of the vectors, 20, got 25"):
            public_subspaces(rows, [10, 15], provenance="public")

    def test_as_many_as_the_rank_is_fine(self):
        rows = vectors(40, 60, np.linspace(2, 1, 20))
        assert public_subspaces(rows, [10, 10], provenance="public").ranks == (10, 10, 40)

    def test_more_directions_than_vectors(self):
        rows = np.random.default_rng(0).standard_normal((20, 100))
        with pytest.raises(ValueError, match="numerical rank of the vectors, 20, got 32"):
            public_subspaces(rows, [2, 5, 10, 15], provenance="public")

    def test_zero_vectors_have_no_rank(self):
        with pytest.raises(ValueError, match="numerical rank of the vectors, 0"):
            public_subspaces(np.zeros((5, 5)), [1], provenance="public")

    def test_flat_spectrum_is_noted(self):
        rows = vectors(40, 60, np.linspace(2, 1.9, 20))
        spaces = public_subspaces(rows, [5], provenance="public", iterations=30)
        assert "boundary" in spaces.notes[0]
        steep = public_subspaces(vectors(40, 60, STEPS), [3, 4], provenance="public")
        assert steep.notes == ()

    @pytest.mark.parametrize("provenance", ["private", "", None, "secret"])
    def test_private_vectors(self, provenance):
        with pytest.raises(UnsoundConfiguration, match="private_second_moment"):
            public_subspaces(np.eye(4), [1], provenance=provenance)

    @pytest.mark.parametrize("ranks", [[], [0], [5], [1.5], [True]])
    def test_ranks(self, ranks):
        with pytest.raises(ValueError, match="rank"):
            public_subspaces(np.eye(4), ranks, provenance="public")

    @pytest.mark.parametrize("rows", [np.ones(3), np.ones((0, 3)), np.full((3, 3), np.nan)])
    def test_vectors(self, rows):
        with pytest.raises(ValueError, match="vectors must be"):
            public_subspaces(rows, [1], provenance="public")

    def test_iterations(self):
        with pytest.raises(ValueError, match="iterations"):
            public_subspaces(np.eye(4), [1], provenance="public", iterations=0)
        with pytest.raises(ValueError, match="iterations must be at most 10000"):
            public_subspaces(np.eye(4), [1], provenance="public", iterations=10**9)

    def test_split_beyond_what_is_known(self):
        spaces = public_subspaces(np.eye(6), [2], provenance="released")
        with pytest.raises(ValueError, match="at most 2"):
            spaces.split([3])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gram_finds_the_exact_subspaces(dtype):
    random = np.random.default_rng(11)
    rows = (random.normal(size=(30, 400)) * np.geomspace(1, 1e-3, 400)).astype(dtype)
    spaces = public_subspaces(rows, [2, 5], provenance="public", method="gram")
    _, sizes, right = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
    assert spaces.singular_values == pytest.approx(sizes[:7], rel=1e-8)
    for part in (slice(2), slice(2, 7)):
        overlap = np.linalg.svd(spaces.basis[:, part].T @ right[part].T, compute_uv=False)
        assert overlap == pytest.approx(np.ones(overlap.size), abs=1e-9)
    assert spaces.basis.T @ spaces.basis == pytest.approx(np.eye(7), abs=1e-13)


def test_gram_stays_orthonormal_and_sees_the_rank_where_values_are_small():
    random = np.random.default_rng(12)
    left, right = (np.linalg.qr(random.normal(size=(n, 12))).Q for n in (20, 300))
    rows = (left * np.geomspace(1, 1e-6, 12)) @ right.T
    spaces = public_subspaces(rows, [12], provenance="public", method="gram")
    assert spaces.basis.T @ spaces.basis == pytest.approx(np.eye(12), abs=1e-13)
    with pytest.raises(ValueError, match="numerical rank of the vectors, 12, got 13"):
        public_subspaces(rows, [13], provenance="public", method="gram")
    with pytest.raises(ValueError, match="method must be"):
        public_subspaces(rows, [2], provenance="public", method="svd")


class TestSplitNorm:
    PUBLIC = np.random.default_rng(4).normal(size=(60, 20)) / np.arange(1, 21)

    @pytest.mark.parametrize("ranks", [[3], [2, 5], [4, 16]])
    def test_is_in_proportion_to_mean_lengths(self, ranks):
        spaces = public_subspaces(self.PUBLIC[::2], ranks, provenance="public")
        held = self.PUBLIC[1::2]
        found = spaces.split_norm(2.0, held, least=0.0)
        # By the singular value decomposition, without the code under test.
        axes = np.linalg.svd(spaces.basis)[0] if sum(ranks) < 20 else spaces.basis
        axes = np.concatenate([spaces.basis, axes[:, spaces.basis.shape[1] :]], axis=1)
        parts = np.split(held @ axes, np.cumsum(spaces.ranks)[:-1], axis=1)
        means = np.array([np.linalg.norm(part, axis=1).mean() for part in parts])
        np.testing.assert_allclose(found, 2.0 * means / np.linalg.norm(means), rtol=1e-9)

    def test_fitted_vectors_seem_to_leave_too_little(self):
        spaces = public_subspaces(self.PUBLIC[::2], [10], provenance="public")
        fitted = spaces.split_norm(1.0, self.PUBLIC[::2])
        held = spaces.split_norm(1.0, self.PUBLIC[1::2])
        assert fitted[-1] < held[-1]

    def test_no_block_is_left_without_a_bound(self):
        spaces = public_subspaces(np.eye(6)[:2] * [3, 1, 0, 0, 0, 0], [2], provenance="public")
        inside, outside = spaces.split_norm(1.0, np.eye(6)[:1], least=0.1)
        assert outside == pytest.approx(0.1 * inside)
        assert np.hypot(inside, outside) == pytest.approx(1.0)

    @pytest.mark.parametrize(
        ("vectors", "message"),
        [(np.zeros((3, 20)), "all zero"), (np.ones((3, 19)), "the 20 coordinates")],
    )
    def test_refuses_vectors_that_say_nothing(self, vectors, message):
        spaces = public_subspaces(self.PUBLIC, [3], provenance="public")
        with pytest.raises(ValueError, match=message):
            spaces.split_norm(1.0, vectors)
