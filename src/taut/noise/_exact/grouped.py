"""Noise that is uniform in a randomly scaled box, added to vectors and rounded without error.

All coordinates of a group share one length, of which doubles know enough for nearly every
coordinate; for the others bits of the length and of their own place are drawn until they tell
(docs/theory/rounding.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut.noise._exact.grid_values import GridValue, Integers
from taut.noise._exact.release import ExactRelease
from taut.noise._random.lazy_bits import OpenLength, OpenUniform, rounded_alike
from taut.noise._random.sources import RandomSource, Words

__all__ = ["RoundedGroups", "grouped_release"]

_CLEAR_TAIL = 1 << 40  # words below have too few leading bits for their logarithm
# Twice what can go wrong in doubles (docs/theory/rounding.md), of the noise for a length of one:
_WORD_MARGIN = 2.0**-39  # for every exponential number
_SUM_MARGIN = 2.0**-51  # for every number that is summed, and the length itself
_STEP_MARGIN = 2.0**-49  # of a grid step
_FEW_ROUNDINGS = 8  # of a length, beyond those of its sum: products, a quotient, a shift


def grouped_release(
    widths: Vector, groups: tuple[NDArray[np.int64], ...], budgets: Vector
) -> RoundedGroups:
    """Return the release of noise of the given groups; the grid follows from E|noise_i|."""
    scales = np.zeros(widths.size)
    for group, budget in zip(groups, budgets, strict=True):
        # Half of the expected length, group.size + 1.
        scales[group] = (group.size + 1) / 2 * (widths[group] / budget)
    return RoundedGroups(scales, widths, groups, budgets)


@dataclass(frozen=True, eq=False)
class RoundedGroups(ExactRelease):
    """Groups of coordinates, each with noise uniform in its box times a Gamma length, on a grid.

    Attributes:
        widths: half the width of the box along every coordinate.
        groups: the coordinates of every group.
        budgets: what lengths are divided by, one for every group.
    """

    widths: Vector
    groups: tuple[NDArray[np.int64], ...]
    budgets: Vector

    def _steps(self, value: GridValue, source: RandomSource) -> Vector:
        steps = np.zeros(self.scales.size)
        if not self.groups:
            return steps
        words = source.integers_u64(self._order.size + len(self.groups))
        lengths, opened = self._lengths(words, source)
        places = source.integers_u64(self._order.size).view(np.int64)
        spread = self._ratios * lengths[self._owners]
        moved = (places + 0.5) * 2.0**-63 * spread + value.rest[self._order] + 0.5
        below = np.floor(moved)
        found = value.whole[self._order] + below.astype(np.int64)
        for j in np.flatnonzero(self._unclear(moved - below, spread)):
            i, g = int(self._order[j]), int(self._owners[j])
            if g not in opened:
                opened[g] = OpenLength(words[self._part(g)].tolist(), source)
            place = OpenUniform(int(places[j]), source, bits=63)
            found[j] = self._nearest(value.exact(i), i, g, opened[g], place)
        steps[self._order] = found
        return steps

    def _lengths(self, words: Words, source: RandomSource) -> tuple[Vector, dict[int, OpenLength]]:
        """Return the length of every group in doubles, and those that needed more bits for it."""
        exponentials = -np.log((words.astype(np.float64) + 0.5) * 2.0**-64)
        lengths: Vector = np.add.reduceat(exponentials, self._starts[:-1])
        least = np.minimum.reduceat(words, self._starts[:-1])
        opened = {}
        for g in np.flatnonzero(least < np.uint64(_CLEAR_TAIL)).tolist():
            opened[g] = OpenLength(words[self._part(g)].tolist(), source)
            lengths[g] = opened[g].nearly()
        return lengths, opened

    def _unclear(self, depth: Vector, spread: Vector) -> NDArray[np.bool_]:
        """Say where doubles and the first words cannot tell which integer is the nearest."""
        counts = np.diff(self._starts)[self._owners]
        margin = counts * _WORD_MARGIN * self._ratios + _STEP_MARGIN
        margin += (counts + _FEW_ROUNDINGS) * _SUM_MARGIN * spread
        result: NDArray[np.bool_] = (depth < margin) | (depth > 1 - margin)
        return result

    def _nearest(
        self, value: Fraction, i: int, g: int, length: OpenLength, place: OpenUniform
    ) -> int:
        """Return the integer nearest to value plus ratio times length times place."""
        ratio = Fraction(float(self.widths[i])) / Fraction(float(self.budgets[g]))
        ratio /= Fraction(2) ** int(self.exponents[i])
        while True:
            products = [ratio * a * b for a in length.bounds for b in place.bounds]
            steps = rounded_alike((value + min(products), value + max(products)))
            if steps is not None:
                return steps
            length.extend()
            place.extend()

    @cached_property
    def _order(self) -> Integers:
        """The coordinates, group by group."""
        return np.concatenate(self.groups)

    @cached_property
    def _owners(self) -> Integers:
        """The group of every coordinate in that order."""
        return np.repeat(np.arange(len(self.groups)), [group.size for group in self.groups])

    @cached_property
    def _starts(self) -> Integers:
        """Where the exponential numbers of every group start, and where the last ones end."""
        return np.cumsum([0, *(group.size + 1 for group in self.groups)])

    @cached_property
    def _ratios(self) -> Vector:
        """Width over budget in grid steps, along the order, with a relative error of 2^-53."""
        # Powers of two apart, so that nothing over- or underflows on the way.
        widths, up = np.frexp(self.widths[self._order])
        budgets, down = np.frexp(self.budgets[self._owners])
        ratios: Vector = np.ldexp(widths / budgets, up - down - self.exponents[self._order])
        return ratios

    def _part(self, g: int) -> slice:
        return slice(int(self._starts[g]), int(self._starts[g + 1]))
