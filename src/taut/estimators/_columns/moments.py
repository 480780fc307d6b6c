"""Counts, means and variances of columns with public bounds, from one release of exact sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.accounting import PrivacyLoss
from taut.estimators._contract.row_wise import in_blocks
from taut.noise import (
    Box,
    CentredRanges,
    NoiseMechanism,
    RandomSource,
    Ranges,
    Source,
    recommend,
)

__all__ = ["ColumnMoments", "ColumnsRelease", "columns_release"]


@dataclass(frozen=True)
class ColumnMoments:
    """What was released of some columns, in the units of the data.

    Attributes:
        count: number of records, at least zero.
        means: mean of every column, within its bounds.
        variances: variance of every column, at least what noise can tell from zero.
    """

    count: float
    means: Vector
    variances: Vector


@dataclass(frozen=True)
class ColumnsRelease:
    """A count, and sums of columns and of their squares around the middle of their bounds.

    Attributes:
        lower: public lower bounds.
        upper: public upper bounds.
        sums: what one record adds: the count, entries in [-1, 1], squares in [0, 1].
        mechanism: noise for it.

    **Guarantee**: the loss of ``mechanism``, for add/remove.
    """

    lower: Vector
    upper: Vector
    sums: CentredRanges
    mechanism: NoiseMechanism

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        return self.mechanism.loss

    def release(self, rows: Matrix, source: RandomSource | None) -> ColumnMoments:
        """Return the moments of rows, of which those with NaN or infinity are counted nowhere."""
        # A copy of the table with its squares would take many times its memory.
        parts = (self.sums.clip(self._units_and_squares(block)) for block in in_blocks(rows))
        released = self.mechanism.release_sum_blocks(parts, source)
        found = np.asarray(self.sums.means(released))
        means, squares = np.split(found, 2)
        count = max(float(released[0]), 0.0)
        # A variance below the error of the noise is taken for that: a column that is constant, or
        # seems to be, is scaled by what could not be told apart from zero.
        least = np.minimum(self._square_errors / max(count, 1.0), 1.0)
        variances = np.clip(squares - means**2, least, 1.0)
        half = self._half
        return ColumnMoments(count, self._middle + half * means, half**2 * variances)

    @property
    def _middle(self) -> Vector:
        return self.lower / 2 + self.upper / 2

    @property
    def _half(self) -> Vector:
        return self.upper / 2 - self.lower / 2

    @property
    def _square_errors(self) -> Vector:
        """The standard deviation of the noise on sums of squares."""
        errors: Vector = np.sqrt(self.mechanism.coordinate_errors())[1 + self.lower.size :]
        return errors

    def _units_and_squares(self, rows: Matrix) -> Matrix:
        units = (np.clip(rows, self.lower, self.upper) - self._middle) / self._half
        whole = np.isfinite(rows).all(axis=1, keepdims=True)
        table: Matrix = np.where(whole, np.hstack([units, units**2]), np.nan)
        return table


def columns_release(
    lower: Vector, upper: Vector, *, epsilon: float, delta: float
) -> ColumnsRelease:
    """Return the release of least error among all mechanisms that keep the promise.

    A record moves the count by one, a sum of units by one at most, and a sum of squares, around
    1/2, by 1/2: half of what it would be around zero. The error counts means of both, each
    relative to its range (docs/theory/ranges.md).
    """
    sums, mechanism = _least_noise(lower.size, epsilon, delta)
    return ColumnsRelease(lower, upper, sums, mechanism)


@lru_cache(maxsize=64)
def _least_noise(
    columns: int, epsilon: float, delta: float
) -> tuple[CentredRanges, NoiseMechanism]:
    """Return what is summed, and its noise: neither knows the bounds, let alone the data."""
    sums = Ranges([(-1.0, 1.0)] * columns + [(0.0, 1.0)] * columns).centred()
    box = Box(sums.widths, source=Source.CLIPPED)
    return sums, recommend(box, epsilon, delta, weights=sums.mean_weights).best.mechanism
