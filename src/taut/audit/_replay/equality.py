"""Whether two results are the same, and where they are not."""

from __future__ import annotations

import dataclasses
import decimal
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["kept", "labels", "where_different"]

_DEEPEST = 50  # nested containers: beyond, a structure holds itself
_PLAIN = (int, float, complex, str, bytes, np.ndarray, list, tuple, dict, set, frozenset)
_SCALARS = (int, float, complex, str, bytes, np.ndarray)
_COPIED = ("__reduce__", "__reduce_ex__", "__getstate__")  # what decides about copies of an object
_INCOMPARABLE = (
    "two results of type {} cannot be compared; return numbers, arrays, or containers of them"
)
_Form = Literal["numbers", "keys", "places", "attributes", "state"]


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What a value is made of, by key, place or name."""

    form: _Form
    inside: dict[Any, Any]


@dataclasses.dataclass(frozen=True)
class _Kept:
    """A value as it was: what a program does later does not reach it."""

    kind: type
    parts: _Parts


def kept(value: Any, depth: int = 0, *, is_inside: bool = False) -> Any:
    """Return a value as it is now, for `where_different`.

    Numbers, containers, modules and the attributes of the outermost objects are copied. Objects
    inside of objects stay themselves: generators and locks, which only their identity compares.
    """
    _refuse_endless(depth)
    parts = _parts(value, strict=False)
    if parts is None or (parts.form == "attributes" and is_inside):
        return value
    if parts.form == "numbers":
        inside = {name: np.array(part) for name, part in parts.inside.items()}
    else:
        nested = is_inside or parts.form == "attributes"
        inside = {
            key: kept(part, depth + 1, is_inside=nested) for key, part in parts.inside.items()
        }
    return _Kept(type(value), _Parts(parts.form, inside))


def where_different(one: Any, other: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield where two results differ; every number must be the same to the last bit.

    Arrays, tensors, data frames, modules, containers, functions, data classes and plain objects are
    looked into; other objects are compared by ``==``. The first may be what `kept` returned.
    """
    here = path or "itself"
    if one is other:
        return
    if (one.kind if isinstance(one, _Kept) else type(one)) is not type(other):
        yield here
        return
    _refuse_endless(depth)
    ours = one.parts if isinstance(one, _Kept) else _parts(one)
    theirs = _parts(other)
    if ours is None or theirs is None:
        if not _is_equal(one, other):
            yield here
    elif ours.form == "numbers":
        if not _are_same(ours.inside, theirs.inside, depth):
            yield here
    else:
        yield from _inside(ours, theirs, path, depth)


def _refuse_endless(depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError("the result must not contain itself; return what is published alone")


def _inside(ours: _Parts, theirs: _Parts, path: str, depth: int) -> Iterator[str]:
    here = path or "itself"
    if ours.form in ("keys", "places") and list(ours.inside) != list(theirs.inside):
        yield f"the {'keys' if ours.form == 'keys' else 'length'} of {here}"
        return
    if set(ours.inside) != set(theirs.inside):
        yield f"the attributes of {here}"
    for key, part in ours.inside.items():
        if key in theirs.inside:
            name = {"attributes": f".{key}", "state": f"{key}"}.get(ours.form, f"[{key!r}]")
            yield from where_different(part, theirs.inside[key], path + name, depth + 1)


def _parts(value: Any, *, strict: bool = True) -> _Parts | None:
    """Return what a value is made of, None for what ``==`` compares.

    Raises:
        TypeError: if there is nothing to compare two such values by, unless this is not `strict`.
    """
    if isinstance(value, type | types.ModuleType):
        return None
    if (numbers := _numbers(value)) is not None:
        return _Parts("numbers", numbers)
    if callable(getattr(value, "state_dict", None)):
        return _Parts("state", {"": value.state_dict(), **_beside_state(value)})
    if isinstance(value, set):  # this and the next are compared by ==, and can change
        return _Parts("state", {"": frozenset(value)})
    if isinstance(value, bytearray | memoryview):
        return _Parts("state", {"": bytes(value)})
    if isinstance(value, decimal.Decimal):  # which equals others, or as NaN not even itself
        return _Parts("state", {"": tuple(value.as_tuple())})
    if isinstance(value, Mapping):
        return _Parts("keys", dict(value))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | range):
        return _Parts("places", dict(enumerate(value)))
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        defaults = (value.__defaults__, value.__kwdefaults__)
        made = {"code": value.__code__, "closure": cells, "defaults": defaults}
        return _Parts("attributes", {**made, **vars(value)})
    if isinstance(value, types.MethodType):
        return _Parts("attributes", {"self": value.__self__, "function": value.__func__})
    if isinstance(value, functools.partial):
        bound = {"function": value.func, "arguments": value.args, "named": value.keywords}
        return _Parts("attributes", bound)
    if dataclasses.is_dataclass(value):
        names = [item.name for item in dataclasses.fields(value) if hasattr(value, item.name)]
        fields = {name: getattr(value, name) for name in names}
        return _Parts("attributes", {**fields, **_own(value)})
    if _has_no_equality(value) or (_own(value) and not isinstance(value, _PLAIN)):
        return _attributes(value, strict=strict)
    return None


