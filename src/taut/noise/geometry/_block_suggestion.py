"""From lengths in subspaces to blocks, radii, and what they save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut.noise._optimal.gaussian import optimal_gaussian
from taut.noise._sets.balls import L2Ball
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.projections import row_norms
from taut.noise.geometry._norm_split import split_norm
from taut.noise.geometry._subspaces import Subspaces, random_rotation

__all__ = ["BlockSuggestion", "suggest_blocks"]

ALLOCATIONS = ("mean", "quantile")
_LEAST = 1e-6  # of the clip: a block that was never reached needs a radius, and noise in float64


@dataclass(frozen=True, eq=False)
class BlockSuggestion:
    """Blocks with radii for private vectors, and how noise for them compares with isotropic noise.

    Attributes:
        blocks: the set to clip to, in a basis that is rotated inside of every block.
        ball: the l2 ball around it, of the same largest norm.
        mean_norms: the mean length g_j of the measured vectors in every block.
        entry_bounds: a quantile of the largest entry in every block but the complement; empty
            where entries were not measured.
        variances: variances of the hybrid noise in every direction of a block, for multiplier one.
        isotropic_variance: variance of noise for the ball, in every direction, for multiplier one.
        variance_ratio: total variance of isotropic over hybrid noise, at the same privacy.
        notes: where a boundary between blocks is arbitrary.

    **Guarantee**: noise for `blocks` has the privacy of noise for `ball` at the same multiplier, by
    :func:`optimal_gaussian`. The radii are only suggestions: smaller ones mean more clipping.
    Least total variance moves noise into small blocks, where the signal may be: compare
    `variances`, and see :func:`one_step` before choosing.
    """

    blocks: Blocks
    ball: L2Ball
    mean_norms: Vector
    entry_bounds: Vector
    variances: Vector
    isotropic_variance: float
    variance_ratio: float
    notes: tuple[str, ...] = ()

    @property
    def spreads(self) -> Vector:
        """How many entries at their bound make up the radius: d_0 = (c_2 / c_inf)², per block."""
        count = self.entry_bounds.size
        reach = (self.blocks.l2[:count] / self.entry_bounds) ** 2
        return np.clip(reach, 1.0, np.array(self.blocks.ranks[:count], dtype=np.float64))

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and lists for JSON."""
        return {
            "ranks": list(self.blocks.ranks),
            "l2": self.blocks.l2.tolist(),
            "mean_norm": self.mean_norms.tolist(),
            "entry_bound": self.entry_bounds.tolist(),
            "d_0": self.spreads.tolist(),
            "variance": self.variances.tolist(),
            "isotropic_variance": self.isotropic_variance,
            "variance_ratio": self.variance_ratio,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [
            f"hybrid noise has {self.variance_ratio:.3g} times less total variance than isotropic",
            "   rank    radius  mean norm  variance (isotropic)  entry bound      d_0",
        ]
        for j, rank in enumerate(self.blocks.ranks):
            entry = (
                f"{self.entry_bounds[j]:11.4g} {self.spreads[j]:8.4g}"
                if j < self.entry_bounds.size
                else f"{'-':>11} {'-':>8}"
            )
            lines.append(
                f"{rank:7d} {self.blocks.l2[j]:9.4g} {self.mean_norms[j]:10.4g} "
                f"{self.variances[j]:9.4g} ({self.isotropic_variance:9.4g})  {entry}"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def suggest_blocks(
    spaces: Subspaces,
    coefficients: Matrix,
    rest: Vector,
    *,
    clip: float,
    allocation: str,
    quantile: float,
    seed: int,
    entries_known: bool,
) -> BlockSuggestion:
    """Return radii for the blocks of subspaces from lengths that were measured.

    Args:
        spaces: the blocks, the complement last.
        coefficients: coefficients of measured vectors along at least the directions of the blocks.
        rest: the length of each of them beyond its coefficients.
        clip: the l2 norm that radii are made from.
        allocation: ``"mean"`` or ``"quantile"``.
        quantile: a level in (0, 1].
        seed: seed of the public rotation.
        entries_known: whether coefficients are those of vectors, rather than mean squares.
    """
    if allocation not in ALLOCATIONS:
        raise ValueError(f"allocation must be one of {ALLOCATIONS}, got allocation={allocation!r}")
    level = validate.positive(quantile=validate.probability(quantile=quantile))
    known = spaces.basis.shape[1]
    edges = np.cumsum(spaces.ranks)
    parts = np.split(coefficients[:, :known], edges[edges < known], axis=1)
    lengths = [row_norms(part, 2.0) for part in parts]
    if len(lengths) < len(spaces.ranks):
        lengths.append(np.hypot(row_norms(coefficients[:, known:], 2.0), rest))
    means = np.array([length.mean() for length in lengths])
    radii = _radii(means, lengths, clip, level if allocation == "quantile" else None)
    blocks = spaces.rotated(seed).blocks(radii)
    hybrid = optimal_gaussian(blocks, multiplier=1.0)
    ball = L2Ball(blocks.dimension, blocks.max_l2)
    isotropic = optimal_gaussian(ball, multiplier=1.0)
    ends = np.minimum(edges, known) - 1
    variances = hybrid.scales[ends] ** 2
    if len(parts) < len(spaces.ranks):
        variances[-1] = hybrid.complement_scale**2
    entries = _entry_bounds(parts, level, seed) if entries_known else np.empty(0)
    return BlockSuggestion(
        blocks,
        ball,
        means,
        entries,
        variances,
        float(isotropic.scales[0]) ** 2,
        isotropic.total_variance / hybrid.total_variance,
        spaces.notes,
    )


def _radii(means: Vector, lengths: list[Vector], clip: float, level: float | None) -> Vector:
    """Return a radius per block, in none of them less than a small share."""
    if level is not None:
        radii = np.array([np.quantile(length, level) for length in lengths])
        least: Vector = np.maximum(radii, _LEAST * clip)
        return least
    return split_norm(clip, means, _LEAST) if means.any() else np.full(means.size, clip)


def _entry_bounds(parts: list[Matrix], level: float, seed: int) -> Vector:
    """Return a quantile of the largest entries, in the basis in which blocks are turned."""
    random = np.random.default_rng(seed)
    turned = [part @ random_rotation(part.shape[1], random) for part in parts]
    bounds = [float(np.quantile(np.abs(part).max(axis=1), level)) for part in turned]
    return np.maximum(bounds, np.finfo(np.float64).tiny)
