"""A few rows of a table in memory: numbers as doubles, labels as places in a public list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector

__all__ = ["ArrayBatch", "Batch", "places_of_numbers", "places_of_texts"]


class Batch(Protocol):
    """What every engine hands over.

    Columns that are asked for were checked against the types of the table before: so an answer
    depends on the entries one by one, and nothing is raised because of an entry.
    """

    @property
    def rows(self) -> int:
        """The number of records."""

    def part(self, start: int, stop: int) -> Batch:
        """Return the records from one up to another."""

    def numbers(self, name: str) -> Vector:
        """Return a column as doubles, NaN where an entry is missing."""

    def places(self, name: str, labels: Sequence[object]) -> NDArray[np.intp]:
        """Return the place of every entry in a list of labels, its length for those not in it."""


class ArrayBatch:
    """A batch of NumPy arrays."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], rows: int) -> None:
        """Take columns of one length."""
        self._columns = columns
        self.rows = rows

    def part(self, start: int, stop: int) -> ArrayBatch:
        """Return the records from one up to another, not copied."""
        inside = {name: column[start:stop] for name, column in self._columns.items()}
        return ArrayBatch(inside, max(0, min(stop, self.rows) - start))

    def numbers(self, name: str) -> Vector:
        """Return a column as doubles, NaN where an entry is missing."""
        column = self._columns[name]
        if column.dtype.kind == "O":
            return np.array([_double(entry) for entry in column.tolist()], dtype=np.float64)
        with np.errstate(all="ignore"):  # what is wider than doubles becomes infinite
            found = np.ma.getdata(column).astype(np.float64, copy=False)
        hidden = np.ma.getmask(column)
        return found if hidden is np.ma.nomask else np.where(hidden, np.nan, found)

    def places(self, name: str, labels: Sequence[object]) -> NDArray[np.intp]:
        """Return the place of every entry in a list of labels, its length for those not in it."""
        column = self._columns[name]
        if not isinstance(labels[0], str):
            return places_of_numbers(self.numbers(name), labels)
        if column.dtype.kind == "O":
            return places_of_texts(column.tolist(), labels)
        found = _places_of_sorted(np.ma.getdata(column), np.array(labels, dtype=np.str_))
        hidden = np.ma.getmask(column)
        return found if hidden is np.ma.nomask else np.where(hidden, len(labels), found)


def places_of_numbers(values: Vector, labels: Sequence[object]) -> NDArray[np.intp]:
    """Return the place of every number among labels that are whole numbers or booleans."""
    return _places_of_sorted(values, np.array(labels, dtype=np.float64))


def places_of_texts(entries: Sequence[object], labels: Sequence[object]) -> NDArray[np.intp]:
    """Return the place of every entry among texts; what is no text is none of them."""
    place = {label: i for i, label in enumerate(labels)}
    none = len(labels)
    found = [place.get(entry, none) if isinstance(entry, str) else none for entry in entries]
    return np.array(found, dtype=np.intp)


def _places_of_sorted(values: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.intp]:
    order = np.argsort(labels)
    ordered = labels[order]
    near = np.minimum(np.searchsorted(ordered, values), len(labels) - 1)
    return np.where(ordered[near] == values, order[near], len(labels))


def _double(entry: Any) -> float:
    """Return a number as a double, infinite beyond them; NaN for anything else."""
    number = entry.item() if isinstance(entry, np.generic) else entry
    if not isinstance(number, Real | Decimal):
        return np.nan
    try:
        return float(number)
    except OverflowError:
        return np.inf if entry > 0 else -np.inf
    except ValueError:  # a signalling NaN
        return np.nan
