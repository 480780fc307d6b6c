"""Points of a column that is longer than memory: their order from counts of passes over the table.

A draw looks at no points but those of the ranks around the wanted one. Exact counts of wide cells
tell in which of them those ranks lie, and exact counts within these alone tell more, until every
cell is one of the grid. So what is drawn is what would be drawn in memory, from the same points;
counts are secret all the way, and what they choose to count next is never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taut.statistics._mechanisms.fine_points import FineGrid
from taut.statistics._tables.batch import Batch
from taut.statistics._tables.cells import Cells
from taut.statistics._tables.queries import Limbs, Query
from taut.statistics._tables.scan import Answer

__all__ = ["MOST_NEAR", "CellBits", "CountedPoints"]

_COUNT_BITS = 20  # of the number of counts in a pass: 8 MB
MOST_NEAR = 1 << 16
"""Of points that draws look at: every pass then tells four bits of their cells at least."""

_TABLE_BITS = 16  # of a table of leading bits, which stays in the cache of a core


@dataclass(frozen=True, eq=False)
class CellBits:
    """A query: the number of records by the leading bits of their cell on a grid.

    Args:
        name: name of the column.
        grid: the grid.
        shift: number of bits that are left out.
        kept: leading bits of the only cells that are counted, sorted; None for all of them.
        bits: number of bits by which the counts are finer than `kept`.
    """

    name: str
    grid: FineGrid
    shift: int
    kept: NDArray[np.int64] | None = None
    bits: int = 0
    cells: tuple[Cells, ...] = field(default=(), init=False)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns that are read as numbers."""
        return (self.name,)

    def limbs(self, batch: Batch) -> Limbs:
        """Return the counts of a batch."""
        if not self._size:
            return self.empty()
        found = self.grid.cells_of(batch.numbers(self.name)) >> self.shift
        if self.kept is not None:
            # Most records are far from all ranks that count, which a look at a table tells.
            found = found[self._is_near.take(found >> self._near_shift, mode="clip")]
            parents = found >> self.bits
            at = np.searchsorted(self.kept, parents)
            inside = self.kept.take(at, mode="clip") == parents
            found = (at[inside] << self.bits) | (found[inside] & ((1 << self.bits) - 1))
        return [np.bincount(found, minlength=self._size).astype(np.int64, copy=False)]

    def empty(self) -> Limbs:
        """Return zero for every count."""
        return [np.zeros(self._size, dtype=np.int64)]

    @property
    def _near_shift(self) -> int:
        return max(0, ((self.grid.cells - 1) >> self.shift).bit_length() - _TABLE_BITS)

    @cached_property
    def _is_near(self) -> NDArray[np.bool_]:
        assert self.kept is not None
        found = np.zeros(1 << _TABLE_BITS, dtype=np.bool_)
        first, last = self.kept << self.bits, ((self.kept + 1) << self.bits) - 1
        for end in (first, last):
            found[np.minimum(end >> self._near_shift, found.size - 1)] = True
        if self._near_shift < self.bits:  # a kept cell is longer than an entry of the table
            for low, high in zip(first >> self._near_shift, last >> self._near_shift, strict=True):
                found[low : high + 1] = True
        return found

    @property
    def _size(self) -> int:
        if self.kept is None:
            return ((self.grid.cells - 1) >> self.shift) + 1
        return self.kept.size << self.bits


@dataclass(frozen=True)
class _Counted:
    """Cells of so many leading bits, in order, with the rank of their first point."""

    shift: int
    cells: NDArray[np.int64]
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]

    def at(self, places: NDArray[np.intp]) -> _Counted:
        """Return some of the cells."""
        return _Counted(self.shift, self.cells[places], self.starts[places], self.counts[places])


