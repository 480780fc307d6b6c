"""Which budgets can be met with noise that leaves something to learn, and what helps if not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from taut._base.rounding import round_up
from taut.accounting import PrivacyLoss, calibrate
from taut.errors import InfeasibleBudget
from taut.training._plan.mixing import UNMIXED, Mixing
from taut.training._sampling.sampling import Sampling

__all__ = ["Target", "check_feasible"]

_FURTHEST = 2.0**24  # by this factor a knob is turned at most
_ACCURACY = 1.02  # to which factor the turning point is found
_ROUGH = 1e-2


@dataclass(frozen=True)
class Target:
    """A promise, and the run that shall keep it."""

    sampling: Sampling
    examples: int
    batch_size: float
    steps: int
    epsilon: float
    delta: float
    mixing: Mixing = UNMIXED
    scheduled: Callable[[float], PrivacyLoss] | None = None
    """Loss of steps that differ; other steps and batch sizes are then not tried."""

    def loss(self, noise_multiplier: float) -> PrivacyLoss:
        """Return the loss of the run with this much noise."""
        if self.scheduled is not None:
            return self.scheduled(noise_multiplier)
        rate = self.sampling.rate_of(self.batch_size, self.examples)
        sampling = self.sampling.fitted(self.examples, rate)
        return self.mixing.loss(noise_multiplier, sampling, self.steps, self.examples)

    @property
    def drowning(self) -> float:
        """The noise at which gradients of full length and one direction equal it after all steps.

        Their sum over the run is steps * batch_size, the noise in its direction sqrt(steps) times
        the multiplier.
        """
        return self.batch_size * math.sqrt(self.steps)

    def met(self, limit: float | None) -> bool:
        """Return whether noise within the limit surely keeps the promise."""
        most = self.drowning if limit is None else limit
        return self.loss(most).epsilon(self.delta, _ROUGH) <= self.epsilon


def check_feasible(target: Target, limit: float | None) -> None:
    """Refuse a target that needs more noise than `limit` (by default than drowns everything).

    Raises:
        InfeasibleBudget: with the change of each single knob that would do.
    """
    most = target.drowning if limit is None else limit
    if target.loss(most).epsilon(target.delta) <= target.epsilon:
        return
    reason = "max_noise_multiplier" if limit is not None else "sqrt(steps) * batch_size"
    meaning = "" if limit is not None else ", where the noise exceeds the largest possible signal"
    needed = _needed(replace(target, mixing=target.mixing.beside(most)))
    limited = "the limit" if limit is not None else "the useful limit"
    ways = "; ".join(_ways_out(target, limit))
    raise InfeasibleBudget(
        f"epsilon={target.epsilon:g} at delta={target.delta:g} needs a noise multiplier of "
        f"{needed}, above {limited} {reason} = {most:.4g}{meaning}. Any one of these would "
        f"suffice: {ways}"
    )


def _needed(target: Target) -> str:
    try:
        found = calibrate(target.loss, epsilon=target.epsilon, delta=target.delta, tolerance=_ROUGH)
    except InfeasibleBudget:
        return "more than any float"
    return f"{found.value:.4g}"


def _ways_out(target: Target, limit: float | None) -> list[str]:
    """Return for every knob the nearest value that meets the target, if there is one."""
    most = target.drowning if limit is None else limit
    epsilon = target.loss(most).epsilon(target.delta)
    target = replace(target, mixing=target.mixing.beside(most))
    ways = [f"epsilon >= {round_up(epsilon, 3)}"] if epsilon < math.inf else []
    if target.scheduled is not None:
        return [*ways, "a schedule of fewer steps, or of smaller batches"]
    fewer = _turn(limit, lambda factor: replace(target, steps=math.floor(target.steps / factor)))
    if fewer is not None:
        ways.append(f"steps <= {fewer.steps}")
    smaller = _turn(
        limit,
        lambda factor: replace(target, batch_size=float(math.floor(target.batch_size / factor))),
    )
    if smaller is not None:
        ways.append(f"batch_size <= {smaller.batch_size:.0f}")
    more = _turn(
        limit, lambda factor: replace(target, examples=math.ceil(target.examples * factor))
    )
    if more is not None:
        ways.append(f"examples >= {more.examples}")
    return ways


def _turn(limit: float | None, turned: Callable[[float], Target]) -> Target | None:
    """Return the target with one knob turned as little as it takes, None if that never helps."""
    bad, good = 1.0, 2.0
    while not _possible(turned(good)) or not turned(good).met(limit):
        bad, good = good, 4 * good
        if good > _FURTHEST or not _possible(turned(good)):
            return None
    while good > bad * _ACCURACY:
        middle = math.sqrt(good * bad)
        if turned(middle).met(limit):
            good = middle
        else:
            bad = middle
    return turned(good)


def _possible(target: Target) -> bool:
    return target.steps >= 1 and target.batch_size >= 1
