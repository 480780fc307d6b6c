"""Tables whose columns have names: mappings and data frames of any library, put in order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base.arrays import Vector, real_numbers
from taut._base.spelling import did_you_mean

__all__ = ["DataFrame", "NamedTable", "arranged", "by_name", "checked_names"]


class DataFrame(Protocol):
    """What a data frame of pandas or polars can do that is needed here."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def __getitem__(self, name: str, /) -> Any:
        """Return a column."""


NamedTable: TypeAlias = Mapping[str, Any] | DataFrame


def checked_names(names: Iterable[str], dimension: int) -> tuple[str, ...]:
    """Return names of columns, if there is a different one for every coordinate.

    Raises:
        ValueError: naming what is wrong.
    """
    if isinstance(names, str):
        raise ValueError(f"columns must be a sequence of names, got the text {names!r}")
    found = tuple(names)
    if not all(isinstance(name, str) for name in found):
        raise ValueError(f"columns must be texts, got {found!r}")
    if len(found) != dimension:
        raise ValueError(f"columns must be {dimension} names, one per coordinate, got {len(found)}")
    if len(set(found)) < len(found):
        twice = next(name for name in found if found.count(name) > 1)
        raise ValueError(f"columns must have different names, got {twice!r} more than once")
    return found


def arranged(
    rows: ArrayLike | NamedTable, columns: Sequence[str] | None
) -> tuple[ArrayLike, tuple[str, ...] | None]:
    """Return a table without names, in the order of the columns, and the names it has then.

    Args:
        rows: anything with rows; a mapping or a data frame has named columns, and those that are
            not asked for are left out.
        columns: the names in the order that is wanted; None for that of the table.

    A missing entry (None, or NA of pandas) becomes NaN. Rows without names come back as they are.

    Raises:
        ValueError: for a missing column, or columns of different lengths.
    """
    names = _names_of(rows)
    if names is None:
        return cast(ArrayLike, rows), None
    order = names if columns is None else tuple(columns)
    for name in order:
        if name not in names:
            hint = did_you_mean(name, names) or f"; it has {', '.join(map(repr, names))}"
            raise ValueError(f"rows must have the column {name!r}{hint}")
    table = cast(NamedTable, rows)
    found = [_column(table[name], name) for name in order]
    shapes = {column.shape for column in found}
    if len(shapes) > 1 or len(next(iter(shapes))) > 1:
        listed = ", ".join(f"{n!r}: {c.shape}" for n, c in zip(order, found, strict=True))
        raise ValueError(f"rows must have columns of one length, got the shapes {listed}")
    return np.stack(found, axis=-1), order


def by_name(names: Sequence[str], values: Vector) -> dict[str, float]:
    """Return released values by the names of their columns."""
    return dict(zip(names, values.tolist(), strict=True))


def _names_of(rows: object) -> tuple[str, ...] | None:
    """Return the names of the columns; numbers, as pandas counts columns, are no names."""
    if isinstance(rows, Mapping):
        names = tuple(rows)
    elif hasattr(rows, "columns") and hasattr(rows, "__getitem__"):
        names = tuple(rows.columns)
    else:
        return None
    texts = all(isinstance(name, str) for name in names)
    return checked_names(names, len(names)) if texts and names else None


def _column(values: object, name: str) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.dtype.kind == "O":
        filled = [math.nan if _is_missing(entry) else entry for entry in array.ravel().tolist()]
        array = np.array(filled).reshape(array.shape)
    return real_numbers(array, f"column {name!r}")


def _is_missing(entry: object) -> bool:
    # By name: pandas, whose NA raises when it is compared, need not be there.
    return entry is None or type(entry).__name__ == "NAType"
