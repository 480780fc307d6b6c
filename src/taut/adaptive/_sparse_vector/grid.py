"""The public grid of queries and thresholds."""

from __future__ import annotations

import math
from fractions import Fraction

from taut._base import validate

__all__ = ["MOST_STEPS", "checked_sensitivity", "grid_of", "sensitivity_on_grid"]

MOST_STEPS = 2.0**52
"""Of a query or threshold, either side of zero: differences stay in 64 bits."""

_FINENESS = 10  # a sensitivity is 2^10 grid steps at least: rounding adds a thousandth at most
# Squares of noise and of distances within 2^52 steps, and the steps themselves, are then floats.
_LEAST, _LARGEST = 1e-70, 1e70


def checked_sensitivity(sensitivity: float) -> float:
    """Return how far one record moves a query, in units in which floats do not end."""
    step = validate.positive(sensitivity=sensitivity)
    if not _LEAST <= step <= _LARGEST:
        raise ValueError(
            f"sensitivity must be between {_LEAST:g} and {_LARGEST:g}, got "
            f"sensitivity={sensitivity!r}; count in other units"
        )
    return step


def grid_of(sensitivity: float) -> float:
    """Return the power of two that is 2^10 times in a sensitivity, and not 2^11 times."""
    return math.ldexp(1.0, math.frexp(sensitivity)[1] - 1 - _FINENESS)


def sensitivity_on_grid(sensitivity: float) -> float:
    """Return how far one record moves a query after rounding: whole grid steps."""
    grid = grid_of(sensitivity)
    return math.ceil(Fraction(sensitivity) / Fraction(grid)) * grid
