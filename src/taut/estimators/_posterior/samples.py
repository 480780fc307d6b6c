"""Normal numbers to two hundred digits, and the posterior sample that is made of them.

A normal number is drawn exactly up to a cell of 2^-30; where it lies in its cell is drawn by
rejection from uniform bits, 128 of them. What is left of the error is accounted as a failure.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np

from taut._base.arrays import Vector
from taut.estimators._posterior.equations import Ridge, precisely
from taut.noise import RandomSource, rounded_noise

__all__ = ["VARIATION", "grid_exponent", "in_doubles", "rounded_sample"]

VARIATION = 2.0**-90
"""Bound on the total variation between a sample and the rounded posterior; 512 features of which
each errs by less than 2^-100 (docs/theory/posterior-sampling.md)."""

_CELL_BITS = 30  # of a normal number, drawn exactly
_BITS = 128  # of its place within the cell, and of the decision to keep it
_HALF = Decimal("0.5")
_GRID_BITS = 40  # of the grid, below the largest deviation that a posterior may have


def grid_exponent(ridge: float, precision: float) -> int:
    """Return the binary exponent of the public grid, in clips of targets per clip of features.

    Args:
        ridge: ridge in squares of the clip of the features.
        precision: precision of the residuals in one over squares of the clip of the targets.
    """
    return math.frexp(1 / math.sqrt(ridge * precision))[1] - _GRID_BITS


def rounded_sample(
    ridge: Ridge, precision: float, exponent: int, source: RandomSource
) -> list[int]:
    """Return a sample of the posterior in steps of the grid, as integers.

    Args:
        ridge: regression whose posterior is sampled.
        precision: precision of the residuals.
        exponent: binary exponent of the grid.
        source: source of the random bits.
    """
    with precisely():
        direction = _normal_numbers(len(ridge.solution), source)
        scale = 1 / Decimal(precision).sqrt()
        step = Decimal(2) ** exponent
        moved = ridge.moved(direction, scale)
        return [int((one / step).to_integral_value()) for one in moved]


def in_doubles(steps: list[int], exponent: int, unit: float) -> Vector:
    """Return steps of the grid as doubles: a function of what was released."""
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(np.array(steps, dtype=np.float64), exponent) * unit


def _normal_numbers(size: int, source: RandomSource) -> list[Decimal]:
    cells = rounded_noise("gaussian", 2.0**_CELL_BITS, size, generator=source)
    return [_within(int(cell), source) for cell in cells]


def _within(cell: int, source: RandomSource) -> Decimal:
    """Return a normal number given that it rounds to a cell, by rejection from a uniform one."""
    unit = Decimal(2) ** -_CELL_BITS
    nearest = max(abs(cell) - _HALF, Decimal(0)) * unit
    while True:
        number = (cell + _uniform(source) - _HALF) * unit
        if _uniform(source) < (-(number * number - nearest * nearest) / 2).exp():
            return number


def _uniform(source: RandomSource) -> Decimal:
    """Return a number in (0, 1), the middle of one of 2^128 cells."""
    bits = int.from_bytes(source.bytes(_BITS // 8), "big")
    return Decimal(2 * bits + 1) / Decimal(2) ** (_BITS + 1)
