"""Vectors counted in steps of a public grid, without rounding error: values, and sums of rows.

A sum of doubles depends on its order and rounds at every step, so that one record can move it by
more than its own size (Casacuberta, Shoemate, Vadhan and Wagaman 2022). Here rows are cut into
integers, and integers are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Matrix, Vector
from taut.noise._exact_sums import FixedPoint

__all__ = [
    "MOST_STEPS",
    "GridValue",
    "Integers",
    "exact_integers",
    "exact_sum",
    "exact_value",
    "in_steps",
]

Integers: TypeAlias = NDArray[np.int64]

MOST_STEPS = 2**52
"""Where values are cut: they keep their distance from noise in the range of exact doubles."""
_MOST_ROW_STEPS = 2.0**42  # of an entry of a row, so that 2^20 rows sum in 64 bits
_LIMB = 40  # bits, so that 2^20 limbs sum within 64 of them, with carries
_FRACTIONS = 3  # limbs after the point: rows are cut off below 2^-120 steps
_SUMMED_PORTION = 1 << 20  # entries summed at a time, before limbs are carried


@dataclass(frozen=True, eq=False)
class GridValue:
    """A vector in steps of a grid.

    Attributes:
        whole: an integer near every coordinate.
        rest: what is left, in [-1, 1], to the precision of a double.
        exact: the coordinate of an index, as the rational number that it is.
    """

    whole: Integers
    rest: Vector
    exact: Callable[[int], Fraction]

    def portion(self, start: int, stop: int) -> GridValue:
        """Return the coordinates from start until before stop."""
        return GridValue(
            self.whole[start:stop], self.rest[start:stop], lambda i: self.exact(start + i)
        )


def in_steps(value: FixedPoint, exponents: NDArray[np.intc]) -> GridValue:
    """Return an exact vector in steps of 2^exponents, cut at `MOST_STEPS` on both sides."""
    whole = np.empty(exponents.size, dtype=np.int64)
    rest = np.empty(exponents.size)
    pairs = zip(value.integers(), exponents.tolist(), strict=True)
    for i, (units, exponent) in enumerate(pairs):
        whole[i], rest[i] = _nearest_step(units, value.exponent - exponent)

    def exact(i: int) -> Fraction:
        return _cut(value.fraction(i) * _power(-int(exponents[i])))

    return GridValue(whole, rest, exact)


def exact_integers(
    units: Sequence[int], unit_exponents: Sequence[int], exponents: NDArray[np.intc]
) -> GridValue:
    """Return integers in units of powers of two, in steps of 2^exponents, cut at `MOST_STEPS`."""
    whole = np.empty(len(units), dtype=np.int64)
    rest = np.empty(len(units))
    shifts = [int(own) - step for own, step in zip(unit_exponents, exponents.tolist(), strict=True)]
    for i, (integer, shift) in enumerate(zip(units, shifts, strict=True)):
        whole[i], rest[i] = _nearest_step(int(integer), shift)

    def exact(i: int) -> Fraction:
        return _cut(int(units[i]) * _power(shifts[i]))

    return GridValue(whole, rest, exact)


def _nearest_step(units: int, shift: int) -> tuple[int, float]:
    """Return the integer nearest to units 2^shift, cut, and the rest as a double."""
    if shift >= 0:
        return max(min(units << shift, MOST_STEPS), -MOST_STEPS), 0.0
    edge = MOST_STEPS << -shift
    kept = max(min(units, edge), -edge)
    nearest = (kept + (1 << (-shift - 1))) >> -shift
    return nearest, (kept - (nearest << -shift)) / (1 << -shift)


def exact_value(vector: Vector, exponents: NDArray[np.intc]) -> GridValue:
    """Return a vector in steps of 2^exponents, cut at `MOST_STEPS` on both sides."""
    with np.errstate(over="ignore"):
        steps = np.clip(np.ldexp(vector, -exponents), -MOST_STEPS, MOST_STEPS)
    whole = np.rint(steps)

    def exact(i: int) -> Fraction:
        return _cut(Fraction(float(vector[i])) * _power(-int(exponents[i])))

    return GridValue(whole.astype(np.int64), steps - whole, exact)


def exact_sum(rows: Matrix, exponents: NDArray[np.intc]) -> GridValue:
    """Return the sum of the rows in steps of 2^exponents, cut at `MOST_STEPS` on both sides.

    **Guarantee**: one record moves the sum by exactly what it contributes, or less. Entries of rows
    are cut at 2^42 steps, and below the point towards zero after 120 bits; the sum of what
    remains is exact, in any order.
    """
    # Multiples of 2^40 steps, the steps below them, and limbs after the point.
    limbs = np.zeros((2 + _FRACTIONS, rows.shape[1]), dtype=np.int64)
    height = max(1, _SUMMED_PORTION // rows.shape[1])
    for start in range(0, len(rows), height):
        portion = rows[start : start + height].astype(np.float64)
        _add_portion(limbs, portion, exponents)
    high, units, fractions = limbs[0], limbs[1], limbs[2:]
    edge = MOST_STEPS >> _LIMB
    beyond = (high >= edge) | (high < -edge)
    kept = np.clip(high, -edge, edge - 1)
    whole = np.where(beyond, np.where(high > 0, MOST_STEPS, -MOST_STEPS), (kept << _LIMB) + units)
    rest = fractions[0] * 2.0**-_LIMB + fractions[1] * 2.0 ** (-2 * _LIMB)

    def exact(i: int) -> Fraction:
        total = int(high[i])
        for limb in limbs[1:, i]:
            total = (total << _LIMB) + int(limb)
        return _cut(Fraction(total, 1 << (_FRACTIONS * _LIMB)))

    return GridValue(whole, np.where(beyond, 0.0, rest), exact)


def _add_portion(limbs: Integers, rows: Matrix, exponents: NDArray[np.intc]) -> None:
    """Add rows to limbs, in place, and carry, so that all but the first are in [0, 2^40)."""
    with np.errstate(over="ignore"):
        left = np.clip(np.ldexp(rows, -exponents), -_MOST_ROW_STEPS, _MOST_ROW_STEPS)
    for limb in limbs[1:]:
        whole = np.trunc(left)
        limb += whole.astype(np.int64).sum(axis=0)
        left -= whole
        if not left.any():
            break
        left *= 2.0**_LIMB
    for j in range(len(limbs) - 1, 0, -1):
        limbs[j - 1] += limbs[j] >> _LIMB
        limbs[j] &= (1 << _LIMB) - 1


def _cut(steps: Fraction) -> Fraction:
    return max(min(steps, Fraction(MOST_STEPS)), Fraction(-MOST_STEPS))


def _power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)
