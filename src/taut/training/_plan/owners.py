"""Owners: people with several examples each, as what a promise is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taut._base import validate

__all__ = ["Owners", "unit_of"]


@dataclass(frozen=True)
class Owners:
    """The unit of a promise: all examples of one owner, instead of one example.

    A step draws owners. One that is drawn contributes one vector: the mean of the gradients of
    `examples_each` of its examples, drawn anew in every step, clipped once. An owner with fewer
    examples fills up by repeating its own, each as often as the others but for one time more,
    which ones being drawn too: so every example of an owner counts as much as the others, on
    average over the draws. Owners with many examples count as much as those with few.

    Args:
        count: number of owners, which is public, as the number of examples is without.
        examples_each: how many examples of an owner a step looks at; as many rows are computed for
            every owner that is drawn. More of them cost time, not epsilon.

    **Guarantee**: what an owner adds to the sum of a step has the length of one clipped gradient,
    whatever examples it has and however many. So the loss of a plan holds for datasets that differ
    in all examples of one owner: they are added or removed together, or replaced by another
    owner's. Which examples belong to whom stays secret. An example has one owner.

    Raises:
        ValueError: for numbers below one.

    Example:
        >>> from taut.training import FlatClip, Owners, Plan
        >>> plan = Plan(
        ...     unit=Owners(2_000, examples_each=4), batch_size=100, epochs=5, epsilon=3,
        ...     delta=1e-5, clipping=FlatClip(1.0),
        ... )
        >>> plan.steps, plan.examples, plan.unit.examples_each
        (100, 2000, 4)
    """

    count: int
    examples_each: int

    def __post_init__(self) -> None:
        for name in ("count", "examples_each"):
            value = validate.positive_integer(**{name: getattr(self, name)})
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Return what the JSON of a plan says about it; the count is the plan's `examples`."""
        return {"name": "owners", "examples_each": self.examples_each}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], count: int) -> Owners:
        """Return the unit that `data` describes, of so many owners.

        Raises:
            ValueError: if it describes another unit, or none.
        """
        if not isinstance(data, Mapping) or set(data) != {"name", "examples_each"}:
            raise ValueError(f"unit must have a name and examples_each, got unit={data!r}")
        if data["name"] != "owners":
            raise ValueError(f"unit must be named 'owners', got {data['name']!r}")
        return cls(count, data["examples_each"])


def unit_of(unit: object, examples: object) -> tuple[Owners | None, Any]:
    """Return the unit of a plan, None for examples, and how many there are to draw from.

    Raises:
        TypeError: if the unit is something else.
        ValueError: if neither or both are given.
    """
    if unit is not None and not isinstance(unit, Owners):
        raise validate.WrongType(
            f"unit must be Owners, or None for single examples, got unit={unit!r}; write "
            "unit=Owners(count, examples_each=4)"
        )
    if (unit is None) == (examples is None):
        raise ValueError(
            "give either examples, where every example is protected, or unit=Owners(count, "
            f"examples_each=...), where every owner is, got examples={examples!r} and unit={unit!r}"
        )
    return unit, examples if unit is None else unit.count