class CountedPoints:
    """The points of a column, of which exact counts are asked for.

    How many passes are made depends on the grid and on public bounds alone.
    """

    def __init__(self, name: str, grid: FineGrid, ask: Callable[[Query], Answer]) -> None:
        """Begin without counts.

        Args:
            name: name of the column.
            grid: the grid.
            ask: the function that goes over the table once.
        """
        self._name = name
        self._grid = grid
        self._ask = ask
        self._all: _Counted | None = None

    @property
    def first_query(self) -> CellBits:
        """What has to be counted first, together with whatever else is asked of the table."""
        return CellBits(
            self._name, self._grid, max(0, (self._grid.cells - 1).bit_length() - _COUNT_BITS)
        )

    def take(self, answer: Answer) -> None:
        """Take the answer to the first query."""
        counts = answer.astype(np.int64)
        cells = np.arange(counts.size)
        self._all = _Counted(self.first_query.shift, cells, np.cumsum(counts) - counts, counts)

    @property
    def size(self) -> int:
        """The number of points."""
        return int(self._whole.counts.sum())

    def ranks(self, places: Sequence[int]) -> NDArray[np.int64]:
        """Return how many points are below each place; at the ends of the grid without a pass."""
        ends = {0: 0, self._grid.places: self.size}
        inner = sorted({place for place in places if place not in ends})
        if inner:
            wanted = np.array([self._grid.cell(place) for place in inner])
            finest = self._descended(
                lambda found: np.searchsorted(found.cells, wanted >> found.shift), len(inner)
            )
            at = np.searchsorted(finest.cells, wanted)
            for place, i in zip(inner, at.tolist(), strict=True):
                within = self._grid.rank_in(place, int(finest.counts[i]))
                ends[place] = int(finest.starts[i]) + within
        return np.array([ends[place] for place in places], dtype=np.int64)

    def between(self, spans: Sequence[tuple[int, int]], most: int) -> list[NDArray[np.int64]]:
        """Return the points of some ranks, from one up to another."""
        wide = [span for span in spans if span[0] < span[1]]
        finest = self._descended(lambda found: _of_ranks(found, wide), most)
        return [self._points(finest, first, last) for first, last in spans]

    @property
    def _whole(self) -> _Counted:
        assert self._all is not None
        return self._all

    def _descended(self, wanted: Callable[[_Counted], NDArray[np.intp]], most: int) -> _Counted:
        """Return the finest cells that a function wants, found among those that it wanted before.

        Args:
            wanted: function that says which of some cells to look into: never more than `most`.
            most: public number, which tells how much finer a pass may count.
        """
        found = self._whole
        finer = max(1, _COUNT_BITS - max(most - 1, 0).bit_length())
        while found.shift:
            kept = found.at(np.unique(wanted(found)))
            found = self._finer(kept, min(finer, found.shift))
        return found

    def _finer(self, kept: _Counted, bits: int) -> _Counted:
        shift = kept.shift - bits
        query = CellBits(self._name, self._grid, shift, kept.cells, bits)
        counts = self._ask(query).astype(np.int64).reshape(-1, 1 << bits)
        if not np.array_equal(counts.sum(axis=1), kept.counts):
            # Never of a table that stays as it is, whatever its records are.
            raise ValueError(
                "the table changed while it was read; quantiles of a table beyond memory go over "
                "it several times, and need the same records each time"
            )
        starts = kept.starts[:, None] + np.cumsum(counts, axis=1) - counts
        cells = (kept.cells[:, None] << bits) + np.arange(1 << bits)
        return _Counted(shift, cells.ravel(), starts.ravel(), counts.ravel())

    def _points(self, finest: _Counted, first: int, last: int) -> NDArray[np.int64]:
        parts = [np.empty(0, dtype=np.int64)]
        some = finest.at(_of_ranks(finest, [(first, last)] if first < last else []))
        for cell, start, count in zip(
            some.cells.tolist(), some.starts.tolist(), some.counts.tolist(), strict=True
        ):
            ends = max(first - start, 0), min(last - start, count)
            parts.append(self._grid.points_of(cell, count, *ends))
        return np.concatenate(parts)


def _of_ranks(found: _Counted, spans: Sequence[tuple[int, int]]) -> NDArray[np.intp]:
    """Return the cells that hold points of some ranks."""
    ends = found.starts + found.counts
    parts = [np.empty(0, dtype=np.intp)]
    for first, last in spans:
        # The first cell that ends after a rank is the one that holds it.
        begin, stop = np.searchsorted(ends, [first, last - 1], side="right")
        some = np.arange(begin, stop + 1)
        parts.append(some[found.counts[some] > 0])
    return np.concatenate(parts)
