"""What a file of settings holds: calls with their arguments, and facts that stand around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "DATA_LOADER",
    "HIDDEN",
    "Call",
    "Document",
    "Signature",
    "Unread",
    "Value",
    "plain_name",
]

HIDDEN = "**"
"""The name of what a call hides behind a star: any argument that it does not show."""


SET = "."
"""What stands before the name of an attribute, for values that a program sets it to."""


@dataclass(frozen=True)
class Unread:
    """An argument that no literal gives: it is computed, or comes from elsewhere."""

    text: str


@dataclass(frozen=True)
class Value:
    """A value, and where it stands."""

    value: Any
    where: str

    @property
    def is_number(self) -> bool:
        """Whether it can be a size, a rate or a probability."""
        return isinstance(self.value, int | float) and not isinstance(self.value, bool)


@dataclass(frozen=True)
class Call:
    """A call of a known function or class, or a table with its arguments."""

    name: str
    arguments: Mapping[str, Value]
    where: str


@dataclass(frozen=True)
class Signature:
    """How the settings of one function or class are recognised.

    Args:
        name: the name of the function or class, without its module.
        positional: names of its arguments, in their order.
        keys: keys that a table must have to be taken for its arguments; empty for none.
        marks: arguments of which a call must have one, where others call functions alike.
    """

    name: str
    positional: tuple[str, ...] = ()
    keys: tuple[frozenset[str], ...] = ()
    marks: tuple[str, ...] = ()

    def fits(self, call: Call) -> bool:
        """Say whether a call of this name is one of the function that is meant."""
        return not self.marks or any(mark in call.arguments for mark in (*self.marks, HIDDEN))

    def bound(self, positional: Iterable[Value], keywords: Mapping[str, Value]) -> dict[str, Value]:
        """Return arguments by name; what stands in no known place is dropped."""
        found = dict(zip(self.positional, positional, strict=False))
        return {**found, **keywords}


DATA_LOADER = Signature(
    "DataLoader",
    (
        *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers"),
        *("collate_fn", "pin_memory", "drop_last"),
    ),
)
"""The loader of PyTorch: no setting by itself, but part of some."""


@dataclass(frozen=True)
class Document:
    """The calls of a file, and values by name that stand beside them."""

    calls: tuple[Call, ...]
    facts: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def around(self, names: Iterable[str]) -> list[Value]:
        """Return the distinct values that a file calls by one of these names.

        They are numbers. Where there is one, and no literal gives another value of such a name,
        that value comes after the numbers: it may be the one that counts.
        """
        values = [value for name in names for value in self.facts.get(name, ())]
        found: list[Value] = []
        for value in values:
            if value.is_number and all(value.value != other.value for other in found):
                found.append(value)
        return found + [v for v in values if found and isinstance(v.value, Unread)][:1]


def plain_name(key: str) -> str:
    """Return a key as Python spells it: `noise-multiplier` and `Noise_Multiplier` are one."""
    return key.strip().replace("-", "_").lower()
