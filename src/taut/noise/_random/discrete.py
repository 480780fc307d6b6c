"""Exact integer noise: discrete Gaussian and discrete Laplace, without a rounding error.

Both distributions are those of Canonne, Kamath and Steinke (2020). A draw compares uniform bits
with probabilities of which only as many digits are computed as the comparison needs: 64 bits from
a table of integers nearly always, more by exact arithmetic in the rare cases that they leave open
(docs/theory/rounding.md). So the masses are exact for every rational parameter, floats included.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut.noise._random.sources import (
    RandomSource,
    Words,
    below_exp,
    default_generator,
    exp_bounds,
    rational,
)

__all__ = ["discrete_gaussian_noise", "discrete_laplace_noise"]

Integers: TypeAlias = NDArray[np.int64]
Number: TypeAlias = int | float | Fraction

_WORD_BITS = 64  # of a draw from the generator
_FLOAT_BITS = 53  # of a word, that decide on acceptance; the other eleven may choose a place
_GUIDE_BITS = 14  # that find the block at once, where no boundary is near
_DRAW_PIECE = 1 << 14  # integers drawn at a time, so that they stay in the cache
_RATIO_ERROR = 2.0**-40  # relative; the exponent and np.exp err by less than 2^-46 (rounding.md)
_LARGEST_SCALE = 1 << 50  # noise must fit into 64 bits: it exceeds 2^13 scales with exp(-2^13)
_MOST_DRAWN = 1 << 30  # integers of one call: 8 gigabytes
_WEIGHT_GUARD_BITS = 24  # beyond those asked for: sums of some thousand weights lose 13


def discrete_gaussian_noise(
    sigma: Number | None = None,
    size: int = 1,
    *,
    variance: Number | None = None,
    generator: RandomSource | None = None,
) -> Integers:
    """Return independent integers x with mass exactly proportional to exp(-x^2 / (2 sigma^2)).

    Args:
        sigma: the scale, a rational number up to 2^50; floats are taken as the rationals they are.
        size: how many integers.
        variance: sigma^2 instead of ``sigma``, where that is the rational number.
        generator: the source of randomness, by default the secure one.

    **Guarantee**: the distribution of Canonne, Kamath and Steinke (2020, Definition 1), exactly, if
    the bits of ``generator`` are uniform. The loss of adding it to an integer query is
    ``taut.discrete_gaussian(sigma, sensitivity)``.

    Raises:
        ValueError: if the scale is not positive, not finite or above 2^50, or if not exactly one of
            ``sigma`` and ``variance`` is given.

    Example:
        >>> from fractions import Fraction
        >>> from taut.noise import discrete_gaussian_noise, SeededForExperiments
        >>> seeded = SeededForExperiments(seed=1)
        >>> noise = discrete_gaussian_noise(2.5, size=100_000, generator=seeded)
        >>> noise.dtype.name, bool(abs(noise.var() - 6.25) < 0.1)
        ('int64', True)
    """
    if (sigma is None) == (variance is None):
        raise ValueError("give exactly one of sigma and variance, got both or none")
    if sigma is not None:
        squared = _positive_rational(sigma=sigma) ** 2
    else:
        squared = _positive_rational(variance=variance)
    if squared > _LARGEST_SCALE**2:
        raise ValueError("sigma must be at most 2^50 units; count in larger units")
    return _sampler(_Gaussian(squared)).draw(_size(size), _source(generator))


def discrete_laplace_noise(
    scale: Number, size: int = 1, *, generator: RandomSource | None = None
) -> Integers:
    """Return independent integers x with mass exactly proportional to exp(-|x| / scale).

    Args:
        scale: a rational number up to 2^50; floats are taken as the rationals they are.
        size: how many integers.
        generator: the source of randomness, by default the secure one.

    **Guarantee**: two-sided geometric noise, exactly, if the bits of ``generator`` are uniform. The
    loss of adding it to an integer query is ``taut.discrete_laplace(scale, sensitivity)``.

    Raises:
        ValueError: if ``scale`` is not positive, not finite or above 2^50.

    Example:
        >>> from taut.noise import discrete_laplace_noise
        >>> discrete_laplace_noise(10, size=4).shape
        (4,)
    """
    rational = _positive_rational(scale=scale)
    if rational > _LARGEST_SCALE:
        raise ValueError("scale must be at most 2^50 units; count in larger units")
    return _sampler(_Laplace(rational)).draw(_size(size), _source(generator))


class _Shape(ABC):
    """A mass exp(-cost(|x|)) on the integers, the cost convex and rising from zero."""

    @abstractmethod
    def cost(self, x: int) -> Fraction:
        """Return the cost of the magnitude ``x``."""

    @abstractmethod
    def approximate_step(self, x: Integers, place: Integers) -> NDArray[np.float64]:
        """Return cost(x + place) - cost(x) with a relative error below 2^-49."""

    @property
    @abstractmethod
    def width_bits(self) -> int:
        """The binary logarithm of the width of blocks, a power of two."""


@dataclass(frozen=True)
class _Gaussian(_Shape):
    variance: Fraction

    def cost(self, x: int) -> Fraction:
        return Fraction(x * x, 2) / self.variance

    def approximate_step(self, x: Integers, place: Integers) -> NDArray[np.float64]:
        far, near = x.astype(np.float64), place.astype(np.float64)
        return near * (2 * far + near) * float(1 / (2 * self.variance))

    @property
    def width_bits(self) -> int:
        return _log2_of_width(math.isqrt(math.floor(self.variance)), parts=32)


@dataclass(frozen=True)
class _Laplace(_Shape):
    scale: Fraction

    def cost(self, x: int) -> Fraction:
        return x / self.scale

    def approximate_step(self, x: Integers, place: Integers) -> NDArray[np.float64]:
        return place.astype(np.float64) * float(1 / self.scale)

    @property
    def width_bits(self) -> int:
        return _log2_of_width(math.floor(self.scale), parts=8)


def _log2_of_width(scale: int, parts: int) -> int:
    """Return the k for which ``parts`` to twice as many blocks of width 2^k span the scale."""
    return 0 if scale < 2 * parts else (scale // parts).bit_length() - 1


@dataclass(frozen=True)
class _Sampler:
    """Draws by blocks of 2^k integers: first the block, then the place in it, then acceptance.

    Blocks 0, 2, 4, ... lie at 0, w, 2 w, ..., blocks 1, 3, 5, ... mirror them from -1 downwards. A
    block weighs as if all its integers had the mass of the one nearest to zero.
    """

    shape: _Shape

    def draw(self, size: int, source: RandomSource) -> Integers:
        """Return ``size`` independent integers."""
        result = np.empty(size, dtype=np.int64)
        for start in range(0, size, _DRAW_PIECE):
            part = result[start : start + _DRAW_PIECE]
            part[:] = self._draw_chunk(part.size, source)
        return result

    def _draw_chunk(self, size: int, source: RandomSource) -> Integers:
        blocks, open_cases = self._blocks(source.integers_u64(size))
        values: Integers = self._starts.take(blocks)
        again = np.empty(0, dtype=np.intp)
        if self._bits:
            again = self._place(values, blocks, source)
        for i, word in open_cases:
            block = self._block_exactly(word, source)
            values[i] = self._value_exactly(block, source)
        if open_cases:
            again = np.setdiff1d(again, [i for i, _ in open_cases])
        if again.size:
            values[again] = self._draw_chunk(again.size, source)
        return values

    def _blocks(self, words: Words) -> tuple[NDArray[np.intp], list[tuple[int, int]]]:
        """Return the block of every word, and the words that do not decide on one."""
        blocks = self._guide.take((words >> np.uint64(_WORD_BITS - _GUIDE_BITS)).view(np.int64))
        near = np.flatnonzero(blocks < 0)
        passed, reached = self._passed(words[near], words[near])
        blocks[near] = np.minimum(passed, self._count - 1)
        undecided = near[passed != reached]
        return blocks, [(int(i), int(words[i])) for i in undecided]

    def _place(
        self, values: Integers, blocks: NDArray[np.intp], source: RandomSource
    ) -> NDArray[np.intp]:
        """Move ``values`` to places in their blocks; return the indices that are rejected."""
        words = source.integers_u64(values.size)
        # The bits for the place and for acceptance must not overlap.
        spare = _WORD_BITS - _FLOAT_BITS
        chosen = words if self._bits <= spare else source.integers_u64(values.size)
        places = (chosen & np.uint64((1 << self._bits) - 1)).view(np.int64)
        values += self._signs.take(blocks) * places
        cuts = (words >> np.uint64(spare)).view(np.int64)
        near = np.flatnonzero(cuts >= self._sure.take(blocks))
        return near[~self._accepts(blocks[near], places[near], cuts[near], source)]

    def _accepts(
        self, blocks: NDArray[np.intp], places: Integers, cuts: Integers, source: RandomSource
    ) -> NDArray[np.bool_]:
        """Return whether the uniform number that begins with ``cuts`` is below the mass ratio."""
        ratio = (
            np.exp(-self.shape.approximate_step(np.abs(self._starts[blocks]), places))
            * 2.0**_FLOAT_BITS
        )
        result: NDArray[np.bool_] = cuts + 1 <= ratio * (1 - _RATIO_ERROR)
        for i in np.flatnonzero(~result & (cuts < ratio * (1 + _RATIO_ERROR))):
            step = self._step(int(blocks[i]), int(places[i]))
            result[i] = below_exp(step, int(cuts[i]), _FLOAT_BITS, source)
        return result

    def _block_exactly(self, word: int, source: RandomSource) -> int:
        """Return the block of the uniform number that begins with ``word``."""
        bits = _WORD_BITS
        while True:
            word = (word << _WORD_BITS) | int(source.integers_u64(1)[0])
            bits += _WORD_BITS
            lower, upper = self._boundaries(bits)
            block = bisect_left(upper, word)
            if block == bisect_right(lower, word):
                return block

    def _value_exactly(self, block: int, source: RandomSource) -> int:
        """Return a value given its first block; a rejected one is drawn anew from all blocks."""
        if self._bits:
            place = int(source.uniform_below(1 << self._bits, 1)[0])
            cut = int(source.integers_u64(1)[0])
            if not below_exp(self._step(block, place), cut, _WORD_BITS, source):
                return int(self._draw_chunk(1, source)[0])
        else:
            place = 0
        magnitude = self._nearest(block) + place
        return -magnitude if block % 2 else magnitude

    def _nearest(self, block: int) -> int:
        """Return the smallest magnitude in a block."""
        return ((block >> 1) << self._bits) + (block & 1)

    def _step(self, block: int, place: int) -> Fraction:
        nearest = self._nearest(block)
        return self.shape.cost(nearest + place) - self.shape.cost(nearest)

    def _boundaries(self, bits: int) -> tuple[list[int], list[int]]:
        """Return integers on either side of the cumulative block probabilities times 2^bits.

        Boundary j lies at or above lower[j] and below upper[j] + 1. Weights are summed to more
        bits, until all further ones together are below one unit: they fall at least as fast as
        exp(-1/64) from block to block on either side, so they sum to less than 130 times the next.
        """
        precision = bits + _WEIGHT_GUARD_BITS
        low, high = [0], [0]
        block = 0
        while self.shape.cost(self._nearest(block)) < Fraction(7, 10) * (precision + 9):
            below, above = exp_bounds(self.shape.cost(self._nearest(block)), precision)
            low.append(low[-1] + below)
            high.append(high[-1] + above + 1)
            block += 1
        top = (1 << bits) - 1
        lower = [(value << bits) // (high[-1] + 1) for value in low[1:]]
        return lower, [min((value << bits) // low[-1], top) for value in high[1:]]

    @cached_property
    def _bits(self) -> int:
        return self.shape.width_bits

    @cached_property
    def _table(self) -> tuple[Words, Words]:
        lower, upper = self._boundaries(_WORD_BITS)
        return np.array(lower, dtype=np.uint64), np.array(upper, dtype=np.uint64)

    @property
    def _count(self) -> int:
        return self._table[1].size

    def _passed(self, first: Words, last: Words) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return how many boundaries surely lie below `first`, and how many may below `last`."""
        lower, upper = self._table
        return np.searchsorted(upper, first, "left"), np.searchsorted(lower, last, "right")

    @cached_property
    def _guide(self) -> NDArray[np.intp]:
        """The block of the words with given leading bits, -1 if that takes more bits."""
        first = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(_WORD_BITS - _GUIDE_BITS)
        last = first | np.uint64((1 << (_WORD_BITS - _GUIDE_BITS)) - 1)
        passed, reached = self._passed(first, last)
        return np.where(passed == reached, passed, -1).astype(np.intp)

    @cached_property
    def _starts(self) -> Integers:
        magnitudes = [self._nearest(block) for block in range(self._count)]
        return np.array(magnitudes, dtype=np.int64) * self._signs

    @cached_property
    def _signs(self) -> Integers:
        return 1 - 2 * (np.arange(self._count, dtype=np.int64) % 2)

    @cached_property
    def _sure(self) -> Integers:
        """Integers below which a number is accepted at every place of the block."""
        last = (1 << self._bits) - 1
        steps = [self._step(block, last) for block in range(self._count)]
        return np.array([exp_bounds(step, _FLOAT_BITS)[0] for step in steps], dtype=np.int64)


@lru_cache(maxsize=64)
def _sampler(shape: _Shape) -> _Sampler:
    """Return the sampler of a shape; its tables take some milliseconds."""
    return _Sampler(shape)


def _positive_rational(**argument: object) -> Fraction:
    ((name, value),) = argument.items()
    number = rational(**argument)
    if not number > 0:
        raise ValueError(f"{name} must be greater than 0, got {name}={value!r}")
    return number


def _size(size: int) -> int:
    count = validate.integer(size=size)
    if count > _MOST_DRAWN:
        raise ValueError(f"size must be at most 2^30, got size={size!r}; draw in portions")
    return count


def _source(generator: RandomSource | None) -> RandomSource:
    if generator is None:
        return default_generator()
    if not isinstance(generator, RandomSource):
        raise validate.WrongType(
            f"generator must be a RandomSource, got generator={generator!r}; leave it out for the "
            "secure one, or use SeededForExperiments(seed) in experiments"
        )
    return generator
