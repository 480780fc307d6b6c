"""Values as points of a public grid, finer than the values: equal ones lie side by side.

A quantile tree splits its data at what it released, and records that are equal would all fall to
one side. So a cell of the grid has 2^20 places, and the records of a cell take them in an order
that is known beforehand: one half, one quarter, three quarters, and so on. Adding a record then
adds one point, whatever the others are, and the points of a cell are spread evenly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut._base.arrays import Vector

__all__ = ["FineGrid", "fine_grid"]

_PLACE_BITS = 20  # of the places in a cell; more equal records than 2^20 share places
_PLACES = 1 << _PLACE_BITS
_CELL_BITS = 32  # of the default number of cells: below any error of noise, and whole numbers fit
_MOST_CELLS = 1 << 36  # candidates are then below 2^56, see the weights
_DOUBLE_BITS = 52  # of a bound, beyond which doubles have no finer neighbours


@dataclass(frozen=True)
class FineGrid:
    """The multiples of a power of two between public bounds.

    Attributes:
        step: distance of neighbouring values, a power of two.
        first: the least value, in steps.
        cells: number of values.
    """

    step: float
    first: int
    cells: int

    @property
    def places(self) -> int:
        """The number of candidates."""
        return self.cells << _PLACE_BITS

    def cells_of(self, values: Vector) -> NDArray[np.int64]:
        """Return the cell of every record: the nearest value of the grid, from 0 on."""
        with np.errstate(all="ignore"):  # a warning would tell of a record
            cells = np.rint(values / self.step)
            cells -= self.first
            np.clip(cells, 0, self.cells - 1, out=cells)
            cells[np.isnan(cells)] = self.cells // 2
            return cells.astype(np.int64)

    def points(self, values: Vector) -> NDArray[np.int64]:
        """Return one point per record, sorted.

        Args:
            values: numbers of any size; those beyond the grid, infinity included, count as its
                ends, and NaN as its middle.

        **Guarantee**: one record more is one point more, and the others stay where they are;
        nothing depends on the order of records, and no value makes the call fail or warn.
        """
        ordered = np.sort(self.cells_of(values))
        if not ordered.size:
            return ordered
        begins = np.flatnonzero(np.diff(ordered, prepend=-1))
        counts = np.diff(begins, append=ordered.size)
        turn = np.arange(ordered.size) - np.repeat(begins, counts)
        points = (ordered << _PLACE_BITS) + _turned(turn)
        points.sort()
        return points

    def points_of(self, cell: int, count: int, first: int, last: int) -> NDArray[np.int64]:
        """Return points of a cell that so many records share, from one of their ranks to another.

        They are those that `points` gives, in memory that depends on nothing but the grid.
        """
        rounds, rest = divmod(count, _PLACES)
        taken = _turned(np.arange(rest))
        if rounds == 0:
            within = np.sort(taken)[first:last]
        else:
            at = np.full(_PLACES, rounds)
            at[taken] += 1
            within = np.searchsorted(np.cumsum(at), np.arange(first, last), side="right")
        return (cell << _PLACE_BITS) + within

    def rank_in(self, place: int, count: int) -> int:
        """Return how many points of its cell, which so many records share, are below a place."""
        rounds, rest = divmod(count, _PLACES)
        within = place & (_PLACES - 1)
        return rounds * within + int((_turned(np.arange(rest)) < within).sum())

    def cell(self, place: int) -> int:
        """Return the cell of a candidate."""
        return place >> _PLACE_BITS

    def value(self, place: int) -> float:
        """Return the value of a candidate."""
        return (self.first + (place >> _PLACE_BITS)) * self.step


def fine_grid(lower: float, upper: float, step: float | None = None) -> FineGrid:
    """Return the grid between public bounds.

    Args:
        lower: least value.
        upper: largest value.
        step: distance of neighbouring values, a power of two; by default so fine that there are
            about 2^32 of them.

    Raises:
        ValueError: if the step is no power of two, or leaves fewer than two values, or too many.
    """
    finest = math.ldexp(1.0, math.frexp(max(abs(lower), abs(upper)))[1] - _DOUBLE_BITS)
    if step is None:
        step = max(math.ldexp(1.0, math.frexp(upper - lower)[1] - _CELL_BITS), finest)
    elif math.frexp(validate.positive(step=step))[0] != 0.5:
        near = math.ldexp(1.0, math.frexp(step)[1] - 1)
        raise ValueError(f"step must be a power of two, got step={step!r}; use {near!r}")
    if step < finest or (upper - lower) / step >= _MOST_CELLS:
        raise ValueError(
            f"step must leave fewer than 2^36 values, each a double, between {lower!r} and "
            f"{upper!r}, got step={step!r}; leave it out for the finest that is useful"
        )
    first, last = math.ceil(lower / step), math.floor(upper / step)
    if last <= first:
        raise ValueError(
            f"step must leave two values between {lower!r} and {upper!r}, got step={step!r}"
        )
    return FineGrid(step, first, last - first + 1)


def _turned(turn: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of the records of a cell, by their number: bits in the opposite order."""
    table = _reversed_bits()
    half = _PLACE_BITS // 2
    mask = (1 << half) - 1
    # From one on, so that a record alone lies in the middle of its cell.
    moved = turn + 1
    found: NDArray[np.int64] = (table[moved & mask] << half) | table[(moved >> half) & mask]
    return found


@lru_cache(maxsize=1)
def _reversed_bits() -> NDArray[np.int64]:
    half = _PLACE_BITS // 2
    texts = (f"{i:0{half}b}"[::-1] for i in range(1 << half))
    return np.array([int(text, 2) for text in texts], dtype=np.int64)
