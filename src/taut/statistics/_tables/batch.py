"""A few rows of a table in memory: numbers as doubles, labels as places in a public list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector

__all__ = ["ArrayColumn", "Batch", "CodedColumn", "Column"]


class Column(Protocol):
    """What every engine hands over.

    The type of a column was looked at before: an answer depends on the entries one by one, and
    nothing is raised because of an entry.
    """

    def part(self, start: int, stop: int) -> Column:
        """Return the entries from one up to another."""

    def numbers(self) -> Vector:
        """Return doubles, NaN where an entry is missing or no number."""

    def places(self, labels: Sequence[object]) -> NDArray[np.intp]:
        """Return the place of every entry in a list of labels, its length for those not in it."""


class Batch:
    """Columns of one length."""

    def __init__(self, columns: Mapping[str, Column], rows: int) -> None:
        """Take columns by name.

        Args:
            columns: the columns.
            rows: their length.
        """
        self._columns = columns
        self._numbers: dict[str, Vector] = {}
        self.rows = rows

    @classmethod
    def of_arrays(cls, columns: Mapping[str, NDArray[Any]], rows: int) -> Batch:
        """Return a batch of NumPy arrays."""
        return cls({name: ArrayColumn(column) for name, column in columns.items()}, rows)

    def part(self, start: int, stop: int) -> Batch:
        """Return the records from one up to another."""
        if start == 0 and stop >= self.rows:
            return self
        inside = {name: column.part(start, stop) for name, column in self._columns.items()}
        return Batch(inside, max(0, min(stop, self.rows) - start))

    def numbers(self, name: str) -> Vector:
        """Return a column as doubles, NaN where an entry is missing or no number."""
        if name not in self._numbers:
            self._numbers[name] = self._columns[name].numbers()
        return self._numbers[name]

    def places(self, name: str, labels: Sequence[object]) -> NDArray[np.intp]:
        """Return the place of every entry in a list of labels, its length for those not in it."""
        if isinstance(labels[0], str):
            return self._columns[name].places(labels)
        return _places_of_sorted(self.numbers(name), np.array(labels, dtype=np.float64))


class ArrayColumn:
    """A NumPy array: of numbers, booleans, texts or objects, with or without a mask."""

    def __init__(self, array: NDArray[Any]) -> None:
        """Take an array with one axis."""
        self._array = array

    def part(self, start: int, stop: int) -> ArrayColumn:
        """Return the entries from one up to another, not copied."""
        return ArrayColumn(self._array[start:stop])

    def numbers(self) -> Vector:
        """Return doubles, NaN where an entry is missing or no number."""
        array = np.ma.getdata(self._array)
        if array.dtype.kind == "O":
            found = np.array([_double(entry) for entry in array.tolist()], dtype=np.float64)
        elif array.dtype.kind == "U":
            found = np.full(len(array), np.nan)
        else:
            with np.errstate(all="ignore"):  # what is wider than doubles becomes infinite
                found = array.astype(np.float64, copy=False)
        hidden = np.ma.getmask(self._array)
        return found if hidden is np.ma.nomask else np.where(hidden, np.nan, found)

    def places(self, labels: Sequence[object]) -> NDArray[np.intp]:
        """Return the place of every entry in a list of texts, its length for those not in it."""
        array = np.ma.getdata(self._array)
        if array.dtype.kind == "U":
            found = _places_of_sorted(array, np.array(labels, dtype=np.str_))
        else:
            found = _places_of_texts(array.tolist(), labels)
        hidden = np.ma.getmask(self._array)
        return found if hidden is np.ma.nomask else np.where(hidden, len(labels), found)


class CodedColumn:
    """Entries as places in a list of the different ones, -1 where one is missing."""

    def __init__(self, codes: NDArray[np.intp], values: NDArray[Any]) -> None:
        """Take codes and what they stand for.

        Args:
            codes: the place of every entry.
            values: the different entries.
        """
        self._codes = codes
        self._values = values

    def part(self, start: int, stop: int) -> CodedColumn:
        """Return the entries from one up to another, not copied."""
        return CodedColumn(self._codes[start:stop], self._values)

    def numbers(self) -> Vector:
        """Return doubles, NaN where an entry is missing or no number."""
        return np.append(ArrayColumn(self._values).numbers(), np.nan)[self._codes]

    def places(self, labels: Sequence[object]) -> NDArray[np.intp]:
        """Return the place of every entry in a list of texts, its length for those not in it."""
        return np.append(ArrayColumn(self._values).places(labels), len(labels))[self._codes]


def _places_of_texts(entries: Sequence[object], labels: Sequence[object]) -> NDArray[np.intp]:
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
