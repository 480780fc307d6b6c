"""What is asked of a table: counts of cells, sums and products of columns, all exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taut.statistics._tables.batch import Batch
from taut.statistics._tables.cells import Cells, Intervals
from taut.statistics._tables.clipped_column import BITS, ClippedColumn

__all__ = ["MOST_ROWS", "Counts", "Limbs", "Products", "Query", "Sums"]

Integers: TypeAlias = NDArray[np.int64]
Limbs: TypeAlias = list[Integers]
"""Sums of a batch: integers whose weighted sum, with weights 2^0, 2^15, 2^30, is the answer."""

MOST_ROWS = 1 << 20
"""Of a batch: 2^20 integers of 2^31 sum to at most 2^51, which doubles do without rounding."""

_HALF_BITS = BITS // 2  # of which two limbs of an integer consist
_MOST_CELLS = 1 << 24  # of all columns together: their counts are held in memory


class Query(Protocol):
    """One question, answered by sums over batches in any order."""

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns that are read as numbers."""

    @property
    def cells(self) -> tuple[Cells, ...]:
        """The columns by which records are put into cells."""

    def limbs(self, batch: Batch) -> Limbs:
        """Return the sums of one batch of at most `MOST_ROWS` records."""

    def empty(self) -> Limbs:
        """Return the sums of no record."""


@dataclass(frozen=True)
class Counts:
    """The number of records in every joint cell; without cells, in the table."""

    cells: tuple[Cells, ...] = ()

    def __post_init__(self) -> None:
        """Check the number of cells."""
        _grid(self.cells)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns that are read as numbers."""
        return _numbers((), self.cells)

    def limbs(self, batch: Batch) -> Limbs:
        """Return the counts of a batch."""
        if not self.cells:
            return [np.array(batch.rows, dtype=np.int64)]
        grid = _grid(self.cells)
        if len(self.cells) == 1 and isinstance(self.cells[0], Intervals):
            return [grid.kept(self.cells[0].histogram(batch))]
        counts = np.bincount(grid.places(batch), minlength=grid.size)
        return [grid.kept(counts.astype(np.int64, copy=False))]

    def empty(self) -> Limbs:
        """Return zero for every cell."""
        return [np.zeros(_grid(self.cells).shape, dtype=np.int64)]


@dataclass(frozen=True)
class _OfColumns:
    """What is asked of the integers of columns, in every joint cell or in the table."""

    columns: tuple[ClippedColumn, ...]
    cells: tuple[Cells, ...] = ()

    def __post_init__(self) -> None:
        """Check the number of cells."""
        _grid(self.cells)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns that are read as numbers."""
        return _numbers(self.columns, self.cells)


@dataclass(frozen=True)
class Sums(_OfColumns):
    """Sums of the integers of columns: for every cell and column."""

    def limbs(self, batch: Batch) -> Limbs:
        """Return the sums of a batch."""
        found = [column.integers(batch.numbers(column.name)) for column in self.columns]
        return [_summed(found, batch, self.cells)]

    def empty(self) -> Limbs:
        """Return zero for every cell and column."""
        return [_zeros(self.cells, (len(self.columns),))]


@dataclass(frozen=True)
class Products(_OfColumns):
    """Sums of products of the integers of columns, squares included: for every cell and pair."""

    def limbs(self, batch: Batch) -> Limbs:
        """Return the sums of a batch, in three limbs."""
        found = [column.integers(batch.numbers(column.name)) for column in self.columns]
        low = [integers & ((1 << _HALF_BITS) - 1) for integers in found]
        high = [integers >> _HALF_BITS for integers in found]
        if self.cells:
            return self._by_cell(low, high, batch)
        both = np.array([*low, *high], dtype=np.float64)
        table = (both @ both.T).astype(np.int64)  # sums of 2^20 products below 2^31
        n = len(found)
        return [table[:n, :n], table[:n, n:] + table[n:, :n], table[n:, n:]]

    def empty(self) -> Limbs:
        """Return zero for every cell and pair."""
        n = len(self.columns)
        return [_zeros(self.cells, (n, n)) for _ in range(3)]

    def _by_cell(self, low: list[Integers], high: list[Integers], batch: Batch) -> Limbs:
        grid = _grid(self.cells)
        places = grid.places(batch)
        limbs = self.empty()
        for i in range(len(self.columns)):
            for j in range(i, len(self.columns)):
                mixed = low[i] * high[j] + high[i] * low[j]
                for limb, product in zip(
                    limbs, (low[i] * low[j], mixed, high[i] * high[j]), strict=True
                ):
                    limb[..., i, j] = limb[..., j, i] = grid.sums(places, product)
        return limbs


class _Grid:
    """All joint cells of several columns, in one row."""

    def __init__(self, cells: Sequence[Cells]) -> None:
        self._cells = cells
        self._widths = [one.inner + 1 for one in cells]  # the last for all other records
        self.size = math.prod(self._widths)
        if self.size > _MOST_CELLS:
            raise ValueError(
                f"the cells of all columns together must be at most {_MOST_CELLS}, got "
                f"{self.size}; take fewer columns or wider cells"
            )

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(one.size for one in self._cells)

    def places(self, batch: Batch) -> NDArray[np.intp]:
        """Return the joint cell of every record."""
        joint = self._cells[0].places(batch)
        for one, width in zip(self._cells[1:], self._widths[1:], strict=True):
            joint = joint * width + one.places(batch)
        return joint

    def sums(self, places: NDArray[np.intp], values: NDArray[Any]) -> Integers:
        """Return sums by cell, of integers that sum to less than 2^53."""
        found = np.bincount(places, weights=values, minlength=self.size)
        return self.kept(found.astype(np.int64))

    def kept(self, row: Integers) -> Integers:
        """Return the cells that were asked for, one axis per column."""
        inside = tuple(slice(0, one.size) for one in self._cells)
        return row.reshape(self._widths)[inside]


@lru_cache(maxsize=64)
def _grid(cells: tuple[Cells, ...]) -> _Grid:
    return _Grid(cells)


def _summed(columns: Sequence[NDArray[Any]], batch: Batch, cells: tuple[Cells, ...]) -> Integers:
    if not cells:
        return np.array([column.sum(dtype=np.int64) for column in columns], dtype=np.int64)
    grid = _grid(cells)
    places = grid.places(batch)
    return np.stack([grid.sums(places, column) for column in columns], axis=-1)


def _zeros(cells: tuple[Cells, ...], shape: tuple[int, ...]) -> Integers:
    return np.zeros((*_grid(cells).shape, *shape), dtype=np.int64)


def _numbers(columns: Sequence[ClippedColumn], cells: Sequence[Cells]) -> tuple[str, ...]:
    named = [column.name for column in columns]
    named += [one.name for one in cells if isinstance(one, Intervals)]
    return tuple(dict.fromkeys(named))
