"""Arrays of real numbers: their types, and conversion without silent changes."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base.validate import WrongType

__all__ = ["Matrix", "Vector", "real_numbers"]

Vector = NDArray[np.float64]
"""Numbers in a row, or in any shape where functions work entry by entry."""
Matrix = NDArray[np.float64]
"""One row per record or per case."""


def real_numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return real numbers as an array of float64, not copied if it is one.

    Raises:
        ValueError: for ragged lists and text; for masked entries, whose mask a conversion drops;
            for complex numbers, which lose a part; and for booleans, which are seldom meant.
    """
    if np.ma.is_masked(values):
        raise ValueError(f"{name} must not have masked entries; fill or leave them out first")
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} must be numbers in rows of one length, got {values!r}") from None
    if array.dtype.kind in "iuf":
        with np.errstate(all="ignore"):  # numbers wider than doubles may become infinite
            return np.asarray(array, dtype=np.float64)
    if array.dtype.kind == "O" and all(_is_number(entry) for entry in array.flat):
        try:
            return np.asarray(array, dtype=np.float64)
        except OverflowError:
            raise ValueError(f"{name} must be numbers below 1e308; count in other units") from None
    raise WrongType(
        f"{name} must be real numbers, got an array of the type {array.dtype}; convert it with "
        ".astype(float) if that is meant"
    )


def _is_number(entry: object) -> bool:
    return isinstance(entry, Real | Decimal) and not isinstance(entry, bool | np.bool_)
