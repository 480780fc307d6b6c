"""Integer weights that fall like exp(-rate u), and never faster, to the last bit.

The exponential mechanism needs weights whose logarithms differ by at most rate |u - u'|. Integers
rounded from exponentials miss that a little where they are small; a constant that is added to all
of them makes it true for every pair (docs/theory/quantiles.md), so that the mechanism is drawn, and
accounted for, without any rounding error.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

__all__ = ["LEAST_RATE", "RankWeights"]

LEAST_RATE = Fraction(1, 1 << 40)
"""Of a fall per unit: tables then have some million entries."""

_BITS = 96  # of the largest weight: far candidates weigh 2^-90 of it, and there are below 2^56
_ROUNDING = 4  # covers three units of rounding downwards, and errors below 10^-20
_DIGITS = 60  # of exponentials: 2^96 of them are right to 30 digits after the point
_LOG_TWO = 0.6931471805599454  # rounded up


@dataclass(frozen=True)
class RankWeights:
    """Weights w(u) of whole distances u, with |log w(u) - log w(v)| <= rate |u - v| for all u, v.

    Args:
        rate: how fast their logarithms may fall, a rational number of at least `LEAST_RATE`.

    **Guarantee**: the inequality holds for the integers that are returned, without an error.

    Example:
        >>> from fractions import Fraction
        >>> weights = RankWeights(Fraction(1, 2))
        >>> from math import log
        >>> abs(log(weights.at(7) / weights.at(10)) - 1.5) < 1e-12
        True
    """

    rate: Fraction

    def __post_init__(self) -> None:
        """Check the rate."""
        if not self.rate >= LEAST_RATE:
            raise ValueError(f"rate must be at least 2^-40, got rate={float(self.rate):.3g}")

    @cached_property
    def reach(self) -> int:
        """A distance beyond which all weights are `least`."""
        return math.ceil(_BITS * _LOG_TWO / min(float(self.rate), 1e6)) + 1

    @cached_property
    def least(self) -> int:
        """The weight of distances beyond the reach, and a part of all others."""
        return math.ceil(_ROUNDING * (1 + 2.0**-40) / -math.expm1(-min(float(self.rate), 700.0)))

    def at(self, distance: int) -> int:
        """Return the weight of a distance, a whole number of at least 0."""
        if distance > self.reach:
            return self.least
        far, near = divmod(distance, self._block)
        return (self._far[far] * self._near[near] >> _BITS) + self.least

    @cached_property
    def _block(self) -> int:
        return math.isqrt(self.reach) + 1

    @cached_property
    def _near(self) -> list[int]:
        return [self._power(u) for u in range(self._block)]

    @cached_property
    def _far(self) -> list[int]:
        return [self._power(u * self._block) for u in range(self.reach // self._block + 1)]

    def _power(self, distance: int) -> int:
        """Return exp(-rate distance) in units of 2^-96, rounded down, up to 10^-20 of a unit."""
        context = decimal.Context(_DIGITS, decimal.ROUND_FLOOR, decimal.MIN_EMIN)
        exponent = -self.rate * distance
        power = context.exp(context.divide(exponent.numerator, exponent.denominator))
        return math.floor(context.multiply(power, 1 << _BITS))
