"""Histograms: every record is counted in one cell, or in a few."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency
from taut.noise._sets.named_tables import checked_names
from taut.noise._sets.projections import row_norms
from taut.noise._sets.sets import Outline, SensitivitySet, Source, even_outline

__all__ = ["Histogram"]


@dataclass(frozen=True, eq=False)
class Histogram(SensitivitySet):
    """What one record can change in a histogram: the count of one cell, or of a few, by one.

    Args:
        cells: how many cells there are, or their names. They must be public: a cell for every
            value that occurs in the data tells which values occur.
        per_record: largest number of cells that count one record.

    For replace-one (`differences`, or ``adjacency="replace"``) a record leaves ``per_record`` cells
    and enters as many others, so that twice as many counts move, each by one.

    `clip` replaces a row by the nearest row of zeros and ones with at most ``per_record`` ones (of
    equal entries the first count), so that sums are counts. The result is float64 whatever came in.

    **Guarantee**: the losses of Laplace, integer Laplace and Gaussian noise of one size are exact.
    Gaussian noise is of least total variance among all covariances if one count moves.

    Example:
        >>> from taut.noise import Histogram, recommend
        >>> regions = Histogram(["north", "south", "west"])
        >>> regions.clip(regions.indicators(["south", "west", "elsewhere"]))
        array([[0., 1., 0.],
               [0., 0., 1.],
               [0., 0., 0.]])
        >>> recommend(regions, epsilon=1.0).best.name
        'integer Laplace'
        >>> regions.differences().moved
        2
    """

    cells: int
    per_record: int = 1

    def __init__(
        self,
        cells: int | Iterable[str],
        per_record: int = 1,
        *,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
        source: Source | str = Source.DECLARED,
    ) -> None:
        self._begin(adjacency, source)
        names = None if isinstance(cells, int | np.integer | float) else tuple(cells)
        size = validate.positive_integer(cells=cells if names is None else len(names))
        self._set("cells", size)
        self._set("dimension", size)
        self._set("columns", None if names is None else checked_names(names, size))
        self._set("per_record", validate.positive_integer(per_record=per_record))
        if self.per_record > size:
            raise ValueError(f"per_record must be at most the {size} cells, got {self.per_record}")
        if self.adjacency is Adjacency.REPLACE:
            own = self._for_relation(Adjacency.ADD_REMOVE)
            self._set("contributions", own)

    @property
    def moved(self) -> int:
        """How many counts one record can move, each by one."""
        times = 2 if self.adjacency is Adjacency.REPLACE else 1
        return min(times * self.per_record, self.cells)

    @property
    def max_l2(self) -> float:
        """The root of the number of counts that move."""
        return math.sqrt(self.moved)

    def indicators(self, labels: Sequence[object]) -> NDArray[np.int8]:
        """Return one row per record, with a one in the cell of its label.

        Args:
            labels: one label per record: the name of a cell, or its number if cells have no names.
                A record whose label is no cell is counted nowhere.
        """
        names: Iterable[object] = range(self.cells) if self.columns is None else self.columns
        place = {name: i for i, name in enumerate(names)}
        found = np.array([place.get(label, -1) for label in labels], dtype=np.int64)
        rows = np.zeros((found.size, self.cells), dtype=np.int8)
        known = found >= 0
        rows[np.flatnonzero(known), found[known]] = 1
        return rows

    def gauges(self, rows: Matrix) -> Vector:
        """Return the largest ratio to a bound; above one by the distance to whole numbers."""
        away = row_norms(rows - np.rint(rows), math.inf)
        bounded = np.maximum(row_norms(rows, math.inf), row_norms(rows, 1.0) / self.moved)
        return np.where(away > 0, np.maximum(bounded, 1.0) + away, bounded)

    def reach(self) -> Vector:
        """Return one for every cell."""
        return np.ones(self.cells)

    def outline(self, *, by_axis: bool = False) -> Outline:
        """Return one block, or under weights one per cell with a common cap."""
        one = self.moved == 1  # with more counts, correlated noise can be a little smaller
        if by_axis:
            ones = np.ones(self.cells)
            return Outline(ones, ones, self.max_l2, exact=one)
        rank = np.array([float(self.cells)])
        return Outline(rank, np.array([self.max_l2]), self.max_l2, exact=one)

    def l1_outline(self, *, by_axis: bool = False) -> Outline:
        """Return how many counts change by one, and that a cell changes by no more."""
        return even_outline(self.cells, 1.0, float(self.moved), by_axis=by_axis, exact=True)

    def _project(self, rows: Matrix) -> Matrix:
        order = np.argsort(-rows, axis=1, kind="stable")[:, : self.per_record]
        chosen = np.take_along_axis(rows, order, axis=1) >= 0.5
        result = np.zeros_like(rows)
        np.put_along_axis(result, order, chosen.astype(np.float64), axis=1)
        return result

    def _inside(self, rows: Matrix) -> Matrix:
        return rows.astype(np.float64)

    def _doubled(self) -> Self:
        return self

    def _for_relation(self, adjacency: Adjacency) -> Self:
        cells = self.cells if self.columns is None else self.columns
        return type(self)(cells, self.per_record, adjacency=adjacency, source=self.source)
