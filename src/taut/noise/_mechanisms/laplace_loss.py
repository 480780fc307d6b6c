"""The privacy loss of independent Laplace noise: few releases that dominate many coordinates.

Coordinate i of a member s of the set is a Laplace release of ratio |s_i| / scale_i. Of two vectors
of ratios the one that majorises the other has the larger loss (docs/theory/laplace-noise.md), so
that the partial sums of the largest ratios of all members bound the set, and values within a
group may be moved to its ends as long as their sum stays the same.
"""

from __future__ import annotations

import itertools
import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut._base.floats import ALIKE
from taut.accounting import PrivacyLoss, laplace, zero
from taut.noise._fitting.l1_radius import l1_radius
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.boxes import Box
from taut.noise._sets.finite import FiniteSet, Polytope
from taut.noise._sets.products import Product, parts_of
from taut.noise._sets.sets import SensitivitySet

__all__ = ["RATIO_FACTOR", "loss_of_ratios", "worst_ratios"]

RATIO_FACTOR = 1 + 2e-12
"""Covers 1e-12 that the check of a sum allows, and as much for clipped rows and sums of ratios."""

_MOST_RATIOS = 32  # distinct ones, that an accountant composes in a moment
_RATIO_GROUPS = 4  # in which ratios are spread; two values each stay far below `_MOST_RATIOS`
_EQUAL_ERROR = 1e-13  # relative: ratios that are closer count as the larger, which is sound

Places: TypeAlias = NDArray[np.int64]


def worst_ratios(sensitivity: SensitivitySet, scales: Vector) -> Vector:
    """Return ratios, largest first, that majorise those of every member of the set.

    Exact for boxes without bounds on norms, l1 balls and l_inf balls, where a member has them.
    """
    if isinstance(sensitivity, FiniteSet | Polytope):
        return _of_vectors(np.abs(sensitivity.vectors), scales)
    if isinstance(sensitivity, Product):
        # What majorises every part majorises all of them side by side.
        found = [worst_ratios(part, scales[at]) for part, at in parts_of(sensitivity)]
        return -np.sort(-np.concatenate(found))
    if isinstance(sensitivity, Blocks):
        ratios = _of_blocks(sensitivity, scales)
        bound = sensitivity.max_l2 if sensitivity.cap is not None else math.inf
    else:
        outline = sensitivity.l1_outline(by_axis=True)
        ratios = -np.sort(-_over(outline.radii, scales))
        bound = sensitivity.max_l2
        if isinstance(sensitivity, Box) and sensitivity.l2 is None:
            bound = math.inf
    ratios = _below(ratios, l1_radius(sensitivity, scales))
    if math.isinf(bound):
        return ratios
    longest = bound * np.sqrt(np.cumsum(-np.sort(-(_over(np.ones(scales.size), scales) ** 2))))
    sums = np.cumsum(ratios)
    if (sums <= longest * (1 + ALIKE)).all():
        return ratios
    return _differences(np.minimum(sums, longest))


def loss_of_ratios(ratios: Vector, adjacency: str) -> PrivacyLoss:
    """Return the loss of Laplace releases with the given ratios, largest first.

    Equal ratios are counted. If there are too many different ones, they are spread within groups,
    which keeps their sum, and so the pure promise, and enlarges the loss a little in between.
    """
    values, counts = _counted(ratios * RATIO_FACTOR)
    if values.size > _MOST_RATIOS:
        values, counts = _spread(ratios * RATIO_FACTOR)
    loss = zero(adjacency=adjacency)
    for value, count in zip(values, counts, strict=True):
        loss = loss + int(count) * laplace(1.0, float(value), adjacency=adjacency)
    return loss


def _over(lengths: Vector, scales: Vector) -> Vector:
    moved = lengths > 0
    return np.where(moved, lengths / np.where(moved, scales, 1.0), 0.0)


def _below(ratios: Vector, total: float) -> Vector:
    """Return the largest ratios that sum to at most the total: fill the first ones."""
    if float(ratios.sum()) <= total * (1 + ALIKE):
        return ratios
    sums = np.cumsum(ratios)
    full = int(np.searchsorted(sums, total, side="right"))
    result = np.where(np.arange(ratios.size) < full, ratios, 0.0)
    if full < ratios.size:
        rest = total - (float(sums[full - 1]) if full else 0.0)
        result[full] = rest if rest > 1e-14 * total else 0.0  # RATIO_FACTOR covers what is dropped
    return result


def _differences(sums: Vector) -> Vector:
    """Return what partial sums add, sorted against rounding."""
    steps = np.maximum(np.diff(sums, prepend=0.0), 0.0)
    return -np.sort(-steps)


