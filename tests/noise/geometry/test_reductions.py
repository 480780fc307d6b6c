"""Keeping few coordinates or directions: bounds stay, and what is lost is what was dropped."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import UnsoundConfiguration
from taut.noise.geometry import low_rank_project, public_subspaces, top_beta_mask, top_beta_sparsify

PUBLIC = np.random.default_rng(0).standard_normal((30, 10)) * np.arange(1, 11)


class TestCoordinates:
    @pytest.mark.parametrize(("beta", "kept"), [(0.01, 1), (0.3, 3), (0.31, 4), (1.0, 10)])
    def test_counts(self, beta, kept):
        mask = top_beta_mask(PUBLIC, beta, provenance="public")
        sizes = np.abs(PUBLIC).mean(axis=0)
        assert mask.sum() == kept
        assert sizes[mask].min() >= np.max(sizes[~mask], initial=0.0)

    @given(st.integers(0, 2**32))
    def test_no_norm_grows(self, seed):
        rows = np.random.default_rng(seed).standard_normal((3, 10))
        sparse = top_beta_sparsify(rows, top_beta_mask(PUBLIC, 0.4, provenance="public"))
        for p in (1, 2, np.inf):
            assert (np.linalg.norm(sparse, p, axis=1) <= np.linalg.norm(rows, p, axis=1)).all()

    def test_broken_rows_become_zero(self):
        assert top_beta_sparsify([[np.nan, 1.0]], [True, True]).tolist() == [[0.0, 0.0]]

    @pytest.mark.parametrize("beta", [0.0, 1.5, np.nan])
    def test_share(self, beta):
        with pytest.raises(ValueError, match="beta"):
            top_beta_mask(PUBLIC, beta, provenance="public")

    def test_private_vectors(self):
        with pytest.raises(UnsoundConfiguration, match="provenance"):
            top_beta_mask(PUBLIC, 0.5, provenance="private")

    @pytest.mark.parametrize("mask", [[1, 0], [[True]], [0.5]])
    def test_mask(self, mask):
        with pytest.raises(ValueError, match="mask"):
            top_beta_sparsify([[1.0, 2.0]], mask)


class TestDirections:
    def test_is_the_nearest_point_of_the_span(self):
        basis = public_subspaces(PUBLIC, [4], provenance="public").basis
        row = np.arange(10.0)
        nearest = basis @ np.linalg.lstsq(basis, row, rcond=None)[0]
        assert low_rank_project(row, basis)[0] == pytest.approx(nearest, abs=1e-12)

    def test_needs_an_orthonormal_basis(self):
        with pytest.raises(ValueError, match="defect"):
            low_rank_project(np.ones((1, 2)), 2 * np.eye(2))
