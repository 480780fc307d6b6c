"""Whether two results are the same, and where they are not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["where_different"]

_DEEPEST = 50  # nested containers: beyond, a structure holds itself


def where_different(one: Any, other: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield where two results differ; every number must be the same to the last bit.

    Arrays, tensors, data frames, modules, containers, data classes and plain objects are looked
    into; other objects are compared by ``==``.
    """
    here = path or "itself"
    if one is other:
        return
    if type(one) is not type(other):
        yield here
    elif depth > _DEEPEST:
        raise ValueError("the result must not contain itself; return what is published alone")
    elif (arrays := _arrays(one, other)) is not None:
        if not _same_array(*arrays):
            yield here
    elif callable(getattr(one, "state_dict", None)):
        yield from where_different(one.state_dict(), other.state_dict(), path, depth + 1)
    elif isinstance(one, Mapping):
        if list(one) != list(other):
            yield f"the keys of {here}"
            return
        for key in one:
            yield from where_different(one[key], other[key], f"{path}[{key!r}]", depth + 1)
    elif isinstance(one, Sequence) and not isinstance(one, str | bytes):
        if len(one) != len(other):
            yield f"the length of {here}"
            return
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from where_different(a, b, f"{path}[{i}]", depth + 1)
    elif dataclasses.is_dataclass(one) or _has_no_equality(one):
        for name, value in _parts(one).items():
            yield from where_different(value, _parts(other).get(name), f"{path}.{name}", depth + 1)
    elif not _equal(one, other):
        yield here


def _arrays(one: Any, other: Any) -> tuple[Any, Any] | None:
    if isinstance(one, np.ndarray | np.generic | float | complex):
        return np.asarray(one), np.asarray(other)
    if hasattr(one, "detach") and hasattr(one, "cpu"):  # a tensor
        return one.detach().cpu().numpy(), other.detach().cpu().numpy()
    if hasattr(one, "to_numpy"):  # a data frame or a column
        return one.to_numpy(), other.to_numpy()
    return None


def _same_array(one: Any, other: Any) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind in "fc":
        return bool(np.array_equal(one, other, equal_nan=True))
    return bool(np.array_equal(one, other))


def _has_no_equality(value: Any) -> bool:
    return "__eq__" not in {name for kind in type(value).__mro__[:-1] for name in vars(kind)}


def _equal(one: Any, other: Any) -> bool:
    found = one == other
    return bool(np.all(found))


def _parts(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    if not hasattr(value, "__dict__"):
        raise TypeError(
            f"two results of type {type(value).__name__} cannot be compared; return numbers, "
            "arrays, or containers of them"
        )
    return dict(vars(value))