def _of_vectors(lengths: Vector, scales: Vector) -> Vector:
    """Return the steps of the least concave bound on all partial sums of sorted ratios."""
    sums = np.cumsum(-np.sort(-_over(lengths, scales), axis=1), axis=1).max(axis=0)
    corners = [(0, 0.0)]
    for k, height in enumerate(sums.tolist(), start=1):
        while len(corners) > 1 and _bends_up(corners[-2], corners[-1], (k, height)):
            corners.pop()
        corners.append((k, height))
    places, heights = (np.array(column, dtype=np.float64) for column in zip(*corners, strict=True))
    widths = np.diff(places)
    return np.repeat(np.maximum(np.diff(heights), 0.0) / widths, widths.astype(np.int64))


def _bends_up(one: tuple[int, float], two: tuple[int, float], new: tuple[int, float]) -> bool:
    return (two[1] - one[1]) * (new[0] - two[0]) <= (new[1] - two[1]) * (two[0] - one[0])


def _of_blocks(blocks: Blocks, scales: Vector) -> Vector:
    """Return the ratios of all blocks: k entries of an l2 ball sum to at most sqrt(k) radii."""
    found = []
    parts = np.split(scales, np.cumsum(blocks.ranks)[:-1])
    for j, (rank, part) in enumerate(zip(blocks.ranks, parts, strict=True)):
        if blocks.l2[j] == 0:
            continue
        entry = blocks.l2[j] if blocks.linf is None else min(blocks.l2[j], blocks.linf[j])
        counts = np.arange(1.0, rank + 1)
        sums = np.minimum(counts * entry, np.sqrt(counts) * blocks.l2[j]) / float(part.min())
        found.append(_differences(sums))
    return -np.sort(-np.concatenate(found))


def _counted(ratios: Vector) -> tuple[Vector, Vector]:
    """Return different ratios and their counts; those equal up to rounding take the largest."""
    # What is fainter changes no digit; all of it counts as one, below.
    kept = ratios[ratios > 1e-15 * ratios[0]]
    rest = float(ratios[kept.size :].sum())
    starts = np.flatnonzero(np.concatenate([[True], kept[1:] < kept[:-1] * (1 - _EQUAL_ERROR)]))
    counts = np.diff(np.append(starts, kept.size)).astype(np.float64)
    values = kept[starts].copy()
    if rest > 0:  # one release of the sum majorises many that are hardly there
        values, counts = np.append(values, rest), np.append(counts, 1.0)
    return values, counts


def _spread(ratios: Vector) -> tuple[Vector, Vector]:
    """Return few ratios that majorise many with the same sum."""
    ends = _group_ends(ratios)
    pairs = [_at_ends(ratios[a:b]) for a, b in itertools.pairwise(ends)]
    merged = [(value, count) for pair in pairs for value, count in pair if count and value > 0]
    values, counts = (np.array(column) for column in zip(*merged, strict=True))
    return values, counts


def _at_ends(group: Vector) -> list[tuple[float, int]]:
    """Return two values with counts that have the sum of the group and reach beyond it."""
    n, total = group.size, math.fsum(group)
    high, low = float(group[0]), float(group[-1])
    if high <= low * (1 + _EQUAL_ERROR):
        return [(high, n)]
    above = min(math.ceil((total - n * low) / (high - low)), n - 1)
    rest = (total - above * high) / (n - above)
    if rest >= 0:
        return [(high, above), (rest * RATIO_FACTOR, n - above)]
    full = int(total / high)
    # A few roundings of the total, on the safe side.
    return [(high, full), (max(total - full * high, 0.0) + 1e-15 * total, 1)]


def _group_ends(ratios: Vector) -> list[int]:
    """Split where the sum of squares that spreading adds falls most, a few times."""
    sums = np.concatenate([[0.0], np.cumsum(ratios)])
    squares = np.concatenate([[0.0], np.cumsum(ratios**2)])

    def excess(a: Places, b: Places) -> Vector:
        # The sum of (high - e)(e - low) over the group.
        high, low = ratios[a], ratios[b - 1]
        linear = (high + low) * (sums[b] - sums[a])
        added: Vector = linear - (squares[b] - squares[a]) - (b - a) * high * low
        return added

    ends = [0, ratios.size]
    for _ in range(_RATIO_GROUPS - 1):
        best = (0.0, -1)
        for a, b in itertools.pairwise(ends):
            inner = np.unique(np.linspace(a + 1, b - 1, min(b - a - 1, 400)).astype(np.int64))
            if not inner.size:
                continue
            left = excess(np.full_like(inner, a), inner) + excess(inner, np.full_like(inner, b))
            gain = float(excess(np.array(a), np.array(b))) - left
            k = int(np.argmax(gain))
            best = max(best, (float(gain[k]), int(inner[k])))
        if best[1] < 0:
            break
        ends = sorted([*ends, best[1]])
    return ends
