"""Ranges: a lower and an upper bound for every column, and sums around their centres."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector, real_numbers
from taut.accounting import Adjacency
from taut.errors import UnsoundConfiguration
from taut.noise._sets.boxes import Box
from taut.noise._sets.named_tables import NamedTable, arranged, by_name, checked_names
from taut.noise._sets.projections import as_table
from taut.noise._sets.sets import Source, checked_vector

__all__ = ["CentredRanges", "Ranges"]

_NARROWEST = 1e-6  # of the distance from zero: there, a sum of a million rows is within its grid
_COUNT = "count"

Pairs: TypeAlias = Mapping[str, Sequence[float]] | Sequence[Sequence[float]] | Matrix


@dataclass(frozen=True, eq=False, init=False)
class Ranges(Box):
    """What one record can change in sums of columns of which each has a range.

    Args:
        ranges: a pair (lower, upper) for every column, by name or in order. They must be public.

    Adding or removing a record moves a sum by up to the end that is farther from zero, replacing
    one (`differences`) by upper - lower, wherever the range lies. For the mean of a column whose
    range is far from zero, `centred` needs far less noise than the sum and a count.

    `clip` cuts every entry to its range; a row with NaN or infinity becomes the point of the ranges
    that is nearest to zero. The result is float64 whatever came in.

    **Guarantee**: that of the `Box` with these widths, which is the least that holds the set up to
    signs.

    Example:
        >>> from taut.noise import Ranges
        >>> people = Ranges({"age": (18, 90), "visits": (0, 10)})
        >>> people.widths, people.differences().widths.round(12)
        (array([90., 10.]), array([72., 10.]))
        >>> people.clip({"visits": [3, 99], "age": [44, 3]})
        array([[44.,  3.],
               [18., 10.]])
    """

    lower: Vector = field(init=False)
    upper: Vector = field(init=False)

    def __init__(
        self,
        ranges: Pairs,
        *,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
        source: Source | str = Source.DECLARED,
    ) -> None:
        names = tuple(ranges) if isinstance(ranges, Mapping) else None
        table = np.array(_pairs(ranges))
        lower, upper = table[:, 0].copy(), table[:, 1].copy()
        widths = np.maximum(np.abs(lower), np.abs(upper))
        if Adjacency(adjacency) is Adjacency.REPLACE:
            _refuse_far(lower, upper)
            widths = np.nextafter(upper - lower, np.inf)  # a difference of doubles rounds
        super().__init__(widths, adjacency=adjacency, source=source)
        for name, bound in (("lower", lower), ("upper", upper)):
            bound.setflags(write=False)
            self._set(name, bound)
        self._set("columns", None if names is None else checked_names(names, len(table)))
        if self.adjacency is Adjacency.REPLACE:
            self._set("contributions", self._for_relation(Adjacency.ADD_REMOVE))

    @property
    def centres(self) -> Vector:
        """The middle of every range."""
        return self.lower / 2 + self.upper / 2

    def centred(self) -> CentredRanges:
        """Return the set for a count and the sums of what records are beyond the centres.

        For means under add/remove; see `CentredRanges`.
        """
        return CentredRanges(self)

    def _project(self, rows: Matrix) -> Matrix:
        return np.clip(rows, self.lower, self.upper)

    def _inside(self, rows: Matrix) -> Matrix:
        # Rounding to a narrower type can leave a range on its side towards zero, too.
        return np.clip(rows.astype(np.float64), self.lower, self.upper)

    def _doubled(self) -> Self:
        return self

    def _for_relation(self, adjacency: Adjacency) -> Self:
        table = np.stack([self.lower, self.upper], axis=1)
        result = type(self)(table, adjacency=adjacency, source=self.source)
        return result if self.columns is None else result.named(self.columns)


@dataclass(frozen=True, eq=False, init=False)
class CentredRanges(Box):
    """What one record can change in a count and in sums around the centres of ranges.

    Args:
        ranges: the ranges of the columns, for add/remove or zero-out.

    A record with entries x adds (1, x - centre), so that a column counts with half the width of
    its range, however far from zero it lies. What `release_sum` returns is turned into means, or
    sums, by `means` and `sums`: post-processing, which costs nothing.

    `clip` takes rows with the columns of the ranges, cuts entries, and returns one column more. A
    row with NaN or infinity is counted nowhere.

    **Guarantee**: that of the `Box` with widths (1, half the width of every range). With noise
    of variance v on the count and v_j on column j, a mean m of n records has, for large n, the
    squared error (v_j + (m - centre)^2 v) / n^2, which `mean_weights` bounds by its value at the
    end of a range. Gaussian noise that is fitted to them needs for one column exactly the noise of
    replace-one with a public n; and for the sum it is the noise of `Ranges`, with the count for
    nothing (docs/theory/ranges.md).

    Example:
        >>> from taut.noise import Ranges, recommend
        >>> centred = Ranges({"age": (18, 90)}).centred()
        >>> centred.columns, centred.widths.tolist()
        (('count', 'age'), [1.0, 36.0])
        >>> centred.clip({"age": [90, 54, float("nan")]})
        array([[ 1., 36.],
               [ 1.,  0.],
               [ 0.,  0.]])
        >>> centred.means({"count": 2.0, "age": 36.0})
        {'age': 72.0}
    """

    ranges: Ranges = field(init=False)

    def __init__(self, ranges: Ranges) -> None:
        validate.instance(Ranges, ranges=ranges)
        if ranges.adjacency is Adjacency.REPLACE:
            raise UnsoundConfiguration(
                "ranges are for replace-one, where the number of records is public and centring "
                "gains nothing: release the sums of ranges.differences() and divide by that number"
            )
        centres = ranges.centres
        # Rounding is monotone: no x in the range has a larger x - centre than the ends have.
        half = np.maximum(ranges.upper - centres, centres - ranges.lower)
        widths = np.concatenate([[1.0], half])
        super().__init__(widths, adjacency=ranges.adjacency, source=ranges.source)
        self._set("ranges", ranges)
        if ranges.columns is not None:
            self._set("columns", checked_names((_COUNT, *ranges.columns), widths.size))

    @property
    def row_columns(self) -> tuple[str, ...] | None:
        """The names of the columns that `clip` takes: those of the ranges."""
        return self.ranges.columns

    @cached_property
    def mean_weights(self) -> Vector:
        """Weights for `recommend` with which the noise is fitted to means, each by its range."""
        half = self.widths[1:]
        # Relative to the ranges: columns count alike whatever their units are.
        return np.concatenate([[float(half.size)], 1 / half**2])

    def clip(self, rows: ArrayLike | NamedTable, non_finite: str = "zero") -> Matrix:
        """Cut entries to the ranges, and return a one and the differences to the centres.

        Args:
            rows: one vector, or a table with one row per record, without the count.
            non_finite: ``"zero"`` counts a row with NaN or infinity nowhere; ``"raise"`` refuses
                it, which tells that it was there.

        **Guarantee**: with every record clipped, the sum of the rows has this sensitivity set.
        """
        table, _ = arranged(rows, self.row_columns)
        given = real_numbers(table, "rows")
        whole = np.asarray(np.isfinite(np.atleast_2d(given)).all(axis=1))
        finite = as_table(given, self.dimension - 1, non_finite)
        centred = np.clip(finite, self.ranges.lower, self.ranges.upper) - self.ranges.centres
        clipped = np.concatenate([np.ones((len(centred), 1)), centred], axis=1)
        return np.where(whole[:, None], clipped, 0.0).reshape(*given.shape[:-1], self.dimension)

    def means(self, released: ArrayLike | Mapping[str, float]) -> Vector | dict[str, float]:
        """Return the mean of every column, from what `release_sum` returned.

        A count below one is taken as one, and means are cut to their ranges.
        """
        values, names = arranged(released, self.columns)
        count, sums = self._split(values)
        found = np.clip(
            self.ranges.centres + sums / max(count, 1.0), self.ranges.lower, self.ranges.upper
        )
        return found if names is None else by_name(names[1:], found)

    def sums(self, released: ArrayLike | Mapping[str, float]) -> Vector | dict[str, float]:
        """Return the sum of every column, from what `release_sum` returned."""
        values, names = arranged(released, self.columns)
        count, sums = self._split(values)
        found = sums + count * self.ranges.centres
        return found if names is None else by_name(names[1:], found)

    def named(self, columns: Iterable[str]) -> NoReturn:
        """Refuse: the names are those of the ranges."""
        raise ValueError("names belong to the ranges: use ranges.named(columns).centred()")

    def _split(self, values: ArrayLike) -> tuple[float, Vector]:
        released = real_numbers(values, "released")
        if released.shape != (self.dimension,):
            raise ValueError(
                f"released must hold the count and {self.dimension - 1} sums, "
                f"got shape {released.shape}"
            )
        return float(released[0]), released[1:]

    def _doubled(self) -> Self:
        raise UnsoundConfiguration(
            "under replace-one the number of records is public, and centring gains nothing: use "
            "ranges.differences(), and divide the sums by that number"
        )


def _pairs(ranges: Pairs) -> Matrix:
    """Return a checked table of lower and upper ends."""
    given = list(ranges.values()) if isinstance(ranges, Mapping) else ranges
    table = real_numbers(given, "ranges")
    if table.ndim != 2 or table.shape[1] != 2 or not table.size:
        raise ValueError(
            "ranges must be a pair (lower, upper) for every column, such as "
            f"{{'age': (18, 90)}}, got shape {table.shape}; a bound up to sign is Box(widths)"
        )
    if not np.isfinite(table).all():
        raise ValueError("ranges must be finite, got NaN or infinity among them")
    bad = np.flatnonzero(~(table[:, 0] < table[:, 1]))
    if bad.size:
        low, high = table[bad[0]].tolist()
        raise ValueError(f"ranges must have lower < upper, got ({low!r}, {high!r})")
    checked_vector(np.abs(table).max(axis=1), "ranges", allow_zero=False)
    return table


def _refuse_far(lower: Vector, upper: Vector) -> None:
    """Raise for ranges so far from zero that a grid as fine as the noise ends before them."""
    sizes = np.maximum(np.abs(lower), np.abs(upper))
    far = np.flatnonzero(upper - lower < _NARROWEST * sizes)
    if far.size:
        low, high = float(lower[far[0]]), float(upper[far[0]])
        raise ValueError(
            f"ranges must be at least {_NARROWEST:g} of their distance from zero wide for "
            f"replace-one, got ({low!r}, {high!r}); count from a public number nearby"
        )