def _numbers(value: Any) -> dict[Any, Any] | None:
    """Return the arrays that a value of numbers is made of, None for other values."""
    if isinstance(value, np.ma.MaskedArray):
        return {"data": value.filled(0), "mask": np.ma.getmaskarray(value)}
    if isinstance(value, np.ndarray | np.generic | float | complex):
        return {"data": np.asarray(value)}
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        return _of_tensor(value.detach().cpu())
    if hasattr(value, "to_numpy"):  # a data frame, or a column
        listed = getattr(value, "to_pylist", None)  # Arrow makes no array of some columns
        data = np.asarray(value.to_numpy()) if listed is None else _boxed(listed())
        return {"data": data, **_labels(value)}
    if hasattr(value, "tocoo"):  # a sparse matrix
        found = value.tocoo()
        shape = np.asarray(found.shape)
        return {"data": found.data, "row": found.row, "column": found.col, "shape": shape}
    return None


def _of_tensor(tensor: Any) -> dict[str, Any]:
    plain, parts = tensor.resolve_conj().resolve_neg(), {"type": _boxed(str(tensor.dtype))}
    if str(tensor.layout) != "torch.strided":
        plain, parts["count"] = tensor.to_dense(), np.asarray(tensor._nnz())
    try:
        return {"data": plain.numpy(), **parts}
    except TypeError:  # of a type that NumPy does not have
        return {"data": plain.float().numpy(), **parts}


def labels(value: Any) -> dict[str, Any]:
    """Return what numbers carry with them that noise does not hide, by name."""
    if isinstance(value, np.ma.MaskedArray):
        return {"mask": np.ma.getmaskarray(value)}
    return {"labels": _labels(value)} if hasattr(value, "to_numpy") else {}


def _labels(value: Any) -> dict[str, Any]:
    """Return what a data frame or a column holds beside its values: names, types, categories."""
    found = {}
    for name in ("index", "columns"):
        held = getattr(value, name, None)
        if held is not None and not callable(held):
            found[name] = np.asarray(held)
            found[f"{name} names"] = _boxed(
                [list(getattr(held, part, None) or ()) for part in ("names", "levels")]
            )
    own = {name: getattr(value, name, None) for name in ("name", "names", "attrs")}
    found["own"] = _boxed({k: v for k, v in own.items() if not callable(v)})
    kinds: Any = getattr(value, "dtypes", getattr(value, "dtype", getattr(value, "type", None)))
    several = isinstance(kinds, Sequence) or hasattr(kinds, "to_numpy")
    found["types"] = _boxed([_of_type(kind) for kind in (kinds if several else [kinds])])
    return found


def _of_type(kind: Any) -> tuple[Any, ...]:
    categories = getattr(kind, "categories", None)
    listed = None if categories is None else list(categories)
    return str(kind), listed, getattr(kind, "ordered", None)


