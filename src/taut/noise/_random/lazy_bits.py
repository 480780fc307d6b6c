"""Random real numbers of which only as many bits are drawn as a decision needs.

A number is known to lie in an interval, and every further word of bits makes it shorter. Bits that
were drawn are kept, so that all decisions are about one and the same number.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from taut.noise._random.sources import RandomSource

__all__ = ["Interval", "OpenLength", "OpenUniform", "minus_log_bounds", "rounded_alike"]

Interval: TypeAlias = tuple[Fraction, Fraction]

_WORD_BITS = 64  # of a draw from the generator
_HALF = Fraction(1, 2)  # of a grid step, exactly: where rounding changes
# Of an interval that stands for a length in doubles: a 64th of the margin of 2^-39 left for it.
_LENGTH_WIDTH = Fraction(1, 1 << 45)


def rounded_alike(interval: Interval) -> int | None:
    """Return the integer that all numbers of an interval are nearest to, None if there are two."""
    low, high = (math.floor(end + _HALF) for end in interval)
    return low if low == high else None


@dataclass
class OpenUniform:
    """A number in [start, start + 1) 2^-bits, uniform there: more bits tell where.

    A word without a sign is uniform on [0, 1) with 64 bits, one with a sign on [-1, 1) with 63.
    """

    start: int
    source: RandomSource
    bits: int = _WORD_BITS

    @property
    def bounds(self) -> Interval:
        """Where the number lies."""
        unit = 1 << self.bits
        return Fraction(self.start, unit), Fraction(self.start + 1, unit)

    def extend(self) -> None:
        """Draw another word of its bits."""
        self.start = (self.start << _WORD_BITS) | int(self.source.integers_u64(1)[0])
        self.bits += _WORD_BITS


class OpenLength:
    """A sum of exponential numbers of mean one: minus the logarithm of a product of uniform ones.

    Args:
        words: the first bits of the uniform numbers.
        source: where further bits come from, for all of the numbers at a time.
    """

    def __init__(self, words: Iterable[int], source: RandomSource) -> None:
        self._starts = [int(word) for word in words]
        self._source = source
        self._bits = _WORD_BITS

    @cached_property
    def bounds(self) -> Interval:
        """Where the sum lies."""
        while not all(self._starts):  # a number that may be zero has no bound
            self._draw()
        return minus_log_bounds(self._starts, self._bits)

    def extend(self) -> None:
        """Draw another word of bits for every uniform number."""
        self._draw()
        del self.bounds

    def nearly(self) -> float:
        """Return the sum within 2^-45, and a relative error of 2^-52."""
        while self.bounds[1] - self.bounds[0] > _LENGTH_WIDTH:
            self.extend()
        return float(self.bounds[0])

    def _draw(self) -> None:
        more = self._source.integers_u64(len(self._starts)).tolist()
        self._starts = [
            (start << _WORD_BITS) | word for start, word in zip(self._starts, more, strict=True)
        ]
        self._bits += _WORD_BITS


def minus_log_bounds(starts: list[int], bits: int) -> Interval:
    """Enclose -log of the product of numbers in [start, start + 1) 2^-bits, start at least 1.

    Both ends of the product are kept to more bits than are known, rounded outwards.
    """
    kept = bits + 2 * len(starts).bit_length() + 32
    low = high = 1
    shift = -bits * len(starts)
    for start in starts:
        low, high = low * start, high * (start + 1)
        excess = low.bit_length() - kept
        if excess > 0:
            low, high = low >> excess, -(-high >> excess)
            shift += excess
    # The whole is at most one and low at least one, so that the shift is not above zero.
    digits = bits // 3 + len(str(-shift)) + 16
    two = _log_bounds(2, digits)
    unit = 1 << (bits + _WORD_BITS)
    least = -(_log_bounds(high, digits)[1] + shift * two[0])
    most = -(_log_bounds(low, digits)[0] + shift * two[1])
    return (
        Fraction(max(math.floor(least * unit), 0), unit),
        Fraction(math.ceil(most * unit), unit),
    )


def _log_bounds(number: int, digits: int) -> Interval:
    """Enclose the logarithm of an integer, at least 1."""
    if number == 1:
        return Fraction(0), Fraction(0)
    # Decimal's logarithm is correctly rounded, to half a unit of the last of its digits.
    context = decimal.Context(digits)
    middle = context.ln(decimal.Decimal(number))
    return Fraction(context.next_minus(middle)), Fraction(context.next_plus(middle))
