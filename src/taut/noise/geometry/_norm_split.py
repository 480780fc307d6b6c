"""A norm split over subspaces, in proportion to how long public vectors are in each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut._base.public_vectors import Rows, portions
from taut.noise._sets.projections import row_norms

__all__ = ["mean_lengths", "split_norm"]


def mean_lengths(rows: Rows, basis: Matrix, ranks: Sequence[int]) -> Vector:
    """Return the mean l2 length of the rows in every block.

    Args:
        rows: the vectors that are measured.
        basis: the orthonormal columns of the blocks, without those of the complement.
        ranks: the dimension of every block, that of the complement last if there is one.
    """
    dimension, known = basis.shape
    edges = np.cumsum(ranks)
    found = []
    for some in portions(rows):
        inside = some @ basis
        parts = np.split(inside, edges[edges < known], axis=1)
        lengths = [row_norms(part, 2.0) for part in parts]
        if known < dimension:
            whole, kept = row_norms(some, 2.0), row_norms(inside, 2.0)
            lengths.append(np.sqrt(np.maximum(whole - kept, 0.0) * (whole + kept)))
        found.append(np.stack(lengths))
    means: Vector = np.concatenate(found, axis=1).mean(axis=1)
    return means


def split_norm(norm: float, lengths: Vector, least: float) -> Vector:
    """Return bounds in proportion to lengths, with the squares summing to that of the norm.

    Args:
        norm: the norm that is split.
        lengths: the mean length in every block.
        least: the share of the longest block's length that a block gets at least, since one in
            which public vectors are nothing still needs a bound.

    Raises:
        ValueError: if all lengths are zero.
    """
    longest = float(lengths.max())
    if not longest > 0:
        raise ValueError("public vectors are all zero: they say nothing about lengths")
    parts = np.maximum(lengths, least * longest)
    bounds: Vector = norm * parts / np.linalg.norm(parts)
    return bounds
