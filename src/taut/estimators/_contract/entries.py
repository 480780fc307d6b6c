"""Entries of tables as doubles, whatever they are: what is no number is not told from NaN.

scikit-learn quotes the string that it cannot convert, and prints whole tables that have the wrong
shape or type. Here types of columns and shapes alone are refused, and never shown with entries.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning

from taut._base.validate import WrongType

__all__ = ["as_labels", "as_numbers", "as_targets", "in_a_row"]

# How names of types of columns begin that hold no numbers, in pandas, Polars and Arrow.
_OTHER_TYPES = (
    *("str", "large_", "cat", "enum", "dict", "binary", "fixed_size"),
    *("date", "dur", "time", "period", "interval", "month", "list", "array", "map"),
)
_NUMBERS = "fiub"  # kinds of arrays that are converted as a whole


def as_numbers(values: Any, name: str) -> NDArray[np.float64]:
    """Return an array of doubles; entries that are no real numbers are NaN.

    Args:
        values: array, data frame or nested lists. Entries of lists and of arrays of objects are
            looked at one by one: text that reads as a number is one.
        name: name of the argument, for messages.

    Raises:
        ValueError: for types that hold no numbers, by the type alone: complex numbers, text and
            times as the type of an array or of a column; and for ragged lists.
    """
    values = _listed(values)
    _refuse_columns(values, name)
    array = _array(values, name)
    with np.errstate(all="ignore"):  # numbers wider than doubles may become infinite
        if array.dtype.kind in _NUMBERS:
            return np.asarray(array, dtype=np.float64)
        if array.dtype.kind != "O":
            reason = "Complex data not supported: " if array.dtype.kind == "c" else ""
            raise WrongType(
                f"{reason}{name} must be real numbers, got an array of the type {array.dtype}; "
                "convert it with .astype(float) if that is meant"
            )
        entries = np.fromiter(map(_double, array.flat), dtype=np.float64, count=array.size)
    return entries.reshape(array.shape)


def as_targets(values: Any, name: str) -> NDArray[np.float64]:
    """Return targets as doubles; what is no real number is NaN.

    Args:
        values: targets, one per record. Of a list every entry is looked at by itself, so that a
            record with two of them changes no other.
        name: name of the argument, for messages.

    Raises:
        ValueError: for types that hold no numbers, and for lists of lists.
    """
    values = _listed(values)
    if not isinstance(values, list | tuple):
        return as_numbers(values, name)
    entries = _objects(values)
    if entries.size and all(isinstance(one, list | tuple) for one in entries):
        raise ValueError(f"{name} must have one entry per record, got lists of several")
    return as_numbers(entries, name)


def as_labels(values: Any, name: str) -> NDArray[Any]:
    """Return an array of labels: of the type that they come in, or of objects.

    Whatever is no array of NumPy is objects: converted, one label that is missing or of another
    type would change the type of all.

    Args:
        values: labels, one per record.
        name: name of the argument, for messages.

    Raises:
        ValueError: for complex numbers, by their type.
    """
    values = _listed(values)
    if isinstance(values, list | tuple):
        return _objects(values)
    if np.ma.isMaskedArray(values):
        return _unmasked(values)
    foreign = not isinstance(getattr(values, "dtype", None), np.dtype)
    array = np.asarray(values, dtype=object) if foreign else np.asarray(values)
    if array.dtype.kind == "c":
        raise WrongType(f"Complex data not supported: {name} has the type {array.dtype}")
    return array


def in_a_row(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return one entry per record as a vector, of a table with one column, too.

    Args:
        array: entries.
        name: name of the argument, for messages.

    Raises:
        ValueError: for other shapes.
    """
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn(
            f"A column-vector {name} was passed when a 1d array was expected; take {name}.ravel()",
            DataConversionWarning,
            stacklevel=5,  # beyond the fit and what guards it
        )
        return array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must have one entry per record, got {array.ndim} axes")
    return array


def _listed(values: Any) -> Any:
    """Return a list for sequences like one, such as a deque: every entry is read by itself."""
    if not isinstance(values, Sequence) or hasattr(values, "__array__"):
        return values
    return values if isinstance(values, str | bytes | memoryview) else list(values)


def _array(values: Any, name: str) -> NDArray[Any]:
    """Return an array of numbers, or of objects where entries differ."""
    if np.ma.isMaskedArray(values):
        return _unmasked(values)
    with suppress(TypeError, ValueError):  # what they say quotes entries, or the number of rows
        if not isinstance(values, list | tuple):
            return np.asarray(values)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for a masked entry
            array = np.asarray(values)
        # One text makes all others text.
        return array if array.dtype.kind in _NUMBERS else np.array(values, dtype=object)
    return _cells(values, name)  # errors of which are not raised while others are handled


def _cells(values: Any, name: str) -> NDArray[Any]:
    """Return a table of objects: an entry that has a length itself is one like any other."""
    is_table = isinstance(values, list | tuple) and all(
        isinstance(row, list | tuple) and len(row) == len(values[0]) for row in values
    )
    if not is_table:
        raise ValueError(f"{name} must be numbers in rows of one length, got others")
    table = np.empty((len(values), len(values[0])), dtype=object)
    for i, row in enumerate(values):
        for j, entry in enumerate(row):  # at once, entries would be taken apart
            table[i, j] = entry
    return table


def _unmasked(values: Any) -> NDArray[Any]:
    """Return objects, None for those that are masked."""
    array: NDArray[Any] = np.ma.filled(values.astype(object), None)
    return array


def _refuse_columns(values: Any, name: str) -> None:
    """Refuse columns of a data frame, or a single one, by their types."""
    for column, kind in _types(values):
        if str(kind).lower().startswith(_OTHER_TYPES):
            which = "a column" if column is None else f"a column {column!r}"
            raise WrongType(
                f"{name} must be real numbers, got {which} of the type {kind}; leave it out, or "
                "encode it by public categories"
            )


def _types(values: Any) -> list[tuple[Any, Any]]:
    """Return names and types of the columns of a data frame; None for the name of a single one.

    Arrays of NumPy have none: what they hold is seen after they were converted.
    """
    if isinstance(values, np.ndarray):
        return []
    if type(values).__module__.startswith("pyarrow"):
        if hasattr(values, "schema"):
            return list(zip(values.schema.names, values.schema.types, strict=True))
        return [(None, getattr(values, "type", None))]
    if not hasattr(values, "columns"):
        return [(None, getattr(values, "dtype", None))]
    return list(zip(values.columns, getattr(values, "dtypes", ()), strict=False))


def _objects(values: list[Any] | tuple[Any, ...]) -> NDArray[Any]:
    """Return a vector of objects; of a list with a single entry, the entry.

    Every record by itself: one with two entries must not change how the others are read.
    """
    array = np.empty(len(values), dtype=object)
    for place, one in enumerate(values):  # at once, entries with a length would be taken apart
        array[place] = one[0] if isinstance(one, list | tuple) and len(one) == 1 else one
    return array


def _double(entry: object) -> float:
    """Return an entry as a double, NaN if it is no number; none raises."""
    try:  # to ask some objects for their class raises, too
        known = isinstance(entry, Real | Decimal | str | bytes | np.bool_)
        return float(entry) if known else math.nan  # type: ignore[arg-type]
    except OverflowError:
        return math.inf  # of either sign: neither is finite
    except Exception:  # text that is no number, a signalling NaN, whatever numbers of users raise
        return math.nan
