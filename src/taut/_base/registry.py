"""Strategies: small values that describe one choice of a plan, and that round-trip through JSON."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np

from taut._base.validate import WrongType

__all__ = ["Strategy"]


class Strategy(ABC):
    """A frozen dataclass with a name, known to its family.

    A family (clipping, sampling) is a direct subclass of this; every concrete member sets `name`
    and is found again by it, so that new members need no list of old ones.
    """

    name: ClassVar[str]
    """What JSON calls the strategy."""
    _family: ClassVar[dict[str, type[Strategy]]]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if Strategy in cls.__bases__:
            cls._family = {}
        elif "name" in vars(cls):
            known = cls._family.setdefault(cls.name, cls)
            if known.__qualname__ != cls.__qualname__ or known.__module__ != cls.__module__:
                raise ValueError(
                    f"name must be new, got name={cls.name!r}, which is {known.__qualname__}"
                )
            cls._family[cls.name] = cls  # dataclass(slots=True) makes a second class of the first

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        values = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        return {"name": self.name, **values}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the member of this family that `data` describes.

        Raises:
            ValueError: if the name or a field is unknown.
        """
        if not isinstance(data, Mapping) or "name" not in data:
            raise ValueError(f"a {cls.__name__} in JSON is an object with a name, got {data!r}")
        values = {key: _frozen(value) for key, value in data.items()}
        name = values.pop("name")
        member = cls._family.get(name)
        if member is None:
            known = ", ".join(sorted(cls._family))
            raise ValueError(f"name must be one of {known}, got name={name!r}")
        try:
            return member(**values)  # type: ignore[return-value]
        except TypeError as error:
            if isinstance(error, WrongType):
                raise
            raise ValueError(f"malformed {name!r} in JSON: {error}") from None


def _plain(value: Any) -> Any:
    """Return a field as JSON has it."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _frozen(value: Any) -> Any:
    """Return a field as a strategy has it, the inverse of `_plain`."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
