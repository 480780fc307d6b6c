"""Noise along the axes of a basis, for an error that is measured in coordinates.

With squares S_ij of the entries of the basis, noise of variances x along the axes has variances
S x in the coordinates. A sum over coordinates with weights is then a sum over axes with weights
Sᵀ w, which has a closed form. The largest is at least every mixture of them, so mixtures that
move towards the noisiest coordinates give better noise and better lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from taut._base.arrays import Matrix, Vector
from taut.noise._fitting.objectives import block_weights, coordinate_weights, relative_weights
from taut.noise._fitting.water_filling import unit_scales
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.boxes import Box
from taut.noise._sets.sets import Outline

__all__ = ["AlongBasis", "least_along_basis", "turns"]

_MIXTURE_STEPS = 200  # the best so far is kept, with its gap: fewer would be sound, only larger
_MIXTURE_GAP = 1e-6  # relative, between noise and bound, at which mixtures stop moving
_LEAST_SHARE = 1e-9  # of an equal share: mixtures keep all coordinates, so every axis has a cost
_PROVEN = "least among noise that is independent along the axes of the basis"
_OPEN = "noise along the axes of the basis; nothing is claimed about how small it could be"


@dataclass(frozen=True)
class AlongBasis:
    """Noise for a multiplier of one.

    Attributes:
        outline: the blocks of the set.
        scales: standard deviations of every block.
        radius: the whitened length.
        error: what the coordinates make, without the moment of a normal number.
        lower_bound: what no noise along the axes goes below; 0 if nothing is known.
        statement: why.
    """

    outline: Outline
    scales: Vector
    radius: float
    error: float
    lower_bound: float
    statement: str


def turns(sensitivity: Box | Blocks, objective: str, weights: ArrayLike | None, p: float) -> bool:
    """Say whether there is a basis in which the error is not that of the axes."""
    if sensitivity.basis is None:
        return False
    if weights is not None and isinstance(sensitivity, Blocks):
        blocks = len(sensitivity.ranks)
        if blocks < sensitivity.dimension:
            return block_weights(sensitivity, weights, blocks) is None
    return weights is not None or objective != "total" or p != 2


def least_along_basis(
    sensitivity: Box | Blocks, objective: str, weights: ArrayLike | None, p: float
) -> AlongBasis:
    """Return noise along the basis of a set, of small error in the coordinates.

    Args:
        sensitivity: a set with a basis.
        objective: what is made small.
        weights: one per coordinate.
        p: the power, for ``"total"``.
    """
    outline, squares = sensitivity.outline(by_axis=True), _squares(sensitivity)
    given = coordinate_weights(weights, sensitivity.dimension)
    if objective == "relative":
        given = relative_weights(given, sensitivity.reach())
    if objective != "worst" and p == 2:
        scales, bound, radius = _for_mixture(outline, squares, given)
        error = float(given @ (squares @ scales**2))
        why = _PROVEN if outline.exact else _OPEN
        return AlongBasis(outline, scales, radius, error, bound * outline.exact, why)
    return _searched(outline, squares, given, objective, p)


def _searched(
    outline: Outline, squares: Matrix, weights: Vector, objective: str, p: float
) -> AlongBasis:
    """Move a mixture of coordinates, from that of the least total variance; keep the best."""
    worst = objective == "worst"
    size = weights.size
    mixture = 1.0 / weights
    best: tuple[float, Vector, float] | None = None
    lower = 0.0
    for _ in range(_MIXTURE_STEPS):
        mixture = mixture / mixture.sum()
        mixture = np.maximum(mixture, _LEAST_SHARE / size)
        shares = mixture / mixture.sum()
        scales, bound, radius = _for_mixture(outline, squares, shares * weights)
        variances = squares @ scales**2
        error = float((weights * variances).max() if worst else weights @ variances ** (p / 2))
        if best is None or error < best[0]:
            best = (error, scales, radius)
        if not worst:  # the tangent of v^(p / 2); for p < 2 the sum only falls
            sizes = np.maximum(variances / variances.max(), _LEAST_SHARE)
            mixture = sizes ** (p / 2 - 1)
            continue
        lower = max(lower, bound * outline.exact)
        if best[0] <= lower * (1 + _MIXTURE_GAP):
            break
        mixture = shares * weights * variances
    assert best is not None
    error, scales, radius = best
    return AlongBasis(outline, scales, radius, error, lower, _PROVEN if lower > 0 else _OPEN)


def _for_mixture(outline: Outline, squares: Matrix, weights: Vector) -> tuple[Vector, float, float]:
    """Return the noise along the axes of the least weighted sum of variances of coordinates."""
    return unit_scales(outline, (weights @ squares) / outline.ranks, "total", 2.0)


def _squares(sensitivity: Box | Blocks) -> Matrix:
    """Return the squared length of every coordinate's part in every block."""
    assert sensitivity.basis is not None
    entries: Matrix = np.square(sensitivity.basis)
    if isinstance(sensitivity, Box):
        return entries
    inside = entries.shape[1] == sensitivity.dimension
    ranks = sensitivity.ranks if inside else sensitivity.ranks[:-1]
    starts = np.concatenate([[0], np.cumsum(ranks)[:-1]]).astype(np.int64)
    parts: Matrix = np.add.reduceat(entries, starts, axis=1)
    if inside:
        return parts
    rest = np.maximum(1.0 - parts.sum(axis=1), 0.0)
    return np.concatenate([parts, rest[:, None]], axis=1)
