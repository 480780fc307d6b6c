"""Public cells of a column: categories that are listed, or intervals between edges."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut._base.arrays import Vector, numbers_in_a_row
from taut.statistics._tables.clipped_column import checked_name
from taut.statistics._tables.interval_search import IntervalSearch

if TYPE_CHECKING:
    from taut.statistics._tables.batch import Batch

__all__ = ["Categories", "Cells", "Intervals", "Label"]

Label: TypeAlias = str | int | bool
"""What a category is called in the data."""

_LARGEST_LABEL = 1 << 53  # below it whole numbers are doubles, and no other number rounds to one
_OTHER = "other"


@dataclass(frozen=True)
class Categories:
    """The cells of a column of labels, listed in advance.

    Args:
        name: name of the column.
        labels: labels of the cells: texts, whole numbers, or True and False. They must be
            public: a list that is made from the data tells which labels occur.
        other: whether records with any other label, or none, share one more cell at the end;
            without it they are counted nowhere.

    **Guarantee**: each record is in at most one cell. Cells without records are there, with zero.

    Raises:
        ValueError: if a label occurs twice, or labels are of different types.
        TypeError: if labels are no list.

    Example:
        >>> from taut.statistics import Categories
        >>> Categories("region", ["north", "south"], other=True).labels_shown
        ('north', 'south', 'other')
    """

    name: str
    labels: tuple[Label, ...]
    other: bool = False

    def __init__(self, name: str, labels: Iterable[Label], *, other: bool = False) -> None:
        object.__setattr__(self, "name", checked_name(name))
        object.__setattr__(self, "labels", _checked_labels(name, labels))
        object.__setattr__(self, "other", bool(other))

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.labels) + self.other

    @property
    def labels_shown(self) -> tuple[str, ...]:
        """What the cells are called, in order."""
        return (*map(str, self.labels), *([_OTHER] if self.other else []))

    @property
    def inner(self) -> int:
        """The number of cells, that for all others not among them."""
        return len(self.labels)

    def places(self, batch: Batch) -> NDArray[np.intp]:
        """Return the cell of every record, `inner` for all others."""
        return batch.places(self.name, self.labels)


@dataclass(frozen=True)
class Intervals:
    """The cells of a column of numbers, between public edges.

    Args:
        name: name of the column.
        edges: ends of the intervals, increasing; the first may be -inf and the last inf. A number
            on an edge belongs to the interval above it, on the last edge to the last interval.
        other: whether records beyond the edges, or without a number, share one more cell at the
            end; without it they are counted nowhere.

    **Guarantee**: each record is in at most one cell. Cells without records are there, with zero.

    Raises:
        ValueError: if there are fewer than two edges, or they do not increase.

    Example:
        >>> from taut.statistics import Intervals
        >>> Intervals("age", [0, 18, 65, float("inf")]).labels_shown
        ('[0, 18)', '[18, 65)', '[65, inf]')
    """

    name: str
    edges: tuple[float, ...]
    other: bool = False

    def __init__(self, name: str, edges: ArrayLike, *, other: bool = False) -> None:
        object.__setattr__(self, "name", checked_name(name))
        object.__setattr__(self, "edges", _checked_edges(name, edges))
        object.__setattr__(self, "other", bool(other))

    @classmethod
    def even(
        cls, name: str, lower: float, upper: float, cells: int, *, other: bool = False
    ) -> Intervals:
        """Return so many intervals of equal width between two public bounds.

        Args:
            name: name of the column.
            lower: first edge.
            upper: last edge.
            cells: number of intervals.
            other: whether all other records share one more cell.
        """
        return cls(name, np.linspace(lower, upper, cells + 1), other=other)

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.inner + self.other

    @property
    def labels_shown(self) -> tuple[str, ...]:
        """What the cells are called, in order."""
        texts = [f"{edge:.12g}" for edge in self.edges]
        closing = [")"] * (self.inner - 1) + ["]"]
        found = [f"[{a}, {b}{end}" for a, b, end in zip(texts, texts[1:], closing, strict=False)]
        return (*found, *([_OTHER] if self.other else []))

    @property
    def inner(self) -> int:
        """The number of cells, that for all others not among them."""
        return len(self.edges) - 1

    def places(self, batch: Batch) -> NDArray[np.intp]:
        """Return the cell of every record, `inner` for all others."""
        counts = self._finite_edges.counts(batch.numbers(self.name))
        return self._cell_of_count.take(counts, mode="clip")

    def histogram(self, batch: Batch) -> NDArray[np.int64]:
        """Return the number of records in every cell; at the end, that of all others."""
        counts = self._finite_edges.counts(batch.numbers(self.name))
        # Answers are counted before they are brought to cells: one look at a table less per record.
        by_count = np.bincount(counts, minlength=self._cell_of_count.size)
        # Weights are doubles, which hold counts of as many records as a batch has.
        found = np.bincount(self._cell_of_count, weights=by_count, minlength=self.inner + 1)
        return found.astype(np.int64)

    @cached_property
    def _finite_edges(self) -> IntervalSearch:
        return IntervalSearch(self._inside)

    @cached_property
    def _inside(self) -> Vector:
        edges = np.array(self.edges)
        if math.isfinite(edges[-1]):
            edges[-1] = np.nextafter(edges[-1], np.inf)  # the last interval has its upper end
        inside: Vector = edges[np.isfinite(edges)]
        return inside

    @cached_property
    def _cell_of_count(self) -> NDArray[np.intp]:
        """The cell by the number of finite edges at or below a value; the last is for NaN."""
        first = -1 if math.isfinite(self.edges[0]) else 0
        cells = np.arange(first, first + len(self._inside) + 2, dtype=np.intp)
        cells[-1] = -1
        return np.where((cells < 0) | (cells >= self.inner), self.inner, cells)


Cells: TypeAlias = Categories | Intervals
"""A public partition of a column."""


def _checked_labels(name: str, labels: Iterable[Label]) -> tuple[Label, ...]:
    if isinstance(labels, str):
        raise ValueError(f"labels of column {name!r} must be a list, got the text {labels!r}")
    if not isinstance(labels, Iterable):  # a number of cells, as of other libraries
        raise validate.WrongType(
            f"labels of column {name!r} must be a list, got {validate.told(labels)}; for cells of "
            "numbers take Intervals"
        )
    found = tuple(entry.item() if isinstance(entry, np.generic) else entry for entry in labels)
    kinds = {type(label) for label in found}
    if len(kinds) != 1 or not kinds <= {str, int, bool}:
        raise ValueError(
            f"labels of column {name!r} must be all texts, all whole numbers, or True and False, "
            f"got {list(found)!r}; for other numbers take Intervals"
        )
    if len(set(found)) < len(found):
        twice = next(label for label in found if found.count(label) > 1)
        raise ValueError(f"labels of column {name!r} must be different, got {twice!r} twice")
    large = next((x for x in found if isinstance(x, int) and abs(x) >= _LARGEST_LABEL), None)
    if large is not None:
        raise ValueError(
            f"labels of column {name!r} must be below 2^53 in magnitude, got {large!r}; "
            "write such numbers as texts"
        )
    return found


def _checked_edges(name: str, edges: ArrayLike) -> tuple[float, ...]:
    found = numbers_in_a_row(**{f"edges of column {name!r}": edges})
    if found.size < 2 or not (np.diff(found) > 0).all() or np.isnan(found).any():
        raise ValueError(
            f"edges of column {name!r} must be two or more increasing numbers, "
            f"got {found.tolist()!r}"
        )
    if found[-1] == np.finfo(np.float64).max:
        raise ValueError(
            f"the last edge of column {name!r} must be below the largest double, or inf, got "
            f"{found.tolist()!r}"
        )
    if not np.isfinite(found).any():
        raise ValueError(f"edges of column {name!r} must have a finite one, got {found.tolist()!r}")
    return tuple(found.tolist())
