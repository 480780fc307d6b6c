"""Schedules: numbers that change from step to step, in stretches of equal ones."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any, TypeAlias

import numpy as np

from taut._base import validate

__all__ = ["Changing", "Schedule", "is_schedule", "together"]


@dataclass(frozen=True)
class Schedule:
    """A positive number for every step of a plan.

    Args:
        stretches: pairs of a number of steps and the value that holds for so many of them, in
            their order. Neighbours of one value are made one.

    **Guarantee**: none of its own: a plan says what is accounted for it.

    Raises:
        ValueError: if there are no steps, or a value or a length is not positive.

    Example:
        >>> from taut.training.extend import Schedule
        >>> schedule = Schedule.of([1.0, 1.0, 0.5])
        >>> schedule.stretches, schedule.at(2), schedule == Schedule.of([(2, 1.0), (1, 0.5)])
        (((2, 1.0), (1, 0.5)), 0.5, True)
    """

    stretches: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        pairs = [
            (validate.positive_integer(steps=steps), validate.positive(value=value))
            for steps, value in self.stretches
        ]
        if not pairs:
            raise ValueError("a schedule must have at least one step, got none")
        merged = tuple(
            (sum(steps for steps, _ in run), value)
            for value, run in groupby(pairs, key=lambda pair: pair[1])
        )
        object.__setattr__(self, "stretches", merged)

    @classmethod
    def of(cls, given: object, name: str = "schedule") -> Schedule:
        """Return the schedule that an argument describes.

        Args:
            given: a schedule; or numbers, one for every step; or pairs of a number of steps and a
                value, stretch after stretch.
            name: name of the argument, for messages.

        Raises:
            ValueError: if it is empty, or holds something else.
        """
        if isinstance(given, Schedule):
            return given
        items = given.tolist() if isinstance(given, np.ndarray) else list(given)  # type: ignore[call-overload]
        paired = [isinstance(item, list | tuple) for item in items]
        if any(paired) and not (all(paired) and all(len(item) == 2 for item in items)):
            raise ValueError(
                f"{name} must be a list of numbers, one for every step, or one of pairs (steps, "
                "value), not both"
            )
        pairs = ((_whole(item[0]), item[1]) if paired[0] else (1, item) for item in items)
        try:
            return cls(tuple(pairs))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None

    @property
    def steps(self) -> int:
        """The number of steps that it is for."""
        return self._ends[-1]

    @property
    def least(self) -> float:
        """The smallest value."""
        return min(value for _, value in self.stretches)

    @property
    def most(self) -> float:
        """The largest value."""
        return max(value for _, value in self.stretches)

    @property
    def mean(self) -> float:
        """The mean over all steps."""
        return self.total(self.steps) / self.steps

    def at(self, step: int) -> float:
        """Return the value of a step, from zero up; beyond the end the last one goes on."""
        place = bisect_right(self._ends, validate.integer(step=step))
        return self.stretches[min(place, len(self.stretches) - 1)][1]

    def total(self, steps: int) -> float:
        """Return the sum over the first `steps` steps; beyond the end the last value goes on."""
        return math.fsum(count * values[0] for count, values in together(steps, self))

    def scaled(self, factor: float) -> Schedule:
        """Return the schedule with every value multiplied."""
        return Schedule(tuple((steps, value * factor) for steps, value in self.stretches))

    def over(self, unit: float) -> Schedule:
        """Return the schedule with every value divided."""
        return Schedule(tuple((steps, value / unit) for steps, value in self.stretches))

    def check_steps(self, steps: int, name: str) -> None:
        """Refuse to serve a plan of another length.

        Raises:
            ValueError: naming both lengths.
        """
        if self.steps != steps:
            raise ValueError(
                f"{name} must have one value for each of {steps} steps, got {self.steps}; pairs "
                "(steps, value) describe long stretches"
            )

    def to_list(self) -> list[list[float]]:
        """Return the stretches as JSON has them; `of` reads them."""
        return [[steps, value] for steps, value in self.stretches]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(steps for steps, _ in self.stretches))


Changing: TypeAlias = Schedule | Sequence[float] | Sequence[tuple[int, float]]
"""Numbers that change from step to step, as an argument."""


def _whole(value: Any) -> Any:
    """Return a whole float, which arrays of pairs make of an integer, as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_schedule(given: object) -> bool:
    """Say whether an argument describes a schedule, not one number."""
    return isinstance(given, Schedule | list | tuple) or (
        isinstance(given, np.ndarray) and given.ndim > 0
    )


def together(steps: int, *schedules: Schedule) -> Iterator[tuple[int, tuple[float, ...]]]:
    """Yield stretches of the first `steps` steps in which all schedules are constant.

    Args:
        steps: number of steps; beyond the end of a schedule its last value goes on.
        schedules: the schedules, of any lengths.

    Yields:
        the length of a stretch, and the value of every schedule.
    """
    ends = sorted({end for schedule in schedules for end in schedule._ends if end < steps})
    begin = 0
    for end in (*ends, steps):
        if end > begin:
            yield end - begin, tuple(schedule.at(begin) for schedule in schedules)
        begin = end
