"""A certified interval, and root search on its safe sides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Bounds", "falls_below"]

_LEAST_GUESS = 1e-6  # where a search begins: it goes down from there, or doubles
_FARTHEST_EPSILON = 1e300  # beyond, an upper bound is called infinite
_BRACKET_WIDTH = 1e-12  # relative: below what profiles resolve; either end is safe at any width


class Bounds(NamedTuple):
    """A certified interval: the truth is at least ``lower`` and at most ``upper``.

    Publish ``upper``. The gap shows how much a better proof could still gain.
    """

    lower: float
    upper: float

    @property
    def gap(self) -> float:
        """Width of the interval, 0 if both ends are infinite."""
        return 0.0 if self.lower == self.upper else self.upper - self.lower


def falls_below(function: Callable[[float], float], level: float, guess: float) -> Bounds:
    """Bracket the point x >= 0 where a non-increasing positive ``function`` falls to ``level``.

    ``function(upper) <= level`` holds as evaluated, and ``function(lower) > level`` unless lower
    is 0. The search runs on the logarithm, where profiles are smooth.
    """
    if function(0.0) <= level:
        return Bounds(0.0, 0.0)
    low, high = 0.0, max(guess, _LEAST_GUESS)
    while function(high) > level:
        low, high = high, 2 * high
        if high > _FARTHEST_EPSILON:
            return Bounds(low, math.inf)
    target = math.log(level)
    low_value, high_value = _log(function(low)) - target, _log(function(high)) - target
    side = 0
    for _ in range(200):
        if high - low <= _BRACKET_WIDTH * high:
            break
        # Illinois' variant of the secant rule, kept inside the bracket; halving where it stalls.
        span = low_value - high_value
        x = high + (high - low) * high_value / span if 0 < span < math.inf else math.nan
        if not low < x < high:
            x = 0.5 * (low + high)
        value = _log(function(x)) - target
        if value > 0:
            low, low_value = x, value
            high_value = high_value / 2 if side > 0 else high_value
            side = 1
        else:
            high, high_value = x, value
            low_value = low_value / 2 if side < 0 else low_value
            side = -1
    return Bounds(low, high)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf
