"""Sweeps: what one knob of a plan costs in noise, at the same promise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taut._base import validate
from taut._base.spelling import did_you_mean
from taut.errors import InfeasibleBudget
from taut.training import FlatClip, Plan

__all__ = ["PlanSweep", "SweptPlan", "sweep_plan"]

KNOBS: Mapping[str, type] = {
    "batch_size": int,
    "rate": float,
    "epochs": float,
    "steps": int,
    "epsilon": float,
    "delta": float,
    "examples": int,
}
_INSTEAD = {"batch_size": "rate", "rate": "batch_size", "epochs": "steps", "steps": "epochs"}


@dataclass(frozen=True)
class SweptPlan:
    """A plan for one position of the knob.

    Attributes:
        value: the position.
        plan: None if no noise of use keeps the promise there.
        reason: why there is none.
    """

    value: float
    plan: Plan | None
    reason: str = ""

    @property
    def noise_per_step(self) -> float:
        """Standard deviation of the noise on a number of the mean gradient, over the clip norm."""
        return math.nan if self.plan is None else self.plan.mean_gradient_noise

    @property
    def noise_of_run(self) -> float:
        """The same for the mean over all steps."""
        return math.nan if self.plan is None else self.plan.mean_run_noise

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        if self.plan is None:
            return {"value": self.value, "infeasible": self.reason}
        plan = self.plan
        return {
            "value": self.value,
            "noise_multiplier": plan.noise_multiplier,
            "steps": plan.steps,
            "batch_size": plan.batch_size,
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "noise_per_step": self.noise_per_step,
            "noise_of_run": self.noise_of_run,
        }


@dataclass(frozen=True)
class PlanSweep:
    """Plans for several positions of one knob, in the order in which these were given."""

    knob: str
    plans: tuple[SweptPlan, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {"knob": self.knob, "plans": [swept.to_dict() for swept in self.plans]}


def sweep_plan(knob: str, values: Sequence[float], **arguments: Any) -> PlanSweep:
    """Return plans that differ in one argument alone, so that their noise can be compared.

    Args:
        knob: argument that varies: batch_size, rate, epochs, steps, epsilon, delta or examples.
        values: its positions.
        arguments: arguments of `taut.training.Plan`; `clipping` may be left out, since the noise is
            counted in units of its norm. Those that the knob replaces (`rate` if it is
            `batch_size`) are.

    **Guarantee**: every plan keeps its own promise; see `taut.training.Plan`. Noise per step is
    that of flat clipping. Less of it is not the same as a better model: signal changes too.

    Raises:
        ValueError: for an unknown knob, and as `Plan`.

    Example:
        >>> from taut.runs import sweep_plan
        >>> sweep = sweep_plan(
        ...     "batch_size", [256, 1_024], examples=60_000, epochs=15, epsilon=3, delta=1e-5
        ... )
        >>> for swept in sweep.plans:
        ...     print(swept.value, swept.plan.steps, f"{swept.noise_per_step:.5f}")
        256 3516 0.00284
        1024 879 0.00099
    """
    if knob not in KNOBS:
        raise ValueError(
            f"knob must be one of {', '.join(KNOBS)}, got knob={knob!r}{did_you_mean(knob, KNOBS)}"
        )
    if not values:
        raise ValueError(f"values must name at least one {knob}, got none")
    rest = {"clipping": FlatClip(1.0), **arguments}
    for replaced in (knob, _INSTEAD.get(knob, knob)):
        rest.pop(replaced, None)
    return PlanSweep(knob, tuple(_swept(knob, value, rest) for value in values))


def _swept(knob: str, value: float, rest: Mapping[str, Any]) -> SweptPlan:
    number: float = validate.positive(**{knob: value})
    if KNOBS[knob] is int:
        if number != int(number):
            raise ValueError(f"{knob} must be a whole number, got {knob}={value!r}")
        number = int(number)
    settings: dict[str, Any] = {**rest, knob: number}
    try:
        return SweptPlan(number, Plan(**settings))
    except InfeasibleBudget as error:
        return SweptPlan(number, None, str(error))
