"""What Laplace noise sees of a set: the l1 lengths of its parts, and of the whole."""

from __future__ import annotations

import math

import numpy as np

from taut._base.arrays import Vector
from taut.errors import UnsoundConfiguration
from taut.noise._fitting.water_filling import largest_ratio_bound, whitened_radius
from taut.noise._sets.balls import L1Ball, L2Ball, LInfBall, LpIntersection
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.boxes import Box
from taut.noise._sets.finite import FiniteSet, Polytope
from taut.noise._sets.histogram import Histogram
from taut.noise._sets.products import Product, parts_of, product_outline
from taut.noise._sets.sets import Outline, SensitivitySet

__all__ = ["l1_outline", "l1_radius", "refuse_basis", "rooted"]


def l1_outline(sensitivity: SensitivitySet, *, by_axis: bool = False) -> Outline:
    """Return blocks of coordinates with bounds on their l1 norms, and on that of the whole.

    Scales of least error are constant within a block: the error is convex in 1 / scale, and what
    one record can change is symmetric under signs and permutations of the block.

    Args:
        sensitivity: any set without a basis.
        by_axis: whether coordinates may be treated differently, as weights ask for.
    """
    refuse_basis(sensitivity)
    d = sensitivity.dimension
    if isinstance(sensitivity, Box):
        return _of_box(sensitivity)
    if isinstance(sensitivity, Blocks):
        return _of_blocks(sensitivity, by_axis)
    if isinstance(sensitivity, Product):
        return product_outline(
            sensitivity, lambda part: l1_outline(part, by_axis=by_axis), lambda t: float(t.sum())
        )
    reach, whole, exact = _of_ball(sensitivity)
    if by_axis:
        ones = np.ones(d)
        return Outline(ones, ones * reach, whole, exact=exact and _is_corner(sensitivity))
    return Outline(np.array([float(d)]), np.array([whole]), whole, exact=exact)


def rooted(outline: Outline) -> Outline:
    """Return the outline whose squares are these lengths.

    The largest sum of t_j / scale_j over l1 lengths t is the squared whitened length of the rooted
    outline for variances equal to the scales, so that one theory levels both.
    """
    return Outline(
        outline.ranks, np.sqrt(outline.radii), math.sqrt(outline.cap), exact=outline.exact
    )


def l1_radius(sensitivity: SensitivitySet, scales: Vector, enough: float = 0.0) -> float:
    """Return the largest sum of |s_i| / scale_i over the set, or an upper bound on it.

    Args:
        sensitivity: the set.
        scales: one per coordinate; infinite privacy loss where one is zero and the set is not.
        enough: any bound below this will do, and spares sorting.
    """
    if isinstance(sensitivity, FiniteSet | Polytope):
        return float(_ratios(np.abs(sensitivity.vectors), scales).sum(axis=1).max())
    if isinstance(sensitivity, Product):
        return math.fsum(l1_radius(part, scales[at]) for part, at in parts_of(sensitivity))
    outline = l1_outline(sensitivity)
    if outline.radii.size == scales.size:
        bound = largest_ratio_bound(outline, scales)
        if bound <= enough:
            return bound
        return whitened_radius(rooted(outline), np.sqrt(scales)) ** 2
    by_axis = l1_outline(sensitivity, by_axis=True)
    starts = np.concatenate([[0], np.cumsum(outline.ranks)[:-1]]).astype(np.int64)
    least = np.minimum.reduceat(scales, starts)  # exact for scales that are constant in blocks
    bound = whitened_radius(rooted(outline), np.sqrt(least)) ** 2
    if by_axis.radii.size == scales.size:
        bound = min(bound, whitened_radius(rooted(by_axis), np.sqrt(scales)) ** 2)
    return bound


def refuse_basis(sensitivity: SensitivitySet) -> None:
    """Raise for sets that are described in another basis than the coordinates."""
    if getattr(sensitivity, "basis", None) is not None:
        raise UnsoundConfiguration(
            "this noise lies along coordinates, and the set has a basis; release the coefficients "
            "instead, value @ basis, with the same set without its basis"
        )


def _ratios(lengths: Vector, scales: Vector) -> Vector:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(lengths > 0, lengths / scales, 0.0)


def _of_box(box: Box) -> Outline:
    total = float(box.widths.sum())
    cap = min(total, box.l1 or math.inf)
    exact = True
    if box.l2 is not None and (implied := _l1_below_l2(box.widths, box.l2)) < cap * (1 - 1e-12):
        cap, exact = implied, False
    ones = np.broadcast_to(np.float64(1.0), box.widths.shape)
    return Outline(ones, box.widths, cap, exact=exact)


def _l1_below_l2(widths: Vector, l2: float) -> float:
    """Return the largest l1 norm in a box and an l2 ball: that of min(width, level)."""
    up = np.sort(widths / l2)
    below = np.concatenate([[0.0], np.cumsum(up**2)[:-1]])
    left = np.arange(up.size, 0, -1)
    levels = np.sqrt(np.maximum(1 - below, 0.0) / left)
    free = levels <= up
    if not free.any():
        return float(widths.sum())
    first = int(np.argmax(free))
    return l2 * (float(up[:first].sum()) + float(left[first] * levels[first])) * (1 + 1e-12)


def _of_blocks(blocks: Blocks, by_axis: bool) -> Outline:
    ranks = np.array(blocks.ranks, dtype=np.float64)
    lengths = np.sqrt(ranks) * blocks.radii
    total = float(lengths.sum())
    cap, exact = total, not by_axis
    if blocks.cap is not None and blocks.cap < math.hypot(*blocks.radii) * (1 - 1e-12):
        cap, exact = min(total, blocks.cap * math.sqrt(blocks.dimension)), False
    return Outline(ranks, lengths, cap, exact=exact)


def _of_ball(sensitivity: SensitivitySet) -> tuple[float, float, bool]:
    """Return the largest entry, the largest l1 norm, and whether the latter is attained."""
    d = sensitivity.dimension
    if isinstance(sensitivity, Histogram):
        return 1.0, float(sensitivity.moved), True
    if isinstance(sensitivity, L1Ball):
        return sensitivity.radius, sensitivity.radius, True
    if isinstance(sensitivity, LInfBall):
        return sensitivity.radius, d * sensitivity.radius, True
    if isinstance(sensitivity, LpIntersection):
        # A vector of equal entries is the longest in l1 in every ball with p >= 1 at once.
        radii = sensitivity.radii
        whole = min(c * d ** max(0.0, 1 - 1 / p) for p, c in radii.items())
        return min(radii.values()), whole, len(radii) == 1 or min(radii) >= 1
    length = math.sqrt(d) * sensitivity.max_l2
    return sensitivity.max_l2, length, isinstance(sensitivity, L2Ball)


def _is_corner(sensitivity: SensitivitySet) -> bool:
    """Say whether bounds on entries and on the l1 norm describe the whole set."""
    if isinstance(sensitivity, LpIntersection):
        return set(sensitivity.radii) <= {1.0, math.inf}
    return isinstance(sensitivity, L1Ball | LInfBall | Histogram)
