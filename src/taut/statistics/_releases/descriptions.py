"""Statistics as frozen values: what is wanted of which columns, between which public bounds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut.statistics._mechanisms.fine_points import FineGrid, fine_grid
from taut.statistics._releases.coordinates import Coordinate, Moments
from taut.statistics._tables.cells import Categories, Cells, Intervals
from taut.statistics._tables.clipped_column import ClippedColumn
from taut.statistics._tables.queries import Counts

__all__ = [
    "Bounds",
    "CellCounts",
    "Count",
    "Covariance",
    "LinearStatistic",
    "Mean",
    "Quantiles",
    "Statistic",
    "Total",
    "Variance",
    "checked_bounds",
    "checked_cells",
]

Bounds: TypeAlias = Sequence[float]

_COUNT = Coordinate()
_TYPICAL = 0.25  # of the squared half range: where noise is planned for squares of means
_LARGEST_WEIGHT = 1e9  # and the least is one over it: beyond, a part has next to no budget
_MOST_DENOMINATOR = 1000  # of a share: rounding it moves a rank by less than n / 10^6 records


@dataclass(frozen=True, kw_only=True)
class Statistic(ABC):
    """Something to release about a table.

    Args:
        weight: how much its squared error counts when several share a budget, from 1e-9 to 1e9;
            errors are compared in records, at the ends of their ranges.
        name: what the result is called.
    """

    weight: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        """Check what all statistics have."""
        weight = validate.positive(weight=self.weight)
        if not 1 / _LARGEST_WEIGHT <= weight <= _LARGEST_WEIGHT:
            raise ValueError(
                f"weight must lie between {1 / _LARGEST_WEIGHT:g} and {_LARGEST_WEIGHT:g}, got "
                f"weight={self.weight!r}; for a share of its own, release a statistic alone"
            )
        validate.instance(str, name=self.name)
        object.__setattr__(self, "name", self.name or self.title)

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is, in words."""


class LinearStatistic(Statistic):
    """A statistic that is a function of a count and of sums."""

    @abstractmethod
    def terms(self) -> Iterator[tuple[Coordinate, float]]:
        """Yield the sums that it needs, and by how much the variance of their noise counts.

        A weight times a variance is a squared error in records: relative to the half range.
        """

    @abstractmethod
    def of(self, moments: Moments) -> Vector:
        """Return the statistic, as smooth as its sums are: errors are read off its slopes."""

    @property
    def limits(self) -> tuple[float, float]:
        """Public numbers that the statistic of any clipped data lies between."""
        return -math.inf, math.inf

    def kept(self, value: Vector) -> Vector:
        """Return what is published of a value: noise may have moved it beyond its limits."""
        return np.clip(value, *self.limits)


@dataclass(frozen=True)
class Count(LinearStatistic):
    """The number of records.

    Example:
        >>> from taut.statistics import Count
        >>> Count().name
        'count'
    """

    @property
    def title(self) -> str:
        """What it is, in words."""
        return "count"

    def terms(self) -> Iterator[tuple[Coordinate, float]]:
        """Yield the count."""
        yield _COUNT, 1.0

    def of(self, moments: Moments) -> Vector:
        """Return the number of records."""
        return np.array(moments.records)


@dataclass(frozen=True)
class _OfColumn(LinearStatistic):
    """A statistic of one column of numbers.

    Args:
        column: name of the column.
        bounds: public lower and upper bound; values beyond them count as the bounds, and missing
            values as the middle.
    """

    column: str
    bounds: Bounds

    def __post_init__(self) -> None:
        """Check the bounds."""
        object.__setattr__(self, "bounds", checked_bounds(self.column, self.bounds))
        super().__post_init__()

    @property
    def clipped(self) -> ClippedColumn:
        """The column, cut to its bounds."""
        return ClippedColumn(self.column, *self.bounds)

    @property
    def half(self) -> float:
        """Half of the range, as a record changes it."""
        return Coordinate((self.clipped,)).width


@dataclass(frozen=True)
class Total(_OfColumn):
    """The sum of a column.

    Example:
        >>> from taut.statistics import Total
        >>> Total("income", bounds=(0, 150)).name
        'total of income'
    """

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"total of {self.column}"

    def terms(self) -> Iterator[tuple[Coordinate, float]]:
        """Yield the sum around the middle, and the count that it is multiplied by."""
        yield Coordinate((self.clipped,)), 1 / self.half**2
        yield _COUNT, max((self.clipped.middle / self.half) ** 2, 1e-12)

    def of(self, moments: Moments) -> Vector:
        """Return the sum."""
        return np.array(moments.sum(self.clipped) + self.clipped.middle * moments.records)


