"""A column of numbers between public bounds, as integers of a public unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut._base.arrays import Vector

__all__ = ["BITS", "ClippedColumn", "checked_name"]

BITS = 30
"""Integers are at most 2^30: products fit into int64, and what rounding to the unit can add to a
mean is at most 2^-30 of half the range, far below the noise for fewer than 10^8 records."""

_LARGEST = 1e30  # a bound: noise on squares, and its variance, stay far from the ends of floats
_NARROWEST = 1e-30  # bounds apart, likewise
_CLOSEST = 1e-12  # bounds apart, of their distance from zero: between others are too few doubles


@dataclass(frozen=True)
class ClippedColumn:
    """A column of numbers, of which each is cut to a range that is public.

    Args:
        name: name of the column.
        lower: least value that counts as itself.
        upper: largest value that counts as itself.

    A value x becomes the integer ⌊(clip(x) - middle) / unit + 1/2⌋, computed in doubles: the middle
    of the range is 0, and no value is beyond ±`reach`. Values below and above the range, infinity
    included, become its ends. A missing value (NaN, null, None) is 0, and not counted as present.

    **Guarantee**: the integer is a function of the value alone, the same in every engine, so sums
    depend neither on the engine nor on the order of the rows. Adding or removing a record moves a
    sum by at most `reach`, replacing one by at most `span`.

    Raises:
        ValueError: if the bounds are the wrong way round, not finite, or too close for doubles.

    Example:
        >>> from taut.statistics import ClippedColumn
        >>> age = ClippedColumn("age", 18, 90)
        >>> age.middle, age.unit * age.reach
        (54.0, 36.0)
    """

    name: str
    lower: float
    upper: float

    def __post_init__(self) -> None:
        """Check the bounds."""
        checked_name(self.name)
        what = f"of column {self.name!r}"
        lower, upper = (
            _bound(f"{side} {what}", value)
            for side, value in (("lower", self.lower), ("upper", self.upper))
        )
        if not lower < upper:
            raise ValueError(
                f"lower {what} must be below upper, got lower={self.lower!r}, upper={self.upper!r}"
            )
        least = max(_CLOSEST * max(abs(lower), abs(upper)), _NARROWEST)
        if upper - lower < least:
            raise ValueError(
                f"bounds {what} must be at least {least:g} apart, got lower={self.lower!r}, "
                f"upper={self.upper!r}; count in other units, or from a public number nearby"
            )
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @property
    def middle(self) -> float:
        """The value that is zero."""
        return self.lower / 2 + self.upper / 2

    @property
    def unit(self) -> float:
        """What an integer of one stands for, a power of two."""
        return math.ldexp(1.0, self._exponent)

    @property
    def reach(self) -> int:
        """The largest magnitude of an integer, which an end of the range has."""
        return max(-self._ends[0], self._ends[1])

    @property
    def span(self) -> int:
        """The distance between the integers of the two ends."""
        return self._ends[1] - self._ends[0]

    def integers(self, values: Vector) -> NDArray[np.int64]:
        """Return the integer of every value, zero where it is missing."""
        with np.errstate(all="ignore"):  # a warning would tell of a record
            scaled = np.clip(values, self.lower, self.upper)
            scaled -= self.middle
            scaled *= math.ldexp(1.0, -self._exponent)  # exact, so that no engine can differ
            scaled += 0.5
            np.floor(scaled, out=scaled)
            scaled[np.isnan(scaled)] = 0.0
            return scaled.astype(np.int64)

    @cached_property
    def _ends(self) -> tuple[int, int]:
        low, high = self.integers(np.array([self.lower, self.upper])).tolist()
        return int(low), int(high)

    @cached_property
    def _exponent(self) -> int:
        half = max(self.upper - self.middle, self.middle - self.lower)
        return math.frexp(half)[1] - BITS


def checked_name(name: object) -> str:
    """Return the name of a column.

    Raises:
        ValueError: if it is no text or empty.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a column must be a text, got {validate.told(name)}")
    return name


def _bound(what: str, value: object) -> float:
    bound = validate.finite(**{what: value})
    if abs(bound) > _LARGEST:
        raise ValueError(
            f"{what} must be at most {_LARGEST:g} in magnitude, got {value!r}; count in other units"
        )
    return bound
