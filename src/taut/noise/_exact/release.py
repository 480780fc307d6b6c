"""Value plus ideal noise, rounded to a public grid: exactly, at no cost in privacy.

What leaves is the multiple of the grid nearest to value plus *real-valued* noise. It is a function
of the ideal release, so its loss is the ideal one; and it has no low bits that could tell anything
(Mironov 2012). A word of random bits fixes the noise to a short interval, which nearly always lies
between two halves of the grid; where it does not, more bits are drawn and the comparison is made
with integers (docs/theory/rounding.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from taut._base.arrays import Matrix, Vector
from taut.noise._exact.grid_values import GridValue, Integers, exact_sum, exact_value, in_steps
from taut.noise._exact_sums import FixedPoint
from taut.noise._random.normal_tail import normal_tail_bounds
from taut.noise._random.sources import RandomSource, Words, exp_bounds

__all__ = [
    "STANDARD_LAPLACE",
    "STANDARD_NORMAL",
    "ExactRelease",
    "GridRelease",
    "RoundedNoise",
    "UnitNoise",
    "noisy_steps",
]

_WORD = 64  # bits of a draw from the generator
_FINENESS = 10  # a grid step is 2^-10 of the scale, or less by up to a half
_LEAST_EXPONENT = -1022  # of a grid, so that it is a normal double
# Of one plus the scale, in grid steps: twice what goes wrong in doubles (docs/theory/rounding.md).
_MARGIN = 2.0**-39
_CLEAR_TAIL = 1 << 40  # tail words below have too few leading bits for the margin
_PORTION = 1 << 16  # coordinates drawn at a time: arrays stay in the cache
_HALF = Fraction(1, 2)  # of a grid step, exactly: where rounding changes


@dataclass(frozen=True)
class UnitNoise:
    """A symmetric distribution of scale one, as its two-sided tail P(|Z| > z).

    Attributes:
        magnitudes: the inverse of the tail in doubles, within 2^-44 of the truth for probabilities
            in [2^-24, 1].
        tail_bounds: integers with low <= P(|Z| > point) 2^bits < high + 1, for point > 0.
    """

    magnitudes: Callable[[Vector], Vector]
    tail_bounds: Callable[[Fraction, int], tuple[int, int]]


def _normal_magnitudes(tails: Vector) -> Vector:
    result: Vector = -ndtri(0.5 * tails)
    return result


def _laplace_magnitudes(tails: Vector) -> Vector:
    return -np.log(tails)


STANDARD_NORMAL = UnitNoise(_normal_magnitudes, normal_tail_bounds)
"""Normal noise of standard deviation one."""
STANDARD_LAPLACE = UnitNoise(_laplace_magnitudes, exp_bounds)
"""Laplace noise of scale one: the tail is exp(-z)."""


class GridRelease(ABC):
    """Noise that is added to vectors or sums of rows and rounded to a public grid."""

    @property
    @abstractmethod
    def grid(self) -> Vector:
        """The powers of two of which multiples are released; zero where nothing is."""

    @abstractmethod
    def release(self, value: Vector, source: RandomSource) -> Vector:
        """Return value plus noise."""

    @abstractmethod
    def release_sum(self, rows: Matrix, source: RandomSource) -> Vector:
        """Return the exact sum of rows plus noise."""

    @abstractmethod
    def release_exact(self, value: FixedPoint, source: RandomSource) -> Vector:
        """Return a vector that is known exactly, plus noise."""


@dataclass(frozen=True, eq=False)
class ExactRelease(GridRelease):
    """Noise that is added to vectors and rounded to a grid, without an error of doubles.

    Attributes:
        scales: the size of the noise in every coordinate; zero where nothing is released. The grid
            depends on it alone.

    **Guarantee**: `release` is distributed exactly as value plus noise, in real numbers, rounded to
    the nearest multiple of the grid.
    """

    scales: Vector

    @property
    def grid(self) -> Vector:
        """The powers of two of which multiples are released; zero where nothing is."""
        return np.where(self.scales > 0, np.ldexp(1.0, self.exponents), 0.0)

    def release(self, value: Vector, source: RandomSource) -> Vector:
        """Return value plus noise, rounded; zero where the scale is zero."""
        return self.on_grid(exact_value(value, self.exponents), source)

    def release_sum(self, rows: Matrix, source: RandomSource) -> Vector:
        """Return the exact sum of rows plus noise, rounded; zero where the scale is zero."""
        return self.on_grid(exact_sum(rows, self.exponents), source)

    def release_exact(self, value: FixedPoint, source: RandomSource) -> Vector:
        """Return a vector that is known exactly, plus noise, rounded."""
        return self.on_grid(in_steps(value, self.exponents), source)

    def on_grid(self, value: GridValue, source: RandomSource) -> Vector:
        """Return a value that is given in steps of `exponents`, plus noise, rounded."""
        with np.errstate(over="ignore"):
            released = np.ldexp(self._steps(value, source), self.exponents)
        return np.where(self.scales > 0, released, 0.0)

    @cached_property
    def exponents(self) -> NDArray[np.intc]:
        """The binary logarithms of the grid."""
        exponents: NDArray[np.intc] = np.frexp(self.scales)[1]
        return np.maximum(exponents - (1 + _FINENESS), _LEAST_EXPONENT)

    @abstractmethod
    def _steps(self, value: GridValue, source: RandomSource) -> Vector:
        """Return the integers nearest to value plus noise, in grid steps."""


@dataclass(frozen=True, eq=False)
class RoundedNoise(ExactRelease):
    """Independent noise of one kind with a scale for every coordinate, rounded to a grid.

    Attributes:
        unit: the noise of scale one.
    """

    unit: UnitNoise

    def _steps(self, value: GridValue, source: RandomSource) -> Vector:
        ratios = np.ldexp(self.scales, -self.exponents)
        steps = np.empty(self.scales.size)
        for start in range(0, steps.size, _PORTION):
            part = slice(start, start + _PORTION)
            portion = value.portion(start, start + _PORTION)
            steps[part] = noisy_steps(portion, ratios[part], self.unit, source)
        return steps


def noisy_steps(
    value: GridValue, ratios: Vector, unit: UnitNoise, source: RandomSource
) -> Integers:
    """Return the integers nearest to value plus ideal noise, all in grid steps.

    A ratio of zero, scale over grid, leaves a coordinate without meaning.
    """
    words = source.integers_u64(ratios.size)
    tails = words >> np.uint64(1)
    magnitude = unit.magnitudes((tails.astype(np.float64) + 0.5) * 2.0**-63)
    signed = np.where(words & np.uint64(1), magnitude, -magnitude)
    moved = value.rest + ratios * signed + 0.5
    below = np.floor(moved)
    steps = value.whole + below.astype(np.int64)
    for i in np.flatnonzero(_unclear(moved - below, tails, ratios)):
        draw = _Draw(int(tails[i]), bool(words[i] & np.uint64(1)), unit, source)
        steps[i] = draw.nearest(value.exact(int(i)), Fraction(float(ratios[i])))
    return steps


def _unclear(depth: Vector, tails: Words, ratios: Vector) -> NDArray[np.bool_]:
    """Say where doubles and the first word cannot tell which integer is the nearest."""
    margin = _MARGIN * (1 + ratios)
    near = (depth < margin) | (depth > 1 - margin) | (tails < np.uint64(_CLEAR_TAIL))
    return near & (ratios > 0)


@dataclass
class _Draw:
    """One draw of ideal noise: its sign, and as many bits of its tail probability as are needed."""

    tail: int
    positive: bool
    unit: UnitNoise
    source: RandomSource
    bits: int = _WORD - 1

    def nearest(self, value: Fraction, ratio: Fraction) -> int:
        """Return the integer nearest to value plus ratio times the noise."""
        while self.tail < _CLEAR_TAIL:
            self._extend()
        # Any guess will do, as it is checked; a good one is checked twice.
        tail = max(self.tail / (1 << self.bits), 1e-300)
        guess = float(self.unit.magnitudes(np.array([tail]))[0])
        steps = math.floor(value + ratio * Fraction(guess if self.positive else -guess) + _HALF)
        while not self._reaches((steps - _HALF - value) / ratio):
            steps -= 1
        while self._reaches((steps + _HALF - value) / ratio):
            steps += 1
        return steps

    def _reaches(self, point: Fraction) -> bool:
        """Return whether the noise is above a point."""
        if self.positive:
            return point <= 0 or self._beyond(point)
        return point < 0 and not self._beyond(-point)

    def _beyond(self, point: Fraction) -> bool:
        """Return whether the magnitude is above a point: if its tail is below that of the point."""
        while True:
            low, high = self.unit.tail_bounds(point, self.bits)
            if self.tail < low:
                return True
            if self.tail > high:
                return False
            self._extend()

    def _extend(self) -> None:
        self.tail = (self.tail << _WORD) | int(self.source.integers_u64(1)[0])
        self.bits += _WORD
