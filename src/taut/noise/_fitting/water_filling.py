"""Scales of least error for blocks with radii and a common cap: closed forms, and their check.

Vectors of millions of numbers are worked through in pieces that stay in the cache: that is several
times faster than whole arrays, and needs no memory but that of the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from taut._base.arrays import Vector
from taut._base.floats import ALIKE
from taut.errors import UnsoundConfiguration
from taut.noise._sets.sets import Outline

__all__ = [
    "PURE_FACTOR",
    "checked_radius",
    "is_constant",
    "largest_cost",
    "largest_ratio_bound",
    "level_l1",
    "level_total",
    "level_worst",
    "levelled",
    "product",
    "total_cost",
    "unit_scales",
    "whitened_radius",
]

PURE_FACTOR = 1 + 1e-11
"""By how much pure noise is larger than needed: more than all rounding of norms in a clip, of sums
over a set or of budgets, of losses, and of the check itself, together."""
_WHITENED_FACTOR = 1 + 4e-13  # for whitened lengths, off by less than 1e-13 for 2^36 terms
_BLOCK_PIECE = 1 << 15  # blocks worked on at a time, so that they stay in the cache
_SAMPLED_GAINS = 1 << 16  # from which the place of the threshold is guessed; a miss costs a sort
_GUESS_MARGIN = 0.02  # of all blocks, to either side: ten deviations of a sample's quantile


def whitened_radius(outline: Outline, scales: Vector) -> float:
    """Return the largest length of a member after division by the standard deviations."""
    moved = outline.radii > 0
    whole = bool(moved.all())
    radii, noise = (outline.radii, scales) if whole else (outline.radii[moved], scales[moved])
    if not float(noise.min()) > 0:
        return math.inf
    gains = np.square(noise)
    with np.errstate(divide="ignore"):
        np.divide(1.0, gains, out=gains)
    return math.sqrt(_largest_sum(radii, gains, outline.cap)[0])


def checked_radius(outline: Outline, scales: Vector, threshold: float) -> float:
    """Return `whitened_radius`, or without sorting a bound on it.

    Any threshold gives a bound, see `_largest_sum`; that of `level_total` or `level_worst` for the
    same scales gives the radius itself.
    """
    if not float(scales.min()) > 0:
        return whitened_radius(outline, scales)
    sums = []
    for part in _pieces(scales.size):
        gains = np.square(scales[part])
        with np.errstate(divide="ignore"):
            np.divide(1.0, gains, out=gains)
        sums.append(_excess(outline.radii[part], gains, threshold))
    bound = math.sqrt(threshold * outline.cap**2 + math.fsum(sums))
    # Where the threshold was moved by more than rounding, the best one is found anew.
    return bound if bound <= 1 + 1e-9 else whitened_radius(outline, scales)


def level_total(outline: Outline, load: Vector, p: float) -> tuple[Vector, float, float]:
    """Return the scales of least sum of load * scale^p for whitened length 1, and that sum.

    The third number is the threshold of the worst member: 1 / scale^2 of the levelled blocks. With
    squared lengths t the scales are u = (t / load)^(1 / (p + 2)), times the root of the sum of
    load u^p; for p = 2 by square roots alone, which are much faster.
    """
    level = _level(outline, load, 2)
    scales = np.empty(outline.radii.size)
    sums = []
    for part in _pieces(scales.size):
        unit, loads = scales[part], load[part]
        np.square(outline.radii[part], out=unit)
        if level < math.inf:
            np.minimum(unit, level * loads, out=unit)
        unit /= loads
        if p == 2:
            np.sqrt(unit, out=unit)
            sums.append(_weighted_sum(unit, loads))
            np.sqrt(unit, out=unit)
        else:
            unit **= 1 / (p + 2)
            sums.append(_weighted_sum(unit**p, loads))
    total = math.fsum(sums)
    scales *= math.sqrt(total)
    return scales, total ** (p / 2 + 1), level ** (-2 / (p + 2)) / total


def unit_scales(
    outline: Outline, costs: Vector, objective: str, p: float
) -> tuple[Vector, float, float]:
    """Return the scales of least error for whitened length 1, a lower bound, and their radius.

    Args:
        outline: the blocks.
        costs: the weight of one direction of every block.
        objective: ``"worst"`` for the largest cost * scale^2; the sum of costs * scale^p otherwise.
        p: the power.

    Raises:
        UnsoundConfiguration: if the scales fail their check.
    """
    if objective == "worst":
        scales, bound, threshold = level_worst(outline, costs)
    else:
        scales, bound, threshold = level_total(outline, product(outline.ranks, costs), p)
    scales *= _WHITENED_FACTOR
    radius = checked_radius(outline, scales, threshold / _WHITENED_FACTOR**2)
    if not radius <= 1 + 1e-9:  # what is beyond by rounding alone is mended below
        raise UnsoundConfiguration(
            f"the scales leave a whitened length of {radius!r} where 1 is allowed; the bounds of "
            "the set are too far apart for floating point"
        )
    if radius > 1:
        scales *= radius * _WHITENED_FACTOR
        radius = checked_radius(outline, scales, threshold / (radius * _WHITENED_FACTOR**2) ** 2)
    return scales, bound, radius


def level_l1(outline: Outline, load: Vector, p: float) -> tuple[Vector, float]:
    """Return the scales of least sum of load * scale^p where lengths over scales sum to 1 at most.

    The radii and the cap are l1 lengths t here. The scales are u = (t / load)^(1 / (p + 1)) times
    the sum of load u^p, and that sum to the power p + 1 is the least one, the second number.
    """
    level = _level(outline, load, 1)
    scales = np.empty(outline.radii.size)
    sums = []
    for part in _pieces(scales.size):
        unit, loads = scales[part], load[part]
        if level < math.inf:
            np.minimum(outline.radii[part], level * loads, out=unit)
            unit /= loads
        else:
            np.divide(outline.radii[part], loads, out=unit)
        if p == 2:
            np.cbrt(unit, out=unit)
        else:
            unit **= 1 / (p + 1)
        sums.append(_weighted_sum(unit**p, loads))
    total = math.fsum(sums)
    scales *= total
    return scales, total ** (p + 1)


def largest_ratio_bound(outline: Outline, scales: Vector) -> float:
    """Return a bound on the largest sum of lengths over scales, for l1 lengths and cap.

    It is that of `_largest_sum` with the gain of the largest scale as threshold, which is where
    `level_l1` levels, so that for its scales the bound is attained. Infinite for scales of zero.
    """
    if not float(scales.min()) > 0:
        return math.inf
    sums = []
    threshold = 1 / float(scales.max()) if _exceeds(outline, 1) else 0.0
    for part in _pieces(scales.size):
        gains = 1 / scales[part]
        gains -= threshold
        np.maximum(gains, 0.0, out=gains)
        sums.append(float(np.dot(gains, outline.radii[part])))
    return threshold * outline.cap + math.fsum(sums)


def levelled(outline: Outline, load: Vector) -> Vector:
    """Return the squared lengths min(radius^2, level * load) that sum to the squared cap."""
    level = _level(outline, load, 2)
    squares: Vector = np.square(outline.radii)
    return np.minimum(squares, level * load) if level < math.inf else squares


def level_worst(outline: Outline, costs: Vector) -> tuple[Vector, float, float]:
    """Return the scales with cost * scale^2 constant, that constant, and the threshold."""
    square, threshold = _largest_sum(outline.radii, costs, outline.cap)
    scales = np.sqrt(costs)
    np.divide(math.sqrt(square), scales, out=scales)
    if not outline.radii.all():
        scales[outline.radii == 0] = 0.0
    return scales, square, threshold / square


def total_cost(costs: Vector, scales: Vector, p: float) -> float:
    """Return the sum of cost * scale^p."""
    parts = _pieces(scales.size)
    return math.fsum(_weighted_sum(scales[part] ** p, costs[part]) for part in parts)


def largest_cost(costs: Vector, scales: Vector) -> float:
    """Return the largest cost * scale^2."""
    parts = _pieces(scales.size)
    return max(float((np.square(scales[part]) * costs[part]).max()) for part in parts)


def product(one: Vector, other: Vector) -> Vector:
    """Return the product, without filling memory with the same number."""
    if is_constant(one) and is_constant(other):
        return np.broadcast_to(one[0] * other[0], one.shape)
    return other if is_constant(one) and one[0] == 1 else one * other


def is_constant(vector: Vector) -> bool:
    """Say whether a vector is one number, repeated without memory."""
    return vector.strides == (0,)


def _pieces(size: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK_PIECE) for start in range(0, size, _BLOCK_PIECE))


def _weighted_sum(values: Vector, weights: Vector) -> float:
    if is_constant(weights):
        return float(values.sum()) * float(weights[0])
    return float(np.dot(values, weights))


def _exceeds(outline: Outline, norm: int) -> bool:
    """Say whether the radii together are beyond the cap, in l1 or l2."""
    radii, cap = outline.radii, outline.cap
    whole = float(np.dot(radii, radii)) if norm == 2 else float(radii.sum())
    return not whole <= cap**norm * (1 + ALIKE)


def _level(outline: Outline, load: Vector, norm: int) -> float:
    """Return the level at which min(radius^norm, level * load) sum to cap^norm.

    The sum is concave in the level, so Newton's method climbs to it from the left, and ends once
    the set of blocks at their radius stays the same.
    """
    if not _exceeds(outline, norm):
        return math.inf
    level, last = 0.0, -1
    while True:
        count, reached, weight = _below(outline.radii, load, level, norm)
        if count in (0, last):
            return level
        level, last = max(level, level + (outline.cap**norm - reached) / weight), count


def _below(radii: Vector, load: Vector, level: float, norm: int) -> tuple[int, float, float]:
    """Return how many blocks the level cuts, the sum of lengths below it, and the load cut."""
    counts, sums, weights = 0, [], []
    for part in _pieces(radii.size):
        lengths, loads = np.square(radii[part]) if norm == 2 else radii[part], load[part]
        limits = level * loads
        cut = lengths > limits
        counts += int(np.count_nonzero(cut))
        sums.append(float(np.minimum(lengths, limits).sum()))
        weights.append(_weighted_sum(cut.astype(np.float64), loads))
    return counts, math.fsum(sums), math.fsum(weights)


def _largest_sum(radii: Vector, gains: Vector, cap: float) -> tuple[float, float]:
    """Return the largest sum of t_j gain_j over t_j <= radius_j^2 that sum to at most cap^2.

    Any threshold tau >= 0 bounds it by tau cap^2 plus the sum of radius_j^2 (gain_j - tau)_+, and
    the gain of the block at which the cap is reached, the largest gains first, attains it. So a
    threshold that rounding moves makes the sum larger, never smaller. It is returned, too.
    """
    free = float(np.dot(radii, radii)) <= cap**2 * (1 + ALIKE)
    threshold = 0.0 if free else _threshold(radii, gains, cap**2)
    parts = _pieces(radii.size)
    above = math.fsum(_excess(radii[part], gains[part], threshold) for part in parts)
    return threshold * cap**2 + above, threshold


def _excess(radii: Vector, gains: Vector, threshold: float) -> float:
    excess = gains - threshold
    np.maximum(excess, 0.0, out=excess)
    excess *= radii
    return float(np.dot(excess, radii))


def _threshold(radii: Vector, gains: Vector, room: float) -> float:
    """Return the gain of the block that the room ends in, if the largest gains are filled first.

    Only blocks close to a guess from a sample are sorted; where the guess fails, all are.
    """
    if is_constant(gains):
        return float(gains[0])
    stride = -(-gains.size // _SAMPLED_GAINS)
    if stride == 1:
        return _sorted_threshold(np.square(radii), gains, room)
    low, high = _guess(radii[::stride], gains[::stride], room / stride)
    above, squares, middle = [], [], []
    for part in _pieces(gains.size):
        near, lengths = gains[part], np.square(radii[part])
        above.append(float(np.dot(lengths, near > high)))
        inside = (near >= low) & (near <= high)
        squares.append(lengths[inside])
        middle.append(near[inside])
    rest, kept = room - math.fsum(above), np.concatenate(squares)
    if not 0 < rest <= float(kept.sum()):
        return _sorted_threshold(np.square(radii), gains, room)
    return _sorted_threshold(kept, np.concatenate(middle), rest)


def _guess(radii: Vector, gains: Vector, room: float) -> tuple[float, float]:
    """Return gains around the threshold of a sample."""
    order = np.argsort(-gains, kind="stable")
    full = int(np.searchsorted(np.cumsum(np.square(radii[order])), room))
    margin = int(_GUESS_MARGIN * gains.size)
    first, last = max(full - margin, 0), min(full + margin, gains.size - 1)
    high = float(gains[order[first]]) if first else math.inf
    return float(gains[order[last]]), high


def _sorted_threshold(squares: Vector, gains: Vector, room: float) -> float:
    order = np.argsort(-gains, kind="stable")
    full = int(np.searchsorted(np.cumsum(squares[order]), room))
    return float(gains[order[min(full, gains.size - 1)]])