@dataclass(frozen=True)
class Mean(_OfColumn):
    """The mean of a column.

    Example:
        >>> from taut.statistics import Mean
        >>> Mean("age", bounds=(18, 90)).name
        'mean of age'
    """

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"mean of {self.column}"

    def terms(self) -> Iterator[tuple[Coordinate, float]]:
        """Yield the sum around the middle, and the count, as for a mean at the end of the range."""
        yield Coordinate((self.clipped,)), 1 / self.half**2
        yield _COUNT, 1.0

    def of(self, moments: Moments) -> Vector:
        """Return the mean."""
        return np.array(self.clipped.middle + moments.mean(self.clipped))

    @property
    def limits(self) -> tuple[float, float]:
        """The bounds."""
        return self.clipped.lower, self.clipped.upper


@dataclass(frozen=True)
class Variance(_OfColumn):
    """The variance of a column: the mean of squared differences from the mean.

    Example:
        >>> from taut.statistics import Variance
        >>> Variance("age", bounds=(18, 90)).name
        'variance of age'
    """

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"variance of {self.column}"

    def terms(self) -> Iterator[tuple[Coordinate, float]]:
        """Yield squares, the sum and the count, as for a mean half way to the end of the range."""
        yield Coordinate((self.clipped, self.clipped)), 1 / self.half**4
        yield Coordinate((self.clipped,)), 4 * _TYPICAL / self.half**2
        yield _COUNT, _TYPICAL

    def of(self, moments: Moments) -> Vector:
        """Return the variance."""
        return moments.covariance((self.clipped,)).reshape(())

    @property
    def limits(self) -> tuple[float, float]:
        """Zero, and the variance of values at both ends."""
        return 0.0, self.half**2


@dataclass(frozen=True)
class Covariance(LinearStatistic):
    """The covariance matrix of some columns.

    Args:
        bounds: public lower and upper bound of every column, by name.
        positive: whether negative eigenvalues, which noise can make, are set to zero.

    Example:
        >>> from taut.statistics import Covariance
        >>> Covariance({"age": (18, 90), "income": (0, 150)}).name
        'covariance of age, income'
    """

    bounds: Mapping[str, Bounds] = field(compare=False)
    positive: bool = True
    clipped: tuple[ClippedColumn, ...] = field(init=False, repr=False)  # in order, unlike bounds

    def __post_init__(self) -> None:
        """Check the bounds."""
        if not isinstance(self.bounds, Mapping) or not self.bounds:
            raise ValueError("bounds must be a mapping, such as {'age': (18, 90)}")
        checked = {name: checked_bounds(name, bounds) for name, bounds in self.bounds.items()}
        object.__setattr__(self, "bounds", checked)
        columns = tuple(ClippedColumn(name, *bounds) for name, bounds in checked.items())
        object.__setattr__(self, "clipped", columns)
        super().__post_init__()

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"covariance of {', '.join(self.bounds)}"

    def terms(self) -> Iterator[tuple[Coordinate, float]]:
        """Yield products, sums and the count, so that entries count by their half ranges."""
        entries = len(self.clipped) * (len(self.clipped) + 1) / 2
        for i, one in enumerate(self.clipped):
            half = Coordinate((one,)).width
            yield Coordinate((one,)), _TYPICAL * (len(self.clipped) + 3) / half**2 / entries
            for other in self.clipped[i:]:
                product = (half * Coordinate((other,)).width) ** 2
                yield Coordinate((one, other)), 1 / product / entries
        yield _COUNT, _TYPICAL

    def of(self, moments: Moments) -> Vector:
        """Return the matrix."""
        return moments.covariance(self.clipped)

    def kept(self, value: Vector) -> Vector:
        """Return the matrix without negative eigenvalues, if they were not asked for."""
        return _positive_part(value, self.clipped) if self.positive else value


