"""Arrays of real numbers: their types, and conversion without silent changes."""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base.validate import WrongType

__all__ = [
    "Matrix",
    "Vector",
    "along_rows",
    "column_norms",
    "numbers_in_a_row",
    "numbers_or_missing",
    "orthonormal",
    "real_numbers",
]

Vector = NDArray[np.float64]
"""Numbers in a row, or in any shape where functions work entry by entry."""
Matrix = NDArray[np.float64]
"""One row per record or per case."""

_ONE_BY_ONE = 7  # columns up to which NumPy adds one after the other
_NUMBERS = (Real, Decimal)
_PLAIN = (float, int)
_WRONG = (str, bytes, complex)  # if all entries are: nothing that is missing in a record
_DEFECT = {"d": 1e-6, "f": 1e-4}  # how far a basis may be from orthonormal, by its precision


def real_numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return real numbers as an array of float64, not copied if it is one.

    Integers and fractions beyond doubles become infinite, as wider floats do.

    Raises:
        ValueError: for ragged lists and text; for masked entries, whose mask a conversion drops;
            for complex numbers, which lose a part; and for booleans, which are seldom meant.
    """
    if np.ma.is_masked(values):
        raise ValueError(f"{name} must not have masked entries; fill or leave them out first")
    try:
        array = np.asarray(values)
    except WrongType:  # an object of ours that is no array, and says why
        raise
    except ValueError:
        # Without the values: they may be records.
        raise ValueError(f"{name} must be numbers in rows of one length, got others") from None
    if array.dtype.kind in "iuf":
        with np.errstate(all="ignore"):  # numbers wider than doubles may become infinite
            return np.asarray(array, dtype=np.float64)
    if array.dtype.kind == "O" and all(_is_number(entry) for entry in array.flat):
        return np.array([_double(entry) for entry in array.flat]).reshape(array.shape)
    raise WrongType(
        f"{name} must be real numbers, got an array of the type {array.dtype}; convert it with "
        ".astype(float) if that is meant"
    )


def numbers_or_missing(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return real numbers as `real_numbers` does, NaN for entries that are missing or no number.

    For records and what is computed from them: a refusal because of an entry would tell of it. What
    the type of an array says is no secret, so that arrays of text, and lists of nothing else, are
    refused as they are there.

    Raises:
        ValueError: for ragged lists and text.
    """
    if isinstance(values, list | tuple):
        if any(getattr(entry, "ndim", 0) or isinstance(entry, list | tuple) for entry in values):
            return real_numbers(values, name)
        array = _entries(values)
    else:
        array = np.asarray(np.ma.getdata(values) if np.ma.isMaskedArray(values) else values)
    if array.dtype.kind == "O" and not all(isinstance(entry, _WRONG) for entry in array.flat):
        known = (
            _double(entry) if isinstance(entry, _NUMBERS) else math.nan for entry in array.flat
        )
        numbers = np.fromiter(known, dtype=np.float64, count=array.size).reshape(array.shape)
    else:
        numbers = real_numbers(array, name)
    hidden = np.ma.getmask(values)
    return numbers if hidden is np.ma.nomask else np.where(hidden, math.nan, numbers)


def _entries(values: list[Any] | tuple[Any, ...]) -> NDArray[Any]:
    """Return entries one by one, but where all are plain numbers: no entry decides about others."""
    if all(type(entry) in _PLAIN for entry in values):
        return np.array(values)
    found = np.empty(len(values), dtype=object)
    for i, entry in enumerate(values):
        found[i] = _alone(entry)
    return found


def _alone(entry: Any) -> Any:
    """Return a number of Python for one of NumPy, or of a library like it; None if it is masked."""
    if np.ma.is_masked(entry):
        return None
    try:
        return entry.item() if hasattr(entry, "item") else entry
    except Exception:  # entries of users may raise, which would tell of them
        return None


def numbers_in_a_row(**argument: ArrayLike) -> Vector:
    """Return the argument, which holds no records and may be shown, as a vector.

    Raises:
        ValueError: if it is empty, has rows, or holds anything but real numbers.
    """
    ((name, value),) = argument.items()
    try:
        vector = np.asarray(value)
    except ValueError:  # nested lists of unequal length
        vector = np.empty(0)
    if vector.ndim != 1 or vector.size == 0 or vector.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be a non-empty vector of numbers, got {name}={value!r}")
    return vector.astype(float)


def column_norms(columns: Matrix) -> Vector:
    """Return the l2 norm of every column, to the last bit as if it were alone.

    Entries are squared and added one row after the other, each rounded by itself: `numpy.einsum`
    and matrix products round a column by its place among the others, and then one record would
    change how others are clipped.
    """
    squares = np.zeros(columns.shape[1])
    for row in columns:
        squares += row * row
    norms: Vector = np.sqrt(squares)
    return norms


def along_rows(operation: np.ufunc, table: NDArray[Any], initial: Any) -> NDArray[Any]:
    """Return ``operation.reduce(table, axis=1)``, to the last bit, in less time for few columns.

    Args:
        operation: addition, a maximum or a conjunction.
        table: one row per record.
        initial: what the operation leaves as it is.
    """
    if not 2 <= table.shape[1] <= _ONE_BY_ONE:
        return np.asarray(operation.reduce(table, axis=1, initial=initial))
    result: NDArray[Any] = operation(table[:, 0], table[:, 1])
    for column in table.T[2:]:
        operation(result, column, out=result)
    return result


def orthonormal(basis: ArrayLike, dimension: int) -> Matrix:
    """Return a basis with orthonormal columns, polished to float64, or say how far it is from one.

    Raises:
        ValueError: if the shape does not fit, or an entry of UᵀU differs from the identity by more
            than 1e-6 (1e-4 for float32), with the measured defect.
    """
    columns = np.array(real_numbers(basis, "basis"))
    if columns.ndim != 2 or columns.shape[0] != dimension or not 0 < columns.shape[1] <= dimension:
        raise ValueError(
            f"basis must be a matrix of {dimension} rows with at most as many columns, "
            f"got shape {columns.shape}"
        )
    if not np.isfinite(columns).all():
        raise ValueError("basis must be finite, got NaN or infinity in it")
    identity = np.eye(columns.shape[1])
    gram = columns.T @ columns
    defect = float(np.abs(gram - identity).max())
    allowed = _DEFECT.get(np.asarray(basis).dtype.char, _DEFECT["d"])
    if defect > allowed:
        raise ValueError(
            f"basis must have orthonormal columns, got a defect |UᵀU - I| of {defect:.3g} where "
            f"{allowed:g} is allowed; orthonormalise it with numpy.linalg.qr"
        )
    if defect > 1e-14:  # Newton's iteration for the polar factor squares the defect, twice
        columns = columns @ (1.5 * identity - 0.5 * gram)
        columns = columns @ (1.5 * identity - 0.5 * columns.T @ columns)
    columns.setflags(write=False)
    return columns


def _double(entry: Any) -> float:
    """Return a number as a double, as wider floats are: infinite beyond them, NaN for all NaN.

    Raising here would tell that one record holds such a number.
    """
    try:
        return float(entry)
    except OverflowError:
        return math.inf if entry > 0 else -math.inf
    except ValueError:  # a signalling NaN
        return math.nan


def _is_number(entry: object) -> bool:
    return isinstance(entry, Real | Decimal) and not isinstance(entry, bool | np.bool_)
