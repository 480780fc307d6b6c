"""What a room shows: names that say where they live, are loaded when used, or have moved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import FunctionType
from typing import Any

__all__ = ["claim", "doors"]


def claim(room: Mapping[str, Any]) -> None:
    """Let the public names of a module say that they live in it.

    What people see of a class or function (`repr`, help, pickles) then names the door that it is
    imported through, and stays valid when a private module moves.

    Args:
        room: the global names of the module, `__all__` among them. Names that are not there yet
            are claimed by `doors` when they come.
    """
    for name in room["__all__"]:
        if name in room:
            _claim(room[name], room["__name__"])


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


def doors(
    room: str,
    late: Mapping[str, tuple[str, ...]] | None = None,
    *,
    needs: str | None = None,
    moved: Mapping[str, list[str]] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a module's `__getattr__` and `__dir__`.

    Args:
        room: the full name of the module.
        late: names that are imported on first use, since what they need may not be installed, by
            the full name of their module; a module without names is such a name itself.
        needs: the module that is imported before any of them, to say what has to be installed.
        moved: public names of submodules that people look for here, by submodule.
    """
    homes = {
        name: home
        for home, names in (late or {}).items()
        for name in names or (home.rpartition(".")[2],)
    }
    where = {name: module for module, names in (moved or {}).items() for name in names}

    def get(name: str) -> Any:
        if name not in homes:
            hint = f"; it is {room}.{where[name]}.{name}" if name in where else ""
            raise AttributeError(f"module {room!r} has no attribute {name!r}{hint}", name=name)
        if needs is not None:
            import_module(needs)
        home = import_module(homes[name])
        value = home if homes[name] == f"{room}.{name}" else getattr(home, name)
        _claim(value, room)
        setattr(sys.modules[room], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[room]), *homes})

    return get, listed