def _boxed(value: Any) -> NDArray[Any]:
    box = np.empty(1, dtype=object)
    box[0] = value
    return box


def _beside_state(value: Any) -> dict[str, Any]:
    """Return numbers and words that modules hold beside their state, by name."""
    modules = getattr(value, "named_modules", None)
    if not callable(modules):
        return {}
    return {
        ".".join(("", *([place] if place else []), name)): held
        for place, module in modules()
        for name, held in (*vars(module).items(), *vars(module).get("_buffers", {}).items())
        if name != "training" and _is_told(name, held)
    }


def _is_told(name: str, held: Any) -> bool:
    """Say whether an attribute of a module counts; private containers hold its machinery."""
    if held is None or callable(held):
        return False
    if isinstance(held, _SCALARS) or _numbers(held) is not None:
        return True
    records = isinstance(held, (*_PLAIN, types.SimpleNamespace)) or dataclasses.is_dataclass(held)
    return records and not name.startswith("_")


def _attributes(value: Any, *, strict: bool) -> _Parts | None:
    slots = {
        name
        for kind in type(value).__mro__
        for name in _listed(kind)
        if not (name.startswith("__") and name.endswith("__")) and hasattr(value, name)
    }
    hidden = _hidden(value)
    if not hasattr(value, "__dict__") and not slots and not hidden:
        if strict:
            raise TypeError(_INCOMPARABLE.format(type(value).__name__))
        return None
    held = {name: getattr(value, name) for name in sorted(slots)}
    return _Parts("attributes", {**held, **_own(value), **hidden})


def _own(value: Any) -> dict[str, Any]:
    """Return what an object holds by name, but for what it computes from that and remembers."""
    return {
        name: held
        for name, held in getattr(value, "__dict__", {}).items()
        if not isinstance(getattr(type(value), name, None), functools.cached_property)
    }


def _hidden(value: Any) -> dict[str, Any]:
    """Return what a copy of an object would be made of, where that is more than its attributes."""
    kind = type(value)
    if all(getattr(kind, name) is getattr(object, name) for name in _COPIED):
        return {}
    try:
        made = value.__reduce_ex__(2)
    except Exception:  # it refuses to be copied: its attributes are all there is to see
        return {}
    return {"": tuple(made[1:3])} if isinstance(made, tuple) else {}


def _listed(kind: type) -> list[str]:
    """Return the slots of a class, private ones by the names that they have outside of it."""
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    prefix = "_" + kind.__name__.lstrip("_")
    return [prefix + n if n.startswith("__") and not n.endswith("__") else n for n in names]


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that is bound later
        return False


def _are_same(ours: dict[Any, Any], theirs: dict[Any, Any], depth: int) -> bool:
    return ours.keys() == theirs.keys() and all(
        _is_same(part, theirs[name], depth) for name, part in ours.items()
    )


def _is_same(one: NDArray[Any], other: NDArray[Any], depth: int) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.names is not None:
        return all(_is_same(one[name], other[name], depth) for name in one.dtype.names)
    if one.dtype.kind in "mM":
        return bool(np.array_equal(one, other, equal_nan=True))
    if one.dtype.kind == "O":
        parts = zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)
        return not any(any(where_different(a, b, "", depth + 1)) for a, b in parts)
    if one.dtype.kind not in "fc":
        return bool(np.array_equal(one, other))
    if not np.array_equal(one, other, equal_nan=True):
        return False
    signs = [np.signbit(part) for part in (one.real, other.real, one.imag, other.imag)]
    zeros = [one.real == 0, one.imag == 0]
    return all(bool((signs[2 * i] == signs[2 * i + 1])[zero].all()) for i, zero in enumerate(zeros))


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return bool(np.all(one == other))
    except Exception:
        raise TypeError(_INCOMPARABLE.format(type(one).__name__)) from None


def _has_no_equality(value: Any) -> bool:
    return "__eq__" not in {name for kind in type(value).__mro__[:-1] for name in vars(kind)}