@dataclass(frozen=True)
class CellCounts(Statistic):
    """The number of records in every cell: a histogram, or a table of several columns.

    Args:
        cells: public cells of one column or of several: `Categories` or `Intervals`.

    Counts are whole numbers or multiples of a small grid, unbiased, and may be negative.

    Example:
        >>> from taut.statistics import Categories, CellCounts
        >>> CellCounts(Categories("region", ["north", "south"])).name
        'counts by region'
    """

    cells: Cells | Sequence[Cells]

    def __post_init__(self) -> None:
        """Check the cells."""
        object.__setattr__(self, "cells", checked_cells(self.cells))
        super().__post_init__()

    @property
    def columns(self) -> tuple[Cells, ...]:
        """The cells of every column."""
        return tuple(self.cells)  # type: ignore[arg-type]  # a tuple, once it was checked

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of every column."""
        return tuple(one.size for one in self.columns)

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"counts by {', '.join(one.name for one in self.columns)}"


@dataclass(frozen=True)
class Quantiles(Statistic):
    """Values of a column below which given shares of the records lie.

    Args:
        column: name of the column.
        shares: shares, increasing and between 0 and 1; taken as fractions with denominators up to
            1000.
        bounds: public lower and upper bound; values beyond them count as the bounds, and missing
            values as the middle.
        step: power of two of which quantiles are multiples, by default some 2^-32 of the range.

    Example:
        >>> from taut.statistics import Quantiles
        >>> Quantiles("age", [0.25, 0.5, 0.75], bounds=(18, 90)).name
        'quantiles of age'
    """

    column: str
    shares: Iterable[float]
    bounds: Bounds
    step: float | None = None

    def __post_init__(self) -> None:
        """Check shares and bounds."""
        given = self.shares if isinstance(self.shares, Iterable) else (self.shares,)
        shares = tuple(validate.finite(share=share) for share in given)
        if not shares or not all(0 < share < 1 for share in shares):
            raise ValueError(f"shares must be numbers between 0 and 1, got {list(shares)!r}")
        object.__setattr__(self, "shares", shares)
        exact = self.fractions
        if any(not 0 < share < 1 for share in exact) or any(np.diff(np.array(exact)) <= 0):
            raise ValueError(
                "shares must lie between 0.001 and 0.999 and increase, by a thousandth at least, "
                f"got {list(shares)!r}"
            )
        object.__setattr__(self, "bounds", checked_bounds(self.column, self.bounds))
        self.grid  # noqa: B018  # a step that does not fit is refused here
        super().__post_init__()

    @property
    def fractions(self) -> tuple[Fraction, ...]:
        """The shares as fractions."""
        return tuple(Fraction(one).limit_denominator(_MOST_DENOMINATOR) for one in self.shares)

    @property
    def grid(self) -> FineGrid:
        """The public values from which quantiles are chosen."""
        lower, upper = self.bounds
        return fine_grid(lower, upper, self.step)

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"quantiles of {self.column}"


def checked_bounds(column: str, bounds: Bounds) -> tuple[float, float]:
    """Return the bounds of a column.

    Raises:
        ValueError: if they are no pair, or the wrong way round.
    """
    try:
        lower, upper = bounds
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds of column {column!r} must be a pair (lower, upper), got "
            f"{validate.told(bounds)}; where none are known, see estimate_bounds"
        ) from None
    checked = ClippedColumn(column, lower, upper)
    return checked.lower, checked.upper


def checked_cells(cells: Cells | Sequence[Cells]) -> tuple[Cells, ...]:
    """Return the cells of one column or of several.

    Raises:
        ValueError: if there are none.
    """
    given = cells if isinstance(cells, Sequence) else (cells,)
    if not given:
        raise ValueError("cells must be those of one column at least, got none")
    if not all(isinstance(one, Categories | Intervals) for one in given):
        raise ValueError(
            f"cells must be Categories or Intervals of one column or of several, got {cells!r}"
        )
    checked = tuple(given)
    Counts(checked)  # refuses more cells than fit into memory, before noise is planned for them
    return checked


def _positive_part(matrix: Vector, columns: Sequence[ClippedColumn]) -> Vector:
    """Return the nearest matrix without negative eigenvalues, in units of the half ranges."""
    scales = np.array([math.ldexp(column.unit, 30) for column in columns])
    units = np.outer(scales, scales)
    values, vectors = np.linalg.eigh(matrix / units)
    kept = np.maximum(values, 0.0)
    found: Vector = (vectors * kept) @ vectors.T * units
    return (found + found.T) / 2
