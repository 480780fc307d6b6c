"""The noise and the divisor of a step, where a plan lets them change."""

from __future__ import annotations

from collections.abc import Mapping

from taut.training._noise.correlated import CorrelatedNoise
from taut.training._plan.plan import Plan
from taut.training._step.private_gradient import PrivateGradient

__all__ = ["PlannedStep"]


class PlannedStep:
    """Gives a private gradient what its plan has for the step at hand.

    Args:
        plan: the plan.
        gradient: private gradient, made for the first step of the plan.
        sizes: number of entries of every trainable parameter, by name.
        divides: whether sums are divided by the expected batch size, or left as sums.

    **Guarantee**: after `come_to(step)`, the next logical batch is hidden by the noise that the
    plan accounts for in that step. A plan without schedules has one noise, which is left alone.
    """

    def __init__(
        self,
        plan: Plan,
        gradient: PrivateGradient,
        sizes: Mapping[str, int],
        *,
        divides: bool = True,
    ) -> None:
        self._plan, self._gradient, self._sizes = plan, gradient, sizes
        self._divides = divides
        self._now = self._setting(0)

    def come_to(self, step: int) -> None:
        """Prepare for a step, by its number in the plan; again for the same step does nothing."""
        if isinstance(noise := self._gradient.step_noise, CorrelatedNoise):
            noise.come_to(step)
        if not self._plan.is_scheduled:
            return
        setting = self._setting(step)
        if setting != self._now:
            self._gradient.change(self._plan.noise(self._sizes, step), setting[1])
            self._now = setting

    def _setting(self, step: int) -> tuple[float, float]:
        size = self._plan.batch_size_at(step) if self._divides else 1.0
        return self._plan.noise_multiplier_at(step), size
