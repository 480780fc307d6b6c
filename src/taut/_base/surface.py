"""What a room shows: names that say where they live, are loaded when used, or have moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import FunctionType
from typing import Any

__all__ = ["claim"]


def claim(
    room: dict[str, Any],
    late: Mapping[str, tuple[str, ...]] | None = None,
    *,
    needs: str | None = None,
    moved: Mapping[str, list[str]] | None = None,
) -> None:
    """Let the public names of a module say that they live in it, and load some when used.

    What people see of a class or function (`repr`, help, pickles) then names the door that it is
    imported through, and stays valid when a private module moves. The module gets its
    `__getattr__` and `__dir__` from here, so that type checkers still refuse names that do not
    exist.

    Args:
        room: the global names of the module, `__all__` among them.
        late: names that are imported on first use, since what they need may not be installed, by
            the full name of their module; a module without names is such a name itself.
        needs: the module that is imported before any of them, to say what has to be installed.
        moved: public names of submodules that people look for here, by submodule.
    """
    for name in room["__all__"]:
        if name in room:
            _claim(room[name], room["__name__"])
    if late or moved:
        room["__getattr__"], room["__dir__"] = _doors(room, late or {}, needs, moved or {})


def _claim(value: object, room: str) -> None:
    if isinstance(value, type | FunctionType):
        for part in (value, *_methods(value)):
            part.__module__ = room


def _methods(value: object) -> Iterator[FunctionType]:
    """Yield the functions of a class: tools look for them where the class is."""
    for method in vars(value).values() if isinstance(value, type) else ():
        function = getattr(method, "__func__", method)  # of class methods and static ones
        if isinstance(function, FunctionType):
            yield function


def _doors(
    room: dict[str, Any],
    late: Mapping[str, tuple[str, ...]],
    needs: str | None,
    moved: Mapping[str, list[str]],
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a module's `__getattr__` and `__dir__`."""
    own = room["__name__"]
    homes = {
        name: home for home, names in late.items() for name in names or (home.rpartition(".")[2],)
    }
    where = {name: module for module, names in moved.items() for name in names}

    def get(name: str) -> Any:
        if name not in homes:
            hint = f"; it is {own}.{where[name]}.{name}" if name in where else ""
            raise AttributeError(f"module {own!r} has no attribute {name!r}{hint}", name=name)
        if needs is not None:
            import_module(needs)
        home = import_module(homes[name])
        value = home if homes[name] == f"{own}.{name}" else getattr(home, name)
        _claim(value, own)
        room[name] = value
        return value

    def listed() -> list[str]:
        return sorted({*room, *homes})

    return get, listed
