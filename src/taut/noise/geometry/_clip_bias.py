"""What clipping does to a mean: where it points, how long it is, and where it leads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut._base.public_vectors import Provenance, as_provenance, portions, public_rows
from taut.noise._sets.projections import clip_l2, row_norms

__all__ = ["ClipBias", "ClipBiasReport", "clipped_descent", "explore_clip_bias"]

_FARTHEST_START = 1e100  # coordinate of a start: its square is a double
_MOST_ROUNDS = 100_000  # of descent; a contraction by a tenth per round is usual, and then 300 do


@dataclass(frozen=True)
class ClipBias:
    """What one clipping norm does to the mean of vectors.

    Attributes:
        norm: norm that vectors are scaled down to.
        cosine: between the mean of clipped vectors and the mean; 0 if one of them is zero.
        relative_bias: the distance of the two over the length of the mean; infinite at a mean of
            zero that clipping moves.
        length: length of the mean of clipped vectors.
        share_clipped: share of the vectors that are longer than `norm`.
    """

    norm: float
    cosine: float
    relative_bias: float
    length: float
    share_clipped: float


@dataclass(frozen=True)
class ClipBiasReport:
    """What clipping does to the mean of public vectors, norm by norm.

    Attributes:
        rows: one for every norm, in the order given.
        length: length of the mean.
        deviation: the root mean square distance of vectors from it: the noise of sampling one.
        count: how many vectors there were.
        provenance: why looking costs no privacy.

    **Guarantee**: none about records, as the vectors are none of theirs.
    """

    rows: tuple[ClipBias, ...]
    length: float
    deviation: float
    count: int
    provenance: Provenance

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and lists for JSON; infinity as None."""
        rows = [asdict(row) for row in self.rows]
        for row in rows:
            if math.isinf(row["relative_bias"]):
                row["relative_bias"] = None
        return {
            "rows": rows,
            "length": self.length,
            "deviation": self.deviation,
            "count": self.count,
            "provenance": str(self.provenance),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.count} {self.provenance} vectors with a mean of length {self.length:.4g}, "
            f"{self.deviation:.4g} from it on average",
            "      norm   clipped   cosine     bias",
        ]
        lines += [
            f"{row.norm:10.4g}  {row.share_clipped:7.1%}  {row.cosine:7.4f}  "
            f"{row.relative_bias:7.1%}"
            for row in self.rows
        ]
        return "\n".join(lines)


def explore_clip_bias(
    vectors: ArrayLike, norms: Sequence[float], *, provenance: Provenance | str
) -> ClipBiasReport:
    """Compare the mean of clipped vectors with the mean, for some clipping norms.

    Args:
        vectors: gradients of public examples, one per row.
        norms: norms to look at.
        provenance: ``"public"`` or ``"released"``, see `Provenance`.

    **Guarantee**: nothing is released, as the vectors are no secret.

    Raises:
        UnsoundConfiguration: for vectors that are neither public nor released.
        ValueError: for vectors with entries beyond 1e100.

    Example:
        Losses (w - x)² / 2 with x = -20, -10, 90 have the gradients w - x; at w = 0, gradients
        clipped to 1 point away from the optimum (Xiao, Wan and Devadas 2022, Example 3.1).

        >>> from taut.noise.geometry import explore_clip_bias
        >>> report = explore_clip_bias([[20.0], [10.0], [-90.0]], [1.0, 100.0], provenance="public")
        >>> print(*(row.cosine for row in report.rows))
        -1.0 1.0
    """
    table = public_rows(vectors, provenance)
    bounds = [validate.positive(norm=norm) for norm in norms]
    if not bounds:
        raise ValueError("norms must hold at least one number, got none")
    mean = table.mean(axis=0, dtype=np.float64)
    lengths = np.concatenate([row_norms(part, 2.0) for part in portions(table)])
    away = np.concatenate([row_norms(part - mean, 2.0) for part in portions(table)])
    totals = np.zeros((len(bounds), table.shape[1]))
    for part in portions(table):
        for total, bound in zip(totals, bounds, strict=True):
            total += clip_l2(part, bound).sum(axis=0)
    rows = tuple(
        _row(bound, total / len(table), mean, float((lengths > bound).mean()))
        for bound, total in zip(bounds, totals, strict=True)
    )
    return ClipBiasReport(
        rows,
        float(np.linalg.norm(mean)),
        math.sqrt(float(np.mean(away**2))),
        len(table),
        as_provenance(provenance),
    )


def clipped_descent(
    optima: ArrayLike,
    norm: float,
    *,
    provenance: Provenance | str,
    start: ArrayLike | None = None,
    tolerance: float = 1e-10,
) -> Vector:
    """Return where descent along clipped gradients ends, for losses |w - x_i|² / 2.

    Args:
        optima: the points x_i, one per row. The mean of the losses is least at their mean.
        norm: norm that the gradients w - x_i are clipped to.
        provenance: ``"public"`` or ``"released"``, see `Provenance`.
        start: first point; by default the mean of the points.
        tolerance: how long the mean of clipped gradients may be at the end, relative to `norm`.

    Clipped gradients of these losses are gradients of Huber's (1964): the end is his estimate of
    location, between mean and median, found by weighting every point with the factor that clips
    it. Where gradient descent with small steps could end in several points, this is one of them.

    **Guarantee**: nothing is released, as the points are no secret.

    Raises:
        UnsoundConfiguration: for points that are neither public nor released.
        ValueError: if the end is not reached within the tolerance; for points with coordinates
            beyond 1e100.

    Example:
        >>> from taut.noise.geometry import clipped_descent
        >>> points = [[-20.0], [-10.0], [90.0]]
        >>> ends = [clipped_descent(points, c, provenance="public") for c in (1, 10, 40, 60, 80)]
        >>> print(*(round(float(end[0]), 6) for end in ends))
        -10.0 -10.0 5.0 15.0 20.0
    """
    points: Vector = public_rows(optima, provenance).astype(np.float64)
    bound = validate.positive(norm=norm)
    close = bound * validate.positive(tolerance=tolerance)
    place: Vector = points.mean(axis=0) if start is None else real_numbers(start, "start")
    if place.shape != points.shape[1:]:
        raise ValueError(
            f"start must be a point of {points.shape[1]} coordinates, got shape {place.shape}"
        )
    if not float(np.abs(place).max()) <= _FARTHEST_START:
        raise ValueError(
            f"start must have coordinates within {_FARTHEST_START:g}, whose squares are numbers, "
            f"got start={start!r}"
        )
    for _ in range(_MOST_ROUNDS):
        gradients = place - points
        lengths = row_norms(gradients, 2.0)
        with np.errstate(over="ignore"):  # a norm beyond all of the smallest lengths clips none
            factors = np.minimum(1.0, bound / np.where(lengths > 0, lengths, 1.0))
        total: Vector = factors @ gradients
        if float(np.linalg.norm(total)) <= close * len(points):
            return place
        place = place - total / factors.sum()
    raise ValueError(
        f"norm={bound!r} is so small that descent had not ended after "
        f"{_MOST_ROUNDS} rounds; raise it, or the tolerance"
    )


def _row(norm: float, clipped: Vector, mean: Vector, share: float) -> ClipBias:
    length, kept = float(np.linalg.norm(mean)), float(np.linalg.norm(clipped))
    moved = float(np.linalg.norm(clipped - mean))
    bias = moved / length if length > 0 else math.inf if moved > 0 else 0.0
    cosine = float(clipped @ mean) / (length * kept) if length * kept > 0 else 0.0
    return ClipBias(norm, cosine, bias, kept, share)
