"""What is equal for every arm of a comparison: the promise, the data and the compute."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from taut._base import validate
from taut.training import Plan
from taut.training.extend import Clipping

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A promise, a budget of gradients, and how they are spent: the same for every arm.

    Args:
        examples: the number of training examples.
        batch_size: the expected number of examples in a step.
        gradients: how many gradients of examples a run may compute, in expectation; the steps
            follow.
        epsilon: the promise of every run.
        delta: its delta.
        norm: how long the gradient of an example may be at most, in l2.

    **Guarantee**: every plan made by `plan` promises (epsilon, delta) with certainty, and computes
    `steps * batch_size <= gradients` gradients in expectation.

    Raises:
        ValueError: if a number makes no sense, or the budget is too small for one step.

    Example:
        >>> from taut.comparison import Settings
        >>> settings = Settings(
        ...     examples=5_000, batch_size=250, gradients=50_000, epsilon=3, delta=1e-5
        ... )
        >>> settings.steps, settings.rate
        (200, 0.05)
    """

    examples: int
    batch_size: int
    gradients: int
    epsilon: float
    delta: float
    norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("examples", "batch_size", "gradients"):
            validate.positive_integer(**{name: getattr(self, name)})
        validate.positive(epsilon=self.epsilon)
        validate.positive(delta=validate.below_one(delta=self.delta))
        validate.positive(norm=self.norm)
        if self.batch_size > self.examples:
            raise ValueError(
                f"batch_size must be at most examples={self.examples}, got "
                f"batch_size={self.batch_size!r}"
            )
        if self.gradients < self.batch_size:
            raise ValueError(
                f"gradients must pay for one step of batch_size={self.batch_size} at least, got "
                f"gradients={self.gradients!r}"
            )

    @property
    def steps(self) -> int:
        """How many steps the gradients pay for."""
        return self.gradients // self.batch_size

    @property
    def rate(self) -> float:
        """The probability with which a step takes an example."""
        return self.batch_size / self.examples

    def plan(self, clipping: Clipping, **choices: Any) -> Plan:
        """Return the plan with this clipping; `choices` are further arguments of `Plan`."""
        return _solved(self, clipping, tuple(sorted(choices.items())))

    def to_dict(self) -> dict[str, Any]:
        """Return numbers for JSON."""
        return {**asdict(self), "steps": self.steps, "rate": self.rate}

    def __str__(self) -> str:
        return (
            f"epsilon {self.epsilon:g} at delta {self.delta:g}; {self.steps} steps of "
            f"{self.batch_size} examples out of {self.examples} "
            f"({self.steps * self.batch_size} gradients), clipping norm {self.norm:g}"
        )


# Seeds and learning rates share plans, and solving one takes longer than a small step.
@lru_cache(maxsize=8)
def _solved(settings: Settings, clipping: Clipping, choices: tuple[tuple[str, Any], ...]) -> Plan:
    return Plan(
        examples=settings.examples,
        batch_size=settings.batch_size,
        steps=settings.steps,
        epsilon=settings.epsilon,
        delta=settings.delta,
        clipping=clipping,
        **dict(choices),
    )
