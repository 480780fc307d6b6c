"""How many trials are worth it, under one promise for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from taut._base import validate
from taut._base.rounding import round_up
from taut.accounting import PrivacyLoss, Trials, best_of, calibrate

__all__ = ["TuningOption", "TuningPlan", "plan_tuning"]

_MEANS = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
_NOISE_TOLERANCE = (
    1e-3  # relative, of the noise: the promise is kept at any, and searches are quick
)


@dataclass(frozen=True)
class TuningOption:
    """One way to spend a promise on trials.

    Attributes:
        trials: law of the number of trials.
        noise_multiplier: noise that every trial needs.
        own_epsilon: what one trial costs by itself, at the same delta.
        noise_factor: noise over that of a single run under the same promise: what tuning must gain.
        found: probability that a given one of all settings is tried; None without their number.
    """

    trials: Trials
    noise_multiplier: float
    own_epsilon: float
    noise_factor: float
    found: float | None


@dataclass(frozen=True)
class TuningPlan:
    """Options for a search under one promise, from one trial to many.

    Attributes:
        epsilon: promise for the whole search.
        delta: probability delta of it.
        options: rows of the trade-off.
    """

    epsilon: float
    delta: float
    options: tuple[TuningOption, ...]

    def __str__(self) -> str:
        """Return the table."""
        lines = [
            f"epsilon = {self.epsilon:g} at delta = {self.delta:g} for the whole search",
            "trials  noise    x one run  epsilon of one  a setting is tried",
        ]
        for option in self.options:
            tried = "" if option.found is None else f"{option.found:.0%}"
            lines.append(
                f"{option.trials.expected:6g}  {option.noise_multiplier:7.4f}  "
                f"{option.noise_factor:9.3f}  {round_up(option.own_epsilon, 4):>14}  {tried:>17}"
            )
        return "\n".join(lines)


def plan_tuning(
    loss: Callable[[float], PrivacyLoss],
    *,
    epsilon: float,
    delta: float,
    settings: int | None = None,
    means: Sequence[float] = _MEANS,
    shape: float = 0.0,
) -> TuningPlan:
    """Return what noise trials need, by their expected number, under one promise for the search.

    Args:
        loss: privacy loss of one trial as a function of its noise multiplier.
        epsilon: promise for the whole search.
        delta: probability delta of it.
        settings: number of settings of a grid, for the probability that one of them is tried.
        means: expected numbers of trials to compare.
        shape: shape of the negative binomial law; 0 costs little, 1 seldom has but one trial.

    **Guarantee**: every option keeps the promise, for trials as `taut.accounting.best_of` has them.

    Raises:
        InfeasibleBudget: if no noise is enough.

    Example:
        >>> import taut
        >>> from taut.adaptive import plan_tuning
        >>> plan = plan_tuning(lambda sigma: 100 * taut.gaussian(sigma).poisson(0.01),
        ...                    epsilon=1.0, delta=1e-6, means=[1, 10])
        >>> one, ten = plan.options
        >>> 1.1 < ten.noise_factor < 1.4
        True
    """
    goal, level = validate.positive(epsilon=epsilon), validate.below_one(delta=delta)
    rows, single = [], None
    for mean in [1.0, *means]:
        trials = Trials.negative_binomial(mean, shape)
        noise = _noise(loss, trials, goal, level)
        single = noise if single is None else single
        rows.append(
            TuningOption(
                trials,
                noise,
                loss(noise).epsilon(level),
                noise / single,
                None if settings is None else _tried(trials, settings),
            )
        )
    return TuningPlan(goal, level, tuple(rows[1:]))


def _noise(
    loss: Callable[[float], PrivacyLoss], trials: Trials, epsilon: float, delta: float
) -> float:
    """Return the least noise of every trial under the promise for all of them."""

    def search(noise: float) -> PrivacyLoss:
        return best_of(loss(noise), trials)

    return calibrate(search, epsilon=epsilon, delta=delta, tolerance=_NOISE_TOLERANCE).value


def _tried(trials: Trials, settings: int) -> float:
    """Return the probability that one of so many settings is drawn at least once."""
    return float(np.clip(trials.failure(1 / validate.positive_integer(settings=settings)), 0, 1))
