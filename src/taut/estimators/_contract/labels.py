"""Labels as numbers of public classes; a label that is no class says nothing."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taut._base import validate

__all__ = ["class_numbers", "public_classes"]

OTHER = -1
"""The number of labels that are no class."""


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
    if isinstance(classes, str | bytes) or not hasattr(classes, "__len__"):
        raise validate.WrongType(f"classes must be a list of labels, got classes={classes!r}")
    listed = np.asarray(classes)
    if listed.dtype.kind == "O" and len({type(one) for one in listed.flat}) > 1:
        raise validate.WrongType(
            f"classes must be labels of one type, so that they have an order, got {classes!r}"
        )
    if listed.ndim != 1 or len(np.unique(listed)) != len(listed) or len(listed) < 2:
        raise ValueError(f"classes must be at least two different labels, got classes={classes!r}")
    if exactly is not None and len(listed) != exactly:
        raise ValueError(f"classes must be {exactly} labels, got classes={classes!r}")
    return np.sort(listed)


def class_numbers(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of every label among the classes; -1 for what is no class."""
    if labels.dtype.kind == "O":
        places = {one: place for place, one in enumerate(classes.tolist())}
        found = [places.get(one, OTHER) if _is_plain(one) else OTHER for one in labels.tolist()]
        return np.array(found, dtype=np.int64)
    numbers = np.full(labels.shape, OTHER, dtype=np.int64)
    for place, one in enumerate(classes):
        numbers[labels == one] = place
    return numbers


def _is_plain(label: object) -> bool:
    """Say whether a label can be looked up; one that raises would tell that it is there."""
    return isinstance(label, Hashable) and isinstance(label, str | bytes | int | float | np.generic)
