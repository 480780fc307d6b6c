"""Staircase noise, drawn and rounded without error: no end of the stairs, no error of doubles.

A staircase density falls by the factor exp(-epsilon) where the l1 norm passes gamma, 1 + gamma,
2 + gamma and so on. So it is a mixture of uniform densities on the balls of these radii, and the
ball of radius k + gamma weighs exp(-k epsilon) (k + gamma)^n (docs/theory/rounding.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from taut._base.arrays import Vector
from taut.noise._exact.grid_values import GridValue
from taut.noise._exact.release import ExactRelease
from taut.noise._random.lazy_bits import OpenUniform, rounded_alike
from taut.noise._random.sources import RandomSource, exp_bounds

__all__ = ["RoundedStaircase", "balls_tail_bounds", "draw_ball"]

_EXTRA = 32  # bits beyond those that are compared: for a quotient and products of bounds


@dataclass(frozen=True, eq=False)
class RoundedStaircase(ExactRelease):
    """Staircase noise in one or two dimensions, on a grid.

    Attributes:
        units: the unit of length along every coordinate.
        epsilon: factor, as a logarithm, by which the density falls over a length of one.
        gamma: where it falls first.
    """

    units: Vector
    epsilon: float
    gamma: float

    def _steps(self, value: GridValue, source: RandomSource) -> Vector:
        n = self.units.size
        radius = draw_ball(self.epsilon, self.gamma, n, source) + Fraction(self.gamma)
        sides = [
            OpenUniform(int(word), source, bits=63)
            for word in source.integers_u64(n).view(np.int64)
        ]
        steps = [
            _nearest(value.exact(i), radius * self._ratio(i), sides, turned=i == 1)
            for i in range(n)
        ]
        return np.array([float(step) for step in steps])

    def _ratio(self, i: int) -> Fraction:
        return Fraction(float(self.units[i])) / Fraction(2) ** int(self.exponents[i])


def draw_ball(epsilon: float, gamma: float, n: int, source: RandomSource) -> int:
    """Return k with mass exactly proportional to exp(-k epsilon) (k + gamma)^n."""
    level = OpenUniform(int(source.integers_u64(1)[0]), source)
    high = 1
    while _has_passed(level, high, epsilon, gamma, n):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if _has_passed(level, middle, epsilon, gamma, n):
            low = middle
        else:
            high = middle
    return low


@lru_cache(maxsize=4096)
def balls_tail_bounds(k: int, epsilon: float, gamma: float, n: int, bits: int) -> tuple[int, int]:
    """Return integers with low <= P(ball k or a later one) 2^bits < high + 1.

    With b = exp(-epsilon) the weights from k on sum to b^k q(k) / (1 - b)^(n+1), where q(k) is
    (k + gamma)(1 - b) + b for n = 1, and for n = 2
    (k + gamma)^2 (1 - b)^2 + 2 (k + gamma)(1 - b) b + b (1 + b).
    """
    here, first = (_weight_bounds(j, epsilon, gamma, n, bits) for j in (k, 0))
    low, high = exp_bounds(k * Fraction(epsilon), bits + _EXTRA)
    return (
        (low * here[0] // first[1]) >> _EXTRA,
        ((high + 1) * here[1] // first[0]) >> _EXTRA,
    )


def _weight_bounds(k: int, epsilon: float, gamma: float, n: int, bits: int) -> tuple[int, int]:
    """Enclose q of `balls_tail_bounds`, times a number that depends on the other arguments.

    All of its terms are positive, so that ends go with ends.
    """
    low, high = exp_bounds(Fraction(epsilon), bits + _EXTRA)
    high += 1
    one = 1 << (bits + _EXTRA)
    # In units of the denominator of gamma, which all terms are multiplied with.
    above, unit = gamma.as_integer_ratio()
    ends = []
    for b, left in ((low, one - high), (high, one - low)):
        inner, b_units = (k * unit + above) * left, b * unit
        square = inner**2 + 2 * inner * b_units + b * (one + b) * unit**2
        ends.append(inner + b_units if n == 1 else square)
    return ends[0], ends[1]


def _has_passed(level: OpenUniform, k: int, epsilon: float, gamma: float, n: int) -> bool:
    """Return whether a uniform number is below the probability of the balls from k on."""
    while True:
        low, high = balls_tail_bounds(k, epsilon, gamma, n, level.bits)
        if level.start < low:
            return True
        if level.start > high:
            return False
        level.extend()


def _nearest(value: Fraction, reach: Fraction, sides: list[OpenUniform], *, turned: bool) -> int:
    """Return the integer nearest to value plus reach times a coordinate of a point of the ball.

    In one dimension the point is uniform on [-1, 1). In two the l1 ball is a turned square: its
    coordinates are half the sum and half the difference of two such numbers.
    """
    while True:
        low, high = sides[0].bounds
        if len(sides) == 2:
            least, most = sides[1].bounds
            if turned:
                least, most = -most, -least
            low, high = (low + least) / 2, (high + most) / 2
        steps = rounded_alike((value + reach * low, value + reach * high))
        if steps is not None:
            return steps
        for side in sides:
            side.extend()
