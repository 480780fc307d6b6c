"""Neighbouring relations, and the one-sided halves in which losses are composed."""

from __future__ import annotations

from enum import EnumType, StrEnum
from typing import Any

from taut._base.validate import told

__all__ = ["Adjacency", "Half", "halves"]


class _Named(EnumType):
    """Kinds that are asked for by name: nothing else, arrays least of all, is compared with it."""

    def __call__(cls, value: Any, *more: Any, **named: Any) -> Any:
        if not isinstance(value, str) and not more:
            cls._missing_(value)  # type: ignore[attr-defined]
        return super().__call__(value, *more, **named)


class Adjacency(StrEnum, metaclass=_Named):
    """When two datasets count as neighbours: the unit that a guarantee protects.

    Attributes:
        ADD_REMOVE: one record is added or removed; the size of the dataset is private.
        ADD: the second dataset has one record more (one half of ``ADD_REMOVE``).
        REMOVE: the first dataset has one record more (the other half).
        REPLACE: one record is exchanged for another; the size is public.
        ZERO_OUT: one record is replaced by a null record; the size is public.
    """

    ADD_REMOVE = "add_remove"
    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"
    ZERO_OUT = "zero_out"

    @classmethod
    def _missing_(cls, value: object) -> None:
        names = ", ".join(repr(str(member)) for member in cls)
        raise ValueError(f"adjacency must be one of {names}, got adjacency={told(value)}")


class Half(StrEnum):
    """The direction in which a pair (P, Q) of output distributions is read.

    In ``ADD``, P is the output without the record and Q the output with it; ``REMOVE`` is the
    reverse. Composition keeps the direction through all steps, so the two halves are composed
    separately and compared once, at the end. ``REPLACE`` pairs dominate both orders at once.
    """

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


_HALVES = {
    Adjacency.ADD_REMOVE: (Half.REMOVE, Half.ADD),
    Adjacency.ZERO_OUT: (Half.REMOVE, Half.ADD),
    Adjacency.ADD: (Half.ADD,),
    Adjacency.REMOVE: (Half.REMOVE,),
    Adjacency.REPLACE: (Half.REPLACE,),
}


def halves(adjacency: Adjacency) -> tuple[Half, ...]:
    """Return the halves whose maximum is the guarantee under ``adjacency``."""
    return _HALVES[adjacency]
