"""What a room shows: names that say where they live, and where to look for those that moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

__all__ = ["claim", "pointing"]


def claim(room: Mapping[str, Any]) -> None:
    """Let the public names of a module say that they live in it.

    What people see of a class or function (`repr`, help, pickles) then names the door that it is
    imported through, and stays valid when a private module moves.

    Args:
        room: the global names of the module, `__all__` among them.
    """
    for name in room["__all__"]:
        if isinstance(room[name], type | FunctionType):
            for part in (room[name], *_methods(room[name])):
                part.__module__ = room["__name__"]


def _methods(value: object) -> Iterator[FunctionType]:
    """Yield the functions of a class: tools look for them where the class is."""
    for method in vars(value).values() if isinstance(value, type) else ():
        function = getattr(method, "__func__", method)  # of class methods and static ones
        if isinstance(function, FunctionType):
            yield function


def pointing(room: str, **rooms: list[str]) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that says where a name is that people look for here.

    Args:
        room: the full name of the module.
        rooms: public names of its submodules, by submodule.
    """
    where = {name: submodule for submodule, names in rooms.items() for name in names}

    def point(name: str) -> Any:
        hint = f"; it is {room}.{where[name]}.{name}" if name in where else ""
        raise AttributeError(f"module {room!r} has no attribute {name!r}{hint}", name=name)

    return point
