"""Noise along the axes of a basis, added to exact coefficients and rounded to a grid.

Rounding the coordinates of a vector would leave the directions that have noise, and tell there what
nothing hides. So the coefficients along the axes are rounded instead: they are computed as
integers, get noise on the grid of their axis, and only then are combined again, which is a function
of what was released (docs/theory/rounding.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.noise._exact.grid_values import in_steps
from taut.noise._exact.release import STANDARD_NORMAL, GridRelease, RoundedNoise
from taut.noise._exact_sums import FixedPoint, column_sums, fixed_point, in_chunks
from taut.noise._random.sources import RandomSource

__all__ = ["AxesRelease"]

_KEPT = 1 << 22  # entries of axes, whose limbs take 100 MB


@dataclass(frozen=True, eq=False)
class AxesRelease(GridRelease):
    """Gaussian noise along the columns of a matrix, and of one size beside them.

    Attributes:
        axes: the matrix B, doubles that are taken as the numbers they are.
        scales: standard deviations along its columns; zero where nothing is released.
        beside: the standard deviation in all other directions; zero if nothing of them is released.

    **Guarantee**: what is released is a function of the ideal Bᵀx + noise and, with ``beside``, of
    (I - BBᵀ)x + noise in all coordinates. Its loss is that of Gaussian noise for the largest root
    of ||diag(1 / scales) Bᵀs||² + ||(I - BBᵀ)s||² / beside², whether or not the columns are
    orthonormal.
    """

    axes: Matrix
    scales: Vector
    beside: float = 0.0

    @property
    def grid(self) -> Vector:
        """The grid of every axis, then that of every coordinate beside them, if there is noise."""
        if self.beside == 0:
            return self._along.grid
        return np.concatenate([self._along.grid, self._across.grid])

    def release(self, value: Vector, source: RandomSource) -> Vector:
        """Return value plus noise, combined from rounded coefficients."""
        return self.release_exact(fixed_point(value), source)

    def release_sum(self, rows: Matrix, source: RandomSource) -> Vector:
        """Return the exact sum of rows plus noise, combined from rounded coefficients."""
        return self.release_exact(column_sums(rows), source)

    def release_exact(self, value: FixedPoint, source: RandomSource) -> Vector:
        """Return a vector that is known exactly, plus noise, combined from rounded coefficients."""
        row = FixedPoint(value.limbs[:, None, :], value.exponent)
        inside = row.times(self._split or in_chunks(self.axes))
        noisy = self._along.on_grid(in_steps(_vector(inside), self._along.exponents), source)
        result: Vector = self.axes @ noisy
        if self.beside > 0:
            rest = _vector(row.minus(inside.times(in_chunks(self.axes.T))))
            free = self._across.on_grid(in_steps(rest, self._across.exponents), source)
            result = result + (free - self.axes @ (self.axes.T @ free))
        return result

    @cached_property
    def _split(self) -> list[FixedPoint]:
        """The axes in limbs, kept for the next release if they are not large."""
        return list(in_chunks(self.axes)) if self.axes.size <= _KEPT else []

    @cached_property
    def _along(self) -> RoundedNoise:
        return RoundedNoise(self.scales, STANDARD_NORMAL)

    @cached_property
    def _across(self) -> RoundedNoise:
        return RoundedNoise(np.full(len(self.axes), self.beside), STANDARD_NORMAL)


def _vector(row: FixedPoint) -> FixedPoint:
    return FixedPoint(row.limbs[:, 0, :], row.exponent)
