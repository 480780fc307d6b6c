"""Independent variables added on a lattice that is fine at its centre and coarse in its tails.

Level e has nodes centre + i 2^e. The lowest level holds |i| <= N, every other N/2 < |i| <= N: the
distance of neighbours is at most 2/N of that from the centre, as among floating-point numbers. All
nodes are floats without rounding, and each level's nodes are nodes of the level below. The sum of
two variables is then a handful of plain convolutions of short vectors: the outer nodes of every
level with all that lies further in, brought to the distances of that level first.

Masses are non-negative and so is every product and sum of them: rounding errors stay relative, and
no tail drowns in the rounding of the bulk. Bringing mass to coarser nodes is where bounds are made:

* *spread* (upper): mass between two nodes goes to both, so that mass and mean are kept;
* *merged* (lower): nodes are joined two by two, and what is joined moves to its mean.

Which mean is kept is a matter of the scale: that of exp(-L) for losses, that of the variable itself
for likelihood ratios (docs/theory/convex-order.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from taut._base.arrays import Vector
from taut.accounting._pairs.discretisation import BeyondLattice

__all__ = [
    "BULK_SHARE",
    "Dyadic",
    "MergedLosses",
    "MergedRatios",
    "Scale",
    "SpreadLosses",
    "SpreadRatios",
    "power",
]

BULK_SHARE = 0.25
"""Mean absolute deviation of a variable in distances of its lowest level, over N."""
_OPERATION_ERROR = (
    1.01 * 2.0**-53
)  # relative, of one operation, with room for products of such errors
_LEVEL_ROUNDINGS = 10  # of a mass passing a level: its weight, a product, sums, inwards and back
_SKIPPED_SHARE = 1 / 64  # of what may be cut: products with less mass are not formed at all
_FAINTEST_MASS = 1e-290  # smaller masses are dropped, and counted as cut: they have lost digits
# From the narrowest bulk to the largest loss, or from the least ratio to the largest: exp(920).
_MOST_LEVELS = 1500


class Scale(Protocol):
    """What the rows of a law mean, and how they are brought to other nodes.

    Row 0 holds masses; a second row, if there is one, says where in its cell a mass sits.
    """

    rows: int
    one_sided: bool
    """Whether only large values count, so that small ones may be raised or dropped."""
    fine_centre: bool
    """Whether values near the centre are told apart however far the bulk is from it."""

    def coarser(self, values: Vector, width: float) -> Vector:
        """Return rows on nodes twice ``width`` apart, for an odd number of nodes around zero."""

    def times(self, left: Vector, right: Vector) -> Vector:
        """Return the rows of the sum of two independent variables."""

    def settled(self, values: Vector, width: float) -> Vector:
        """Return rows in which every mass is held by a node near it."""


class _Spread:
    rows = 1
    fine_centre = False

    def times(self, left: Vector, right: Vector) -> Vector:
        """Return the convolution."""
        return np.convolve(left[0], right[0])[None, :]

    def settled(self, values: Vector, width: float) -> Vector:
        """Return ``values``: every mass sits on its node."""
        return values


class SpreadLosses(_Spread):
    """Losses L, upper side: E exp(-L) is kept, so every profile rises."""

    one_sided = True

    def coarser(self, values: Vector, width: float) -> Vector:
        """Split what lies between two kept nodes."""
        stays = math.exp(-width)
        odd, result = values[:, 1::2], values[:, ::2].copy()
        result[:, 1:] += odd / (1 + stays)
        result[:, :-1] += odd * (stays / (1 + stays))
        return result


class SpreadRatios(_Spread):
    """Likelihood ratios under Q, upper side: their mean is kept, so every profile rises."""

    one_sided = False

    def __init__(self, *, fine_centre: bool) -> None:
        self.fine_centre = fine_centre

    def coarser(self, values: Vector, width: float) -> Vector:
        """Split what lies between two kept nodes, half and half."""
        odd, result = 0.5 * values[:, 1::2], values[:, ::2].copy()
        result[:, 1:] += odd
        result[:, :-1] += odd
        return result


class MergedLosses:
    """Losses L, lower side: row 1 is E exp(node - L), which multiplies in sums as masses do."""

    rows = 2
    one_sided = True
    fine_centre = False

    def times(self, left: Vector, right: Vector) -> Vector:
        """Return both convolutions."""
        result = np.empty((2, left.shape[1] + right.shape[1] - 1))
        for i in (0, 1):
            result[i] = np.convolve(left[i], right[i])
        return self._kept_up(result)

    def coarser(self, values: Vector, width: float) -> Vector:
        """Join every node between two kept ones to the one below."""
        result = values[:, ::2].copy()
        result[0, :-1] += values[0, 1::2]
        result[1, :-1] += values[1, 1::2] * math.exp(-width)
        return self._kept_up(result)

    def settled(self, values: Vector, width: float) -> Vector:
        """Move what sits above the next node to that node."""
        moved = np.flatnonzero(values[1, :-1] < math.exp(-width) * values[0, :-1])
        if moved.size == 0:
            return values
        part = values[:, moved] * np.array([[1.0], [math.exp(width)]])
        values[:, moved] = 0.0
        values[:, moved + 1] += part
        return values

    @staticmethod
    def _kept_up(values: Vector) -> Vector:
        """Raise moments that are too small for a float, which lowers losses; zero is infinite."""
        np.maximum(values[1], _FAINTEST_MASS, out=values[1], where=values[0] > 0)
        return values


class MergedRatios:
    """Likelihood ratios r under Q, lower side: row 1 is E (r - node), never negative."""

    rows = 2
    one_sided = False

    def __init__(self, *, fine_centre: bool) -> None:
        self.fine_centre = fine_centre

    def times(self, left: Vector, right: Vector) -> Vector:
        """Return the masses, and how far above their nodes they sit."""
        above = np.convolve(left[1], right[0]) + np.convolve(left[0], right[1])
        return np.stack([np.convolve(left[0], right[0]), above])

    def coarser(self, values: Vector, width: float) -> Vector:
        """Join every node between two kept ones to the one below."""
        result = values[:, ::2].copy()
        result[:, :-1] += values[:, 1::2]
        result[1, :-1] += values[0, 1::2] * width
        return result

    def settled(self, values: Vector, width: float) -> Vector:
        """Move what sits above the next node to that node."""
        moved = np.flatnonzero(values[1, :-1] > width * values[0, :-1])
        if moved.size == 0:
            return values
        part = values[:, moved]
        part[1] = np.maximum(part[1] - width * part[0], 0.0)
        values[:, moved] = 0.0
        values[:, moved + 1] += part
        return values


@dataclass(frozen=True)
class Dyadic:
    """The law of a variable on nodes centre + i 2^e.

    Attributes:
        scale: what is kept when mass moves.
        half: N; the lowest level has nodes |i| <= N, the others N/2 < |i| <= N; divisible by 4.
        centre: a multiple of the lowest distance.
        levels: rows of every level by its exponent, each of shape (rows, 2 N + 1).
        lost: mass that was cut at the top, or is too small for a float.
        error: bound on the relative rounding error of every mass.
    """

    scale: Scale
    half: int
    centre: float
    levels: dict[int, Vector]
    lost: float
    error: float

    @property
    def bottom(self) -> int:
        """Exponent of the lowest level."""
        return min(self.levels)

    def nodes(self) -> tuple[Vector, Vector]:
        """Return all nodes with mass, in increasing order, and their rows."""
        places, rows = [], []
        for e, values in self.levels.items():
            at = np.flatnonzero(values[0])
            places.append(self.centre + np.ldexp((at - self.half).astype(float), e))
            rows.append(values[:, at])
        where, what = np.concatenate(places), np.concatenate(rows, axis=1)
        order = np.argsort(where, kind="stable")
        return where[order], what[:, order]

    def plus(self, other: Dyadic, cut: float) -> Dyadic:
        """Return the law of the sum with an independent ``other``.

        At most ``cut`` of mass is taken off at the top and counted as lost. As much at the bottom
        is raised to the centre where laws are spread, and dropped where they are merged.
        """
        scale, half = self.scale, self.half
        sums, skipped, longest = _products(self, other, cut * _SKIPPED_SHARE)
        count = len(sums)
        if count > _MOST_LEVELS:
            raise BeyondLattice(f"{count} levels")
        for e, values in sums.items():
            sums[e] = scale.settled(values, math.ldexp(1.0, e))
        levels = _regrid(sums, scale, half)
        lost = _trim(levels, scale, half, cut)
        # A sum of n products, none negative, is off by n roundings at most, in any order.
        rounding = (longest + _LEVEL_ROUNDINGS * (len(levels) + count)) * _OPERATION_ERROR
        return Dyadic(
            scale,
            half,
            self.centre + other.centre,
            levels,
            self.lost + other.lost + (skipped + lost + _FAINTEST_MASS) * (1 + rounding),
            self.error + other.error + rounding,
        )


def power(law: Dyadic, count: int, cut: float) -> Dyadic:
    """Return the law of the sum of ``count`` copies, by squaring; ``cut`` is for each copy."""
    result, copies = law, 1
    for digit in bin(count)[3:]:
        copies *= 2
        result = result.plus(result, cut * copies)
        if digit == "1":
            copies += 1
            result = result.plus(law, cut * copies)
    return result


def _products(
    left: Dyadic, right: Dyadic, negligible: float
) -> tuple[dict[int, Vector], float, int]:
    """Return the sum on the distances of both laws.

    Also, the mass of what was not formed, and the number of terms of the longest sum of products.

    Every level has nodes |i| <= 2 N + 2: sums reach twice as far, and settling moves them by one.
    """
    scale, half = left.scale, left.half
    sums: dict[int, Vector] = {}
    skipped, longest = 0.0, 0
    inner_left: Vector | None = None
    inner_right: Vector | None = None
    for e in range(min(left.bottom, right.bottom), max(*left.levels, *right.levels) + 1):
        whole_left = _joined(left.levels.get(e), inner_left, half)
        whole_right = _joined(right.levels.get(e), inner_right, half)
        if left is right:
            tasks = [(left, _added(whole_left, inner_left))]
        else:
            tasks = [(left, whole_right), (right, inner_left)]
        result = np.zeros((scale.rows, 4 * half + 5))
        for law, others in tasks:
            if others is None:
                continue
            first, other = _trimmed(others, -(others.shape[1] // 2))
            if other.size == 0:  # all that lies further in was too faint for a float
                continue
            mass = float(other[0].sum())
            for start, run in _outer(law, e):
                weight = float(run[0].sum()) * mass
                if weight == 0 or skipped + weight < negligible:
                    skipped += weight
                    continue
                start, run = _trimmed(run, start)
                longest = max(longest, min(run.shape[1], other.shape[1]))
                at = 2 * half + 2 + first + start
                product = scale.times(run, other)
                result[:, at : at + product.shape[1]] += product
        sums[e] = result
        width = math.ldexp(1.0, e)
        inner_left = None if whole_left is None else scale.coarser(whole_left, width)
        inner_right = inner_left
        if left is not right:
            inner_right = None if whole_right is None else scale.coarser(whole_right, width)
    return sums, skipped, longest


def _joined(outer: Vector | None, inner: Vector | None, half: int) -> Vector | None:
    """Return all that a level sees: its own nodes, and those further in on its distances."""
    if outer is None and inner is not None:
        outer = np.zeros((inner.shape[0], 2 * half + 1))
    return outer if inner is None else _added(outer, inner)


def _added(rows: Vector | None, inner: Vector | None) -> Vector | None:
    """Return ``rows`` with ``inner`` added around their middle."""
    if rows is None or inner is None:
        return rows
    total = rows.copy()
    margin = (rows.shape[1] - inner.shape[1]) // 2
    total[:, margin : margin + inner.shape[1]] += inner
    return total


def _outer(law: Dyadic, e: int) -> Iterator[tuple[int, Vector]]:
    """Yield runs of nodes of a level, each with the index of its first."""
    values, half = law.levels.get(e), law.half
    if values is None:
        return
    if e == law.bottom:
        yield -half, values
    else:
        quarter = half // 2
        yield -half, values[:, :quarter]
        yield quarter + 1, values[:, half + quarter + 1 :]


def _trimmed(rows: Vector, first: int) -> tuple[int, Vector]:
    """Return ``rows`` without empty ends, and the index of what is then the first."""
    at = rows[0].nonzero()[0]
    if at.size == 0:
        return first, rows[:, :0]
    return first + int(at[0]), rows[:, at[0] : at[-1] + 1]


def _regrid(sums: dict[int, Vector], scale: Scale, half: int) -> dict[int, Vector]:
    """Return sums on nodes as near to the centre as their level demands, and no finer than needed.

    Towards the centre the move is exact; away from it mass is spread or merged.
    """
    middle = 2 * half + 2
    away = np.abs(np.arange(-middle, middle + 1))
    total = math.fsum(float(rows[0].sum()) for rows in sums.values())
    if not 0 < total < math.inf:
        raise BeyondLattice("no mass left")
    far = math.fsum(math.ldexp(float(rows[0] @ away), e) for e, rows in sums.items())
    lowest = min(sums)
    bottom = lowest
    if not scale.fine_centre:
        bottom = max(_exponent(far / total / (BULK_SHARE * half)), lowest)
    e, top = lowest, max(sums)
    inside = slice(middle - half, middle + half + 1)
    while e <= top:
        beyond = rows = sums[e]
        if e >= bottom:
            beyond = rows.copy()
            beyond[:, inside] = 0.0
        if beyond[0].any():
            if e == top:
                top += 1
                sums[top] = np.zeros_like(rows)
            coarse = scale.coarser(beyond, math.ldexp(1.0, e))
            margin = (rows.shape[1] - coarse.shape[1]) // 2
            sums[e + 1][:, margin : margin + coarse.shape[1]] += coarse
        e += 1
    quarter = half // 2
    for e in range(top, bottom, -1):
        near = sums[e][:, middle - quarter : middle + quarter + 1]
        sums[e - 1][:, middle - half : middle + half + 1 : 2] += near
        near[:] = 0.0
    return {e: sums[e][:, inside].copy() for e in range(bottom, top + 1)}


def _exponent(width: float) -> int:
    """Return the largest exponent of a power of two that is at most ``width``."""
    return math.frexp(width)[1] - 1 if width > 0 else -(10**6)


def _trim(levels: dict[int, Vector], scale: Scale, half: int, cut: float) -> float:
    """Cut at most ``cut`` of mass at either end, in place, and return what was cut at the top."""
    bottom = min(levels)
    faint = 0
    for values in levels.values():
        small = (values[0] < _FAINTEST_MASS) & (values[0] > 0)
        if small.any():
            faint += int(small.sum())
            values[:, small] = 0.0
    above = below = 0.0
    rooms = [cut, cut if scale.one_sided else 0.0]
    for e in range(max(levels), bottom - 1, -1):
        values = levels[e]
        for side, inwards in enumerate((values[:, :half:-1], values[:, :half])):
            if not rooms[side] > 0:
                continue
            masses = np.cumsum(inwards[0])
            count = int(np.searchsorted(masses, rooms[side], side="right"))
            taken = float(masses[count - 1]) if count else 0.0
            inwards[:, :count] = 0.0
            above, below = (above + taken, below) if side == 0 else (above, below + taken)
            rooms[side] = rooms[side] - taken if count == half else 0.0
        if e > bottom and not values.any():
            del levels[e]
    if scale.rows == 1:
        levels[bottom][0, half] += below
    return above + faint * _FAINTEST_MASS
