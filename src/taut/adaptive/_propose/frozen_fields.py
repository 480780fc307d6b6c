"""Fields of frozen values, set once more as what they were checked to be."""

from __future__ import annotations

__all__ = ["settle"]


def settle(of: object, **fields: object) -> None:
    """Set checked fields of a frozen dataclass, while it is made."""
    for name, value in fields.items():
        object.__setattr__(of, name, value)
