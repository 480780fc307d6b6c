"""Labels as numbers of public classes; a label that is no class says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taut._base import validate

__all__ = ["class_numbers", "public_classes"]

OTHER = -1
"""The number of labels that are no class."""

_PLAIN = (str, bytes, int, float, np.generic)  # labels that are looked up
_COMPARABLE = ((str,), (bytes,), (int, float, np.number, np.bool_))
_MADE_OF_OTHERS = "OUSc"  # kinds of arrays that NumPy makes of labels of different types


def public_classes(classes: Any, *, exactly: int | None = None) -> NDArray[Any]:
    """Return the classes as an array, in order.

    Args:
        classes: all labels that there may be.
        exactly: their number, if it is fixed.

    Raises:
        ValueError: if they are missing: a class that one record has would be told by its name.
    """
    if classes is None:
        raise ValueError(
            "classes must be given: those that occur in the data would tell of the only record of "
            "a class; list all labels that there may be"
        )
    if isinstance(classes, str | bytes | Set | Mapping) or not hasattr(classes, "__len__"):
        raise validate.WrongType(f"classes must be a list of labels, got classes={classes!r}")
    listed = np.asarray(classes)
    if listed.ndim == 1 and listed.dtype.kind in _MADE_OF_OTHERS and not _are_alike(classes):
        raise validate.WrongType(
            "classes must be labels of one type, numbers or text, so that they have an order, got "
            f"classes={classes!r}"
        )
    if listed.ndim != 1 or len(np.unique(listed)) != len(listed) or len(listed) < 2:
        raise ValueError(f"classes must be at least two different labels, got classes={classes!r}")
    if listed.dtype.kind == "f" and np.isnan(listed).any():
        raise ValueError(f"classes must not hold NaN, which equals no label, got {classes!r}")
    if exactly is not None and len(listed) != exactly:
        raise ValueError(f"classes must be {exactly} labels, got classes={classes!r}")
    return np.sort(listed)


def class_numbers(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of every label among the classes; -1 for what is no class."""
    if labels.dtype.kind == "O":
        places = {one: place for place, one in enumerate(classes.tolist())}
        return np.array([_place(one, places) for one in labels.tolist()], dtype=np.int64)
    numbers = np.full(labels.shape, OTHER, dtype=np.int64)
    for place, one in enumerate(classes):
        numbers[labels == one] = place
    return numbers


def _place(label: object, places: Mapping[Any, int]) -> int:
    """Return the place of a label; one that cannot be looked up is no class, and raises nothing."""
    try:
        return places.get(label, OTHER) if isinstance(label, _PLAIN) else OTHER
    except Exception:  # rows of structured arrays have no hash, and objects of users may raise
        return OTHER


def _are_alike(classes: Iterable[object]) -> bool:
    """Say whether all labels are numbers, or all are text, or all are bytes."""
    entries = list(classes)
    return any(all(isinstance(one, types) for one in entries) for types in _COMPARABLE)
