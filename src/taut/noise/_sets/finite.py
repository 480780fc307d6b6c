"""Finite sets of contributions, and the polytopes that they span."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base.arrays import Matrix, Vector, real_numbers
from taut._base.floats import ALIKE
from taut.accounting import Adjacency
from taut.noise._sets.projections import row_norms
from taut.noise._sets.sets import SensitivitySet, Source

__all__ = ["FiniteSet", "Polytope"]

_MOST_PAIRS = 200_000  # differences of 632 vectors; a solver of this size is no use


@dataclass(frozen=True, eq=False)
class _Vectors(SensitivitySet):
    vectors: Matrix

    def __init__(
        self,
        vectors: ArrayLike,
        *,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
        source: Source | str = Source.DECLARED,
    ) -> None:
        self._begin(adjacency, source)
        table = np.array(real_numbers(vectors, "vectors"))
        if table.ndim != 2 or not table.size:
            raise ValueError(
                f"vectors must be a table with one vector per row, got shape {table.shape}"
            )
        if not np.isfinite(table).all():
            raise ValueError("vectors must be finite, got NaN or infinity among them")
        if not table.any():
            raise ValueError("vectors must not all be zero: there is nothing to hide")
        table.setflags(write=False)
        self._set("vectors", table)
        self._set("dimension", table.shape[1])

    @property
    def max_l2(self) -> float:
        """The length of the longest vector."""
        return float(row_norms(self.vectors, 2.0).max())

    def reach(self) -> Vector:
        """Return the largest entry of every coordinate, up to sign."""
        largest: Vector = np.abs(self.vectors).max(axis=0)
        return largest


@dataclass(frozen=True, eq=False, init=False)
class FiniteSet(_Vectors):
    """The contributions that a record can make, one by one: rows of a table.

    Args:
        vectors: one contribution per row. Noise hides adding and removing them alike.

    `clip` replaces a row by the nearest vector; a row that is not finite counts as zero and becomes
    the vector nearest to it. The result is float64 whatever came in.

    **Guarantee**: Gaussian noise for the set is found numerically, with a certificate of how far
    its total variance can be from the least possible. For replace-one, `differences` holds the
    differences of all pairs.

    Example:
        >>> from taut.noise import FiniteSet
        >>> histogram = FiniteSet([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> histogram.clip([0.2, 0.9, 0.1])
        array([0., 1., 0.])
        >>> round(histogram.differences().max_l2, 6)
        1.414214
    """

    @property
    def rounding(self) -> float:
        """Zero, as rows become members; differences of members are rounded once."""
        if isinstance(self.contributions, FiniteSet):
            return 2 * self.contributions.max_l2 * 2.0**-52
        return 0.0

    def gauges(self, rows: Matrix) -> Vector:
        """Return 1 plus the distance to the nearest vector, in lengths of the longest."""
        distances = row_norms(rows - self.vectors[self._nearest(rows)], 2.0)
        return 1.0 + distances / self.max_l2

    def _project(self, rows: Matrix) -> Matrix:
        return np.array(self.vectors[self._nearest(rows)])

    def _inside(self, rows: Matrix) -> Matrix:
        # Neither shrinking nor a narrower type leaves a member what it is: always float64.
        return self._project(rows.astype(np.float64))

    def _nearest(self, rows: Matrix) -> NDArray[np.intp]:
        # Squares stay floats, and what is so far away is near the same vector.
        far = np.clip(rows / self.max_l2, -1e100, 1e100)
        # One vector at a time: a matrix product would round a row in view of the other rows.
        distances = [row_norms(far - near, 2.0) for near in self.vectors / self.max_l2]
        nearest: NDArray[np.intp] = np.argmin(distances, axis=0)
        return nearest

    def _doubled(self) -> Self:
        count = len(self.vectors)
        if count == 1:
            raise ValueError(
                "vectors must be at least two for differences: with one, replacing a record "
                "changes nothing"
            )
        if count * (count - 1) // 2 > _MOST_PAIRS:
            raise ValueError(
                f"vectors must be at most 632 to list all differences, got {count}; "
                "declare a Polytope, whose differences are twice itself"
            )
        one, other = np.triu_indices(count, 1)
        return replace(self, vectors=self.vectors[one] - self.vectors[other])


@dataclass(frozen=True, eq=False, init=False)
class Polytope(_Vectors):
    """The convex hull of the given vertices and their negatives.

    Args:
        vectors: one vertex per row.

    `clip` drops what lies outside the span of the vertices and scales the rest towards zero.

    **Guarantee**: the noise that hides the vertices hides the hull, as the length in any norm is
    largest at a vertex; so it is that of `FiniteSet`, with the same certificate.

    Example:
        >>> from taut.noise import Polytope
        >>> diamond = Polytope([[1.0, 0.0], [0.0, 2.0]])
        >>> diamond.contains([0.5, -1.0]), diamond.contains([0.6, 1.0])
        (True, False)
    """

    @property
    def rounding(self) -> float:
        """Products with the axes of the span, sums of vertices, and rows that are rounded once."""
        return (self.vectors.size + 10 * self.dimension) * self.max_l2 * 2.0**-52

    def gauges(self, rows: Matrix) -> Vector:
        """Return the least sum of |weights| that combines the vertices to every row."""
        left, sizes, right = self._decomposed
        largest = np.abs(rows).max(axis=1)
        unit = rows / np.where(largest > 0, largest, 1.0)[:, None]
        within = _by_rows(unit, right)
        # Products with rounded axes leave some 1e-15 of a row inside of the span.
        outside = row_norms(unit - _by_rows(within, right.T), 2.0) > 1e-9 * row_norms(unit, 2.0)
        table = (left * sizes).T
        found = [
            math.inf if out else _gauge(table, row)
            for out, row in zip(outside, within, strict=True)
        ]
        with np.errstate(over="ignore"):
            result: Vector = np.array(found) * (largest / self.max_l2)
        return np.where(largest > 0, result, 0.0)

    def _project(self, rows: Matrix) -> Matrix:
        right = self._decomposed[2]
        largest = np.abs(rows).max(axis=1)[:, None]
        unit = rows / np.where(largest > 0, largest, 1.0)
        spanned = _by_rows(_by_rows(unit, right), right.T)
        gauges = self.gauges(spanned)[:, None]
        # At most as long as the row was, and at most on the boundary.
        lengths = np.minimum(largest, 1 / np.where(gauges > 0, gauges, 1.0))
        result: Matrix = spanned * lengths
        return result

    @cached_property
    def _decomposed(self) -> tuple[Matrix, Vector, Matrix]:
        """The singular value decomposition of the vertices over the longest, without zeros."""
        left, sizes, right = np.linalg.svd(self.vectors / self.max_l2, full_matrices=False)
        kept = sizes > ALIKE * sizes[0]
        return left[:, kept], sizes[kept], right[kept]

    def _doubled(self) -> Self:
        return replace(self, vectors=2 * self.vectors)


def _by_rows(rows: Matrix, others: Matrix) -> Matrix:
    """Return rows @ others.T, every row to the last bit as if it were alone."""
    others = np.ascontiguousarray(others)
    return np.stack([(rows * other).sum(axis=1) for other in others], axis=1)


def _gauge(table: Matrix, row: Vector) -> float:
    """Solve the linear programme of the hull, in coordinates of the span."""
    from scipy.optimize import linprog  # slow to import, and rarely needed

    if not row.any():
        return 0.0
    costs = np.ones(2 * table.shape[1])
    found = linprog(costs, A_eq=np.hstack([table, -table]), b_eq=row, method="highs")
    if not found.success:
        return math.inf
    # The solver meets its equations to 1e-7; with the residual mended the sum is an upper bound.
    weights = found.x[: table.shape[1]] - found.x[table.shape[1] :]
    weights = weights + np.linalg.lstsq(table, row - table @ weights, rcond=None)[0]
    return float(np.abs(weights).sum())
