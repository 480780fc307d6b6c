"""Totals and means of a column in every cell of others: tables by public groups."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Vector
from taut.statistics._releases.descriptions import Bounds, Statistic, checked_bounds, checked_cells
from taut.statistics._tables.cells import Cells
from taut.statistics._tables.clipped_column import BITS, ClippedColumn

__all__ = ["GroupMeans", "GroupStatistic", "GroupSums", "GroupTotals"]


@dataclass(frozen=True)
class GroupSums:
    """Counts and sums of a column in every cell, as two sums of which no record moves both far.

    A record with the integer k, at most K in magnitude, adds K + k to the one sum of its cell and
    K - k to the other: neither is negative, and together they are 2K, whatever k is. So all cells
    together have an l1 ball as their sensitivity set, with the noise that counts have, and neither
    the number of cells nor the count beside the sum adds to it.

    Attributes:
        column: column that is summed.
        cells: cells of the groups.
    """

    column: ClippedColumn
    cells: tuple[Cells, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of every column."""
        return tuple(one.size for one in self.cells)

    @property
    def groups(self) -> int:
        """The number of groups."""
        return math.prod(self.shape)

    @property
    def unit(self) -> float:
        """What an integer of one stands for: a record is then 1 at most."""
        return math.ldexp(1.0, -BITS - 1)

    @property
    def size(self) -> float:
        """What one record adds to its two sums together."""
        return 2 * self.column.reach * self.unit

    @property
    def half(self) -> float:
        """Half of the range of the column, as a record changes it."""
        return self.column.reach * self.column.unit

    def integers(self, counts: Vector, sums: Vector) -> list[int]:
        """Return the two sums of every group, side by side, from exact counts and sums."""
        whole = [self.column.reach * int(count) for count in counts.ravel()]
        own = [int(one) for one in sums.ravel()]
        pairs = ((n + s, n - s) for n, s in zip(whole, own, strict=True))
        return [integer for pair in pairs for integer in pair]

    def counts_and_sums(self, values: Vector) -> tuple[Vector, Vector]:
        """Return counts, and sums of what values are beyond the middle in half ranges."""
        above, below = (
            values.reshape(*self.shape, 2)[..., 0],
            values.reshape(*self.shape, 2)[..., 1],
        )
        return (above + below) / self.size, (above - below) / self.size


@dataclass(frozen=True)
class GroupStatistic(Statistic):
    """A statistic of one column in every cell of others.

    Args:
        column: name of the column.
        bounds: public lower and upper bound; values beyond them count as the bounds, and missing
            values as the middle.
        by: public cells of one column or of several: `Categories` or `Intervals`.
    """

    column: str
    bounds: Bounds
    by: Cells | Sequence[Cells]

    def __post_init__(self) -> None:
        """Check bounds and cells."""
        object.__setattr__(self, "bounds", checked_bounds(self.column, self.bounds))
        object.__setattr__(self, "by", checked_cells(self.by))
        super().__post_init__()

    @property
    def sums(self) -> GroupSums:
        """The sums that it is computed from."""
        return GroupSums(ClippedColumn(self.column, *self.bounds), tuple(self.by))  # type: ignore[arg-type]

    @property
    def cell_names(self) -> str:
        """The columns of the groups, in words."""
        return ", ".join(one.name for one in self.sums.cells)

    @property
    @abstractmethod
    def noise_weight(self) -> float:
        """By how much the variance of counts and of sums counts together, in records."""

    @abstractmethod
    def of(self, counts: Vector, sums: Vector) -> Vector:
        """Return the statistic of every group, from counts, and sums in half ranges."""

    @property
    def limits(self) -> tuple[float, float]:
        """Public numbers that the statistic of any clipped data lies between."""
        return -math.inf, math.inf

    @abstractmethod
    def deviations(self, counts: Vector, sums: Vector, deviation: Vector) -> Vector:
        """Return the standard error, where counts and sums have this standard deviation each."""


@dataclass(frozen=True)
class GroupTotals(GroupStatistic):
    """The sum of a column in every public group.

    Example:
        >>> from taut.statistics import Categories, GroupTotals
        >>> GroupTotals("income", (0, 150), by=Categories("region", ["north", "south"])).name
        'totals of income by region'
    """

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"totals of {self.column} by {self.cell_names}"

    @property
    def noise_weight(self) -> float:
        """By how much the variance of counts and of sums counts together, in records."""
        return 1 + (self.sums.column.middle / self.sums.half) ** 2

    def of(self, counts: Vector, sums: Vector) -> Vector:
        """Return the sum of every group."""
        return self.sums.half * sums + self.sums.column.middle * counts

    def deviations(self, counts: Vector, sums: Vector, deviation: Vector) -> Vector:
        """Return the standard error of every sum."""
        return math.hypot(self.sums.half, self.sums.column.middle) * deviation


@dataclass(frozen=True)
class GroupMeans(GroupStatistic):
    """The mean of a column in every public group.

    Groups of few records have means of little use: their standard errors say so.

    Example:
        >>> from taut.statistics import Categories, GroupMeans
        >>> GroupMeans("age", (18, 90), by=Categories("region", ["north", "south"])).name
        'means of age by region'
    """

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"means of {self.column} by {self.cell_names}"

    @property
    def noise_weight(self) -> float:
        """By how much the variance of counts and of sums counts together, in records."""
        return 2.0

    def of(self, counts: Vector, sums: Vector) -> Vector:
        """Return the mean of every group, cut to the bounds; counts below one are taken as one."""
        found = self.sums.column.middle + self.sums.half * (sums / np.maximum(counts, 1.0))
        return np.clip(found, *self.limits)

    @property
    def limits(self) -> tuple[float, float]:
        """The bounds."""
        return self.sums.column.lower, self.sums.column.upper

    def deviations(self, counts: Vector, sums: Vector, deviation: Vector) -> Vector:
        """Return the standard error of every mean, to first order in 1 / n."""
        records = np.maximum(counts, 1.0)
        slope = np.hypot(1.0, np.clip(sums / records, -1.0, 1.0)) / records
        found: Vector = self.sums.half * slope * deviation
        return found
