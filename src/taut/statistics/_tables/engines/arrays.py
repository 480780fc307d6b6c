"""Columns that are NumPy arrays, or lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taut.statistics._tables.batch import Batch
from taut.statistics._tables.clipped_column import checked_name
from taut.statistics._tables.engines.source import ColumnType, Kind, Source, silently

__all__ = ["Arrays", "of_matrix"]

_KINDS = {
    "f": Kind.NUMBER,
    "i": Kind.NUMBER,
    "u": Kind.NUMBER,
    "b": Kind.BOOLEAN,
    "U": Kind.TEXT,
    "O": Kind.TEXT,
}


_LIST = ColumnType(Kind.ENTRIES, "list")


class Arrays(Source):
    """A mapping of names to columns of one length.

    An array has its type. The entries of a list are taken one by one, whatever they are, so that no
    entry decides how the others are read.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        """Look at shapes and types.

        Raises:
            ValueError: if columns have other shapes than one length.
        """
        self.engine = "NumPy"
        self._columns = {
            checked_name(name): _array(name, column) for name, column in columns.items()
        }
        _check_shapes(self._columns)
        self.types = {
            name: _LIST if _has_entries(columns[name]) else _type(column)
            for name, column in self._columns.items()
        }

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield all at once: nothing is copied."""
        rows = len(next(iter(self._columns.values())))
        yield Batch.of_arrays({name: self._columns[name] for name in names}, rows)


def _check_shapes(columns: Mapping[str, NDArray[Any]]) -> None:
    wrong = next((name for name, column in columns.items() if column.ndim != 1), None)
    if wrong is not None:
        raise ValueError(f"column {wrong!r} must be a vector, got {columns[wrong].ndim} axes")
    if len({column.size for column in columns.values()}) != 1:
        # How many records there are is what a release may have to hide.
        raise ValueError(
            "columns must be vectors of one length, at least one of them, got "
            + (f"different lengths for {', '.join(map(repr, columns))}" if columns else "none")
        )


def _type(column: NDArray[Any]) -> ColumnType:
    return ColumnType(_KINDS.get(column.dtype.kind, Kind.OTHER), str(column.dtype))


def of_matrix(matrix: NDArray[Any], columns: Sequence[str]) -> Arrays:
    """Return the columns of a matrix under their names.

    Raises:
        ValueError: if there is not a different name for every column.
    """
    names = [checked_name(name) for name in columns]
    if matrix.ndim != 2 or matrix.shape[1] != len(names) or len(set(names)) < len(names):
        raise ValueError(
            f"columns must be a different name for every column of a matrix, got {names!r} for "
            + (f"{matrix.shape[1]} columns" if matrix.ndim == 2 else f"{matrix.ndim} axes")
        )
    return Arrays({name: matrix[:, i] for i, name in enumerate(names)})


def _has_entries(column: Any) -> bool:
    """Say whether entries are taken one by one: what NumPy would make of them depends on them."""
    if isinstance(column, list | tuple):
        return True
    return hasattr(column, "__len__") and not isinstance(getattr(column, "dtype", None), np.dtype)


def _array(name: str, column: Any) -> NDArray[Any]:
    if isinstance(column, str | bytes | bytearray | Mapping | Set):
        # What comes out of these one by one are letters, keys, or entries without the equal ones.
        raise ValueError(
            f"column {name!r} must be a vector or a list, got the type {type(column).__name__}"
        )
    # Columns of other libraries are read here, and what those say of an error may quote records.
    if not _has_entries(column):
        return silently("NumPy", lambda: np.asanyarray(column))
    axes = getattr(column, "ndim", 1)  # of a tensor
    if axes != 1:
        raise ValueError(f"column {name!r} must be a vector, got {axes} axes")
    return silently("NumPy", lambda: _objects(column))


def _objects(column: Any) -> NDArray[Any]:
    entries = _entries(column)
    found = np.empty(len(entries), dtype=object)
    for i, entry in enumerate(entries):  # one by one: an entry that is a list is no second axis
        has_no_axis = getattr(entry, "ndim", None) == 0 and hasattr(entry, "item")
        found[i] = _scalar(entry) if has_no_axis else entry
    return found


def _scalar(entry: Any) -> Any:
    """Return the only entry of an array without axes; what is under a mask is missing, not zero."""
    is_missing = isinstance(entry, np.ma.MaskedArray) and np.ma.is_masked(entry)
    return None if is_missing else entry.item()


def _entries(column: Any) -> list[Any]:
    """Return the entries, as Python has them where there is a method for that."""
    for method in ("to_pylist", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)
