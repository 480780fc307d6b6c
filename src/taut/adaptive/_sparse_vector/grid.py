"""The public grid of queries and thresholds."""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["grid_of", "sensitivity_on_grid"]

_FINENESS = 10  # a sensitivity is 2^10 grid steps at least: rounding adds a thousandth at most


def grid_of(sensitivity: float) -> float:
    """Return the power of two that is 2^10 times in a sensitivity, and not 2^11 times."""
    return math.ldexp(1.0, math.frexp(sensitivity)[1] - 1 - _FINENESS)


def sensitivity_on_grid(sensitivity: float) -> float:
    """Return how far one record moves a query after rounding: whole grid steps."""
    grid = grid_of(sensitivity)
    return math.ceil(Fraction(sensitivity) / Fraction(grid)) * grid
