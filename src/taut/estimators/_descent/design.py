"""Columns of a design in public bounds, one row per coefficient, and coefficients back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Matrix, Vector

__all__ = ["Design"]

_LARGEST = 1e30  # of bounds, and one over it the least: fourth powers stay within floats


@dataclass(frozen=True, eq=False)
class Design:
    """Public bounds of features, and what is taken from them.

    Args:
        low: lower bounds of features, to which they are cut.
        high: upper bounds of features.
        intercept: whether there is one. Then columns are centred in their bounds.

    Raises:
        ValueError: for bounds so wide, narrow or far that their squares leave floating point.
    """

    low: Vector
    high: Vector
    intercept: bool

    def __post_init__(self) -> None:
        """Check the sizes of the bounds."""
        sizes = np.append(self.reaches, np.abs(self.centres).max(initial=0.0))
        if not 1 / _LARGEST <= self.reaches.min() <= sizes.max() <= _LARGEST:
            raise ValueError(
                f"bounds must be between {1 / _LARGEST:g} and {_LARGEST:g} wide, and as near to "
                f"zero; count in other units, got {self.low.tolist()} and {self.high.tolist()}"
            )

    @property
    def centres(self) -> Vector:
        """What is taken from features; nothing without an intercept, which would have to move."""
        return (self.low / 2 + self.high / 2) * self.intercept

    @property
    def reaches(self) -> Vector:
        """The largest magnitude of every centred feature."""
        return np.maximum(self.high - self.centres, self.centres - self.low)

    @property
    def column_reaches(self) -> Vector:
        """The same for the columns of ones, which comes first, and of features."""
        return np.append(1.0, self.reaches)

    def columns(self, X: Matrix, whole: NDArray[np.bool_]) -> Matrix:
        """Return a row of ones and one per feature, centred; records that are not whole are zero.

        Every entry depends on its record alone.

        Args:
            X: table of features.
            whole: mask of the records that count.
        """
        columns = np.empty((X.shape[1] + 1, len(X)))
        columns[0] = whole
        for j in range(X.shape[1]):
            entries = np.clip(X[:, j], self.low[j], self.high[j]) - self.centres[j]
            columns[j + 1] = np.where(whole, entries, 0.0)
        return columns

    def coefficients(self, found: Vector) -> tuple[Vector, float]:
        """Return slopes and intercept for features that are not centred."""
        slopes = found[1:].copy()
        if not self.intercept:
            return slopes, 0.0
        return slopes, float(found[0] - slopes @ self.centres)
