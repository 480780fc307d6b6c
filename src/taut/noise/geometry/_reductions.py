"""Smaller vectors before noise: keep few coordinates, or few directions, chosen in public.

Both are baselines: what they drop is lost for good, while blocks only clip it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut._base.arrays import Matrix, Vector, orthonormal
from taut._base.public_vectors import Provenance, Rows, portions, public_rows
from taut.noise._sets.projections import as_table

__all__ = ["low_rank_project", "mean_magnitudes", "top_beta_mask", "top_beta_sparsify"]


def top_beta_mask(
    vectors: ArrayLike, beta: float, *, provenance: Provenance | str
) -> NDArray[np.bool_]:
    """Return which coordinates are largest on average in public vectors.

    Args:
        vectors: one per row.
        beta: the share of coordinates to keep, in (0, 1]; rounded up to a whole number of them.
        provenance: ``"public"`` or ``"released"``, see `Provenance`.

    Example:
        >>> from taut.noise.geometry import top_beta_mask, top_beta_sparsify
        >>> mask = top_beta_mask([[3, 0, -2, 1], [2, 1, 2, 0]], 0.5, provenance="public")
        >>> top_beta_sparsify([[1, 2, 3, 4]], mask)
        array([[1., 0., 3., 0.]])
    """
    share = validate.positive(beta=beta)
    if share > 1:
        raise ValueError(f"beta must be a share of the coordinates in (0, 1], got beta={beta!r}")
    sizes = mean_magnitudes(public_rows(vectors, provenance))
    mask = np.zeros(sizes.size, dtype=np.bool_)
    mask[np.argsort(-sizes, kind="stable")[: math.ceil(share * sizes.size)]] = True
    return mask


def top_beta_sparsify(rows: ArrayLike, mask: ArrayLike) -> Matrix:
    """Set the coordinates outside of a mask to zero.

    **Guarantee**: no norm grows, so that a bound on the rows stays one. The mask must be public;
    dropping coordinates of a release instead is post-processing.
    """
    kept = np.asarray(mask)
    if kept.dtype != np.bool_ or kept.ndim != 1:
        raise ValueError(
            f"mask must be a vector of booleans, got {kept.dtype} of shape {kept.shape}"
        )
    return np.where(kept, as_table(rows, kept.size), 0.0)


def low_rank_project(rows: ArrayLike, basis: ArrayLike) -> Matrix:
    """Project rows onto the span of a public orthonormal basis.

    **Guarantee**: the l2 norm does not grow, other norms may: clip after, or project the release,
    which is post-processing.
    """
    columns = orthonormal(basis, len(np.atleast_1d(basis)))
    return as_table(rows, len(columns)) @ columns @ columns.T


def mean_magnitudes(rows: Rows) -> Vector:
    """Return the mean absolute value of every coordinate."""
    total = np.zeros(rows.shape[1])
    for part in portions(rows):
        total += np.abs(part).sum(axis=0)
    return total / len(rows)
