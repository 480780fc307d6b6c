"""Doubles as integers in limbs: their sums and their products with a matrix, without an error.

A limb has 20 bits. A product of two has 40, and 4096 such products sum to at most 2^52, which a
matrix product of doubles does without rounding, in whatever order it adds. So the results are
those of integers, at the speed of matrix products.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Matrix, Vector

__all__ = [
    "COEFFICIENT_ERROR",
    "FixedPoint",
    "Integers",
    "carried",
    "coarse",
    "coefficients",
    "column_sums",
    "combined",
    "fine_axes",
    "fixed_point",
    "in_chunks",
    "moderate",
    "moment_limbs",
    "outer_products",
]

Integers: TypeAlias = NDArray[np.int64]
Doubles: TypeAlias = NDArray[np.float64]

_LIMB_BITS = 20  # so that 2^12 products of two limbs sum exactly in doubles
_HALF_LIMB = 1 << (_LIMB_BITS - 1)  # where limbs with a sign are carried
_CHUNK = 1 << 12  # products of two limbs that sum to at most 2^52
_SHORT_CHUNK = 1 << 11  # the same for sums of three such products
_LIMB_STEP = 2.0**-_LIMB_BITS  # what one limb is worth in the one before
_SPLIT_PORTION = 1 << 20  # entries that are split at a time
_AXIS_BITS = 60  # of an entry of an axis, three limbs: as fine as doubles above 2^-7
_LARGEST = 960  # binary exponent of a row: its coefficients are floats in any dimension below 2^60
_PLAIN_EXPONENT = 900  # up to which powers of two multiply without leaving the normal doubles
COEFFICIENT_ERROR = 2.0**-57
"""Of `coefficients`, per coordinate: twice the 2^-60 that either side is cut off at, what products
of low limbs are left out, and the rounding of the sum, together below 2^-58."""


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """An array of integer multiples of a power of two, written in limbs.

    Attributes:
        limbs: integers of at most 2^20 in magnitude, as doubles; those of the lowest order first.
        exponent: the binary exponent of the lowest order, a multiple of 20.
    """

    limbs: Doubles
    exponent: int

    def times(self, chunks: Iterable[FixedPoint]) -> FixedPoint:
        """Return the exact product of a table, one row per vector, with a matrix `in_chunks`."""
        orders, rows, _ = self.limbs.shape
        total: FixedPoint | None = None
        start = 0
        for other in chunks:
            more, inner, columns = other.limbs.shape
            part = self.limbs[:, :, start : start + inner].reshape(orders * rows, inner)
            sums = np.zeros((orders + more - 1, rows, columns), dtype=np.int64)
            for j, limb in enumerate(other.limbs):
                products = (part @ limb).astype(np.int64)
                sums[j : j + orders] += products.reshape(orders, rows, columns)
            found = carried(sums, self.exponent + other.exponent)
            total = found if total is None else total.plus(found)
            start += inner
        assert total is not None
        return total

    def plus(self, other: FixedPoint) -> FixedPoint:
        """Return the exact sum."""
        low = min(self.exponent, other.exponent)
        high = max(one.exponent + _LIMB_BITS * len(one.limbs) for one in (self, other))
        sums = np.zeros(((high - low) // _LIMB_BITS, *self.limbs.shape[1:]), dtype=np.int64)
        for one in (self, other):
            first = (one.exponent - low) // _LIMB_BITS
            sums[first : first + len(one.limbs)] += one.limbs.astype(np.int64)
        return carried(sums, low)

    def minus(self, other: FixedPoint) -> FixedPoint:
        """Return the exact difference."""
        return self.plus(FixedPoint(-other.limbs, other.exponent))

    def doubles(self) -> Doubles:
        """Return the nearest doubles, with a relative error below 2^-50.

        Limbs that were carried lie in [-2^19, 2^19], so what follows the first that is not zero is
        at most about half of its unit: summing from below loses a few last bits, and no more.
        """
        result: Doubles = np.zeros(self.limbs.shape[1:])
        with np.errstate(over="ignore", under="ignore"):
            for order, limb in enumerate(self.limbs):
                result = result + _shifted(limb, self.exponent + _LIMB_BITS * order)
        return result

    def integers(self) -> list[int]:
        """Return the entries of a vector as Python integers, in units of 2^exponent."""
        total = np.zeros(self.limbs.shape[1], dtype=object)
        for limb in self.limbs[::-1]:
            total = total * (1 << _LIMB_BITS) + limb.astype(np.int64).astype(object)
        return [int(entry) for entry in total]

    def fraction(self, i: int) -> Fraction:
        """Return one entry of a vector as the rational number that it is."""
        total = 0
        for limb in self.limbs[::-1, i]:
            total = (total << _LIMB_BITS) + int(limb)
        return Fraction(total) * Fraction(2) ** self.exponent


def fixed_point(array: Doubles) -> FixedPoint:
    """Return finite doubles of any size, exactly."""
    left = np.array(array, dtype=np.float64)
    exponent = _LIMB_BITS * ((int(np.frexp(np.abs(left).max(initial=0.0))[1]) - 1) // _LIMB_BITS)
    limbs = []
    with np.errstate(under="ignore"):
        while True:
            limb = np.trunc(_shifted(left, -exponent))
            left -= _shifted(limb, exponent)
            limbs.append(limb)
            if not left.any():
                return FixedPoint(np.array(limbs[::-1]), exponent)
            exponent -= _LIMB_BITS


def in_chunks(matrix: Matrix) -> Iterator[FixedPoint]:
    """Yield the rows of a matrix, as many at a time as products with them sum without rounding."""
    for start in range(0, len(matrix), _CHUNK):
        yield fixed_point(matrix[start : start + _CHUNK])


def _shifted(array: Doubles, exponent: int) -> Doubles:
    """Return the array times 2^exponent: by a product where that is exact, as it is much faster."""
    if abs(exponent) <= _PLAIN_EXPONENT:
        return array * 2.0**exponent
    return np.ldexp(array, exponent)


def column_sums(rows: Matrix) -> FixedPoint:
    """Return the exact sum of all rows, in any order and of any size."""
    total = FixedPoint(np.zeros((1, rows.shape[1])), 0)
    for portion in _portions(rows):
        split = fixed_point(portion)
        sums = split.limbs.sum(axis=1).astype(np.int64)  # of at most 2^20 limbs: exact
        total = total.plus(carried(sums, split.exponent))
    return total


def moment_limbs(columns: Matrix, last: int) -> Integers:
    """Return the exact sum of x xᵀ over columns in [-1, 1], cut towards zero to 40 bits.

    Cutting makes none longer, and what one adds does not depend on the others.

    Args:
        columns: one vector per column, 2^11 at most; it is overwritten.
        last: number of coordinates, the last ones, products with which are wanted.

    Returns:
        Coefficients of 2^-80, 2^-60 and 2^-40, each below 2^53.
    """
    columns *= 2.0**_LIMB_BITS
    high = np.trunc(columns)
    columns -= high
    columns *= 2.0**_LIMB_BITS
    low = np.trunc(columns, out=columns)
    sums = np.zeros((3, len(columns), len(columns)), dtype=np.int64)
    if last == len(columns):
        sums[0], sums[2] = low @ low.T, high @ high.T
        low += high  # (h + l)(h + l)ᵀ, of at most 2^42 each, is symmetric: half the work of h lᵀ
        sums[1] = low @ low.T
        sums[1] -= sums[0] + sums[2]
        return sums
    part = slice(len(columns) - last, None)
    cross = (low @ low[part].T, high @ low[part].T + low @ high[part].T, high @ high[part].T)
    for order, product in enumerate(cross):
        sums[order, :, part] = product
        sums[order, part, :] = product.T
    return sums


def coarse(rows: Matrix) -> Matrix:
    """Return entries in [-1, 1] cut towards zero to 20 bits: single limbs, as fractions."""
    return np.trunc(rows * 2.0**_LIMB_BITS) * _LIMB_STEP


def outer_products(left: Matrix, right: Matrix) -> FixedPoint:
    """Return the exact sum over rows of l rᵀ, for `coarse` entries: one matrix product."""
    total = FixedPoint(np.zeros((1, left.shape[1], right.shape[1])), 0)
    unit = 2.0 ** (2 * _LIMB_BITS)
    for start in range(0, len(left), _CHUNK):
        sums = left[start : start + _CHUNK].T @ right[start : start + _CHUNK]
        whole = (sums * unit).astype(np.int64)[None]
        total = total.plus(carried(whole, -2 * _LIMB_BITS))
    return total


def coefficients(rows: Matrix, axes: Matrix) -> Matrix:
    """Return the products of finite rows with unit vectors, columns, every row as if alone.

    **Guarantee**: nothing of the other rows enters, to the last bit. A product is right to 2^-51 of
    itself and `COEFFICIENT_ERROR` times the dimension and the largest entry of the row, up to
    underflow; beyond the range of floats it is infinite, see `moderate`.
    """
    result = np.empty((len(rows), axes.shape[1]))
    height = max(1, _SPLIT_PORTION // max(axes.shape))
    for start in range(0, len(rows), height):
        portion = rows[start : start + height]
        sizes = np.frexp(np.abs(portion).max(axis=1, initial=0.0))[1][:, None]
        with np.errstate(over="ignore", under="ignore"):
            found = _unit_products(np.ldexp(portion, -sizes), axes)
            result[start : start + height] = np.ldexp(found, sizes)
    return result


def _unit_products(rows: Matrix, axes: Matrix) -> Matrix:
    """Return products of rows in [-1, 1] with unit vectors: sums of limbs, of three orders each.

    The limbs of the first order are at most 2^20 times the entries, so that their products sum to
    less than 2^40 by Cauchy's inequality times the root of the dimension; others are summed in
    chunks. So no matrix product rounds, and none depends on how it adds.
    """
    orders = [np.zeros((len(rows), axes.shape[1])) for _ in range(3)]
    for start in range(0, rows.shape[1], _SHORT_CHUNK):
        part = slice(start, start + _SHORT_CHUNK)
        ours, theirs = _three_limbs(rows[:, part]), _three_limbs(axes[part])
        for order, total in enumerate(orders):
            left = np.concatenate(ours[: order + 1], axis=1)
            total += left @ np.concatenate(theirs[order::-1], axis=0)
    first, second, third = orders
    result: Matrix = first + _LIMB_STEP * (second + _LIMB_STEP * third)
    return result * _LIMB_STEP**2


def _three_limbs(entries: Matrix) -> list[Matrix]:
    """Return the first 60 bits of numbers in [-1, 1], in limbs."""
    limbs, left = [], entries
    for _ in range(3):
        left = left * 2.0**_LIMB_BITS
        limb = np.trunc(left)
        left = left - limb
        limbs.append(limb)
    return limbs


def combined(weights: Matrix, axes: Matrix) -> Matrix:
    """Return the sums of columns with the weights of every row, as `coefficients` does."""
    return coefficients(weights, axes.T)


def moderate(rows: Matrix) -> tuple[Matrix, Vector]:
    """Return rows below 2^960, and the powers of two by which those beyond were divided."""
    sizes = np.frexp(np.abs(rows).max(axis=1, initial=0.0))[1]
    beyond = np.maximum(sizes - _LARGEST, 0)
    with np.errstate(under="ignore"):
        return np.ldexp(rows, -beyond[:, None]), np.ldexp(1.0, beyond)


def fine_axes(columns: Matrix) -> Matrix:
    """Return axes with entries in multiples of 2^-60, read-only: three limbs each.

    Entries of a unit vector move by 2^-61 at most, less than the rounding of larger doubles.
    """
    fine: Matrix = np.ldexp(np.rint(np.ldexp(columns, _AXIS_BITS)), -_AXIS_BITS)
    fine.setflags(write=False)
    return fine


def carried(sums: Integers, exponent: int) -> FixedPoint:
    """Return orders of integers below 2^62 as limbs in [-2^19, 2^19], unique for every number."""
    limbs = []
    carry = np.zeros_like(sums[0])
    for whole in [*sums, carry, carry, carry]:
        moved = whole + carry
        carry = (moved + _HALF_LIMB) >> _LIMB_BITS
        limbs.append(moved - (carry << _LIMB_BITS))
    return _trimmed(np.array(limbs, dtype=np.float64), exponent)


def _trimmed(limbs: Doubles, exponent: int) -> FixedPoint:
    """Leave out orders at both ends that are zero everywhere."""
    used = np.flatnonzero(limbs.reshape(len(limbs), -1).any(axis=1))
    if not used.size:
        return FixedPoint(limbs[:1], exponent)
    first, last = int(used[0]), int(used[-1])
    return FixedPoint(limbs[first : last + 1], exponent + _LIMB_BITS * first)


def _portions(rows: Matrix) -> Iterator[Matrix]:
    height = max(1, _SPLIT_PORTION // max(rows.shape[1], 1))
    for start in range(0, len(rows), height):
        yield rows[start : start + height].astype(np.float64)
