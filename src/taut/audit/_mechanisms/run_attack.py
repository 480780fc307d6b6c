"""The best attack on a training run as it is stated, simulated: epsilon from below."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from taut._base import validate
from taut._base.rounding import round_down, round_up
from taut.accounting import Adjacency
from taut.audit._attacks.games.mixed_states import MixedStatesGame
from taut.audit._mechanisms.exact_ratios import epsilon_of_ratios
from taut.audit._mechanisms.games import LogRatios, MechanismGame, trials_of
from taut.noise import RandomSource, SeededForExperiments, default_generator

if TYPE_CHECKING:
    from taut.training import Plan

__all__ = ["RunAttack", "attack_plan", "simulated_epsilon"]

SCHEMA = "taut.run_attack/1"
_PILOT = 0.1  # share of the releases that fixes the stake
_KNOWN = {("add_remove", "poisson"), ("add_remove", "allocation"), ("replace", "fixed_size")}
_NUMBERS = 4_000_000  # normal numbers at once, for the memory's sake


@dataclass(frozen=True)
class RunAttack:
    """Epsilon of a run from both sides: what an attack reaches, and what is certified.

    Attributes:
        epsilon_lower: epsilon at `delta` is at least this, with `confidence`.
        epsilon_upper: certified bound on it.
        delta: delta of both.
        steps: number of steps that were simulated.
        trials: simulated runs on each side.
        confidence: probability that `epsilon_lower` holds.
    """

    epsilon_lower: float
    epsilon_upper: float
    delta: float
    steps: int
    trials: int
    confidence: float

    @property
    def passed(self) -> bool:
        """Whether the attack stays below what is certified."""
        return self.epsilon_lower <= self.epsilon_upper

    def __str__(self) -> str:
        return (
            f"attack >= {round_down(self.epsilon_lower, 3)}, "
            f"certified <= {round_up(self.epsilon_upper, 3)} at delta {self.delta:g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {"schema": SCHEMA, "passed": self.passed, **asdict(self)}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what :meth:`to_json` has written.

        Raises:
            ValueError: for anything else.
        """
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"text must be a JSON object of schema {SCHEMA!r}")
        numbers: dict[str, Any] = {name: data.get(name) for name in cls.__dataclass_fields__}
        for name, value in numbers.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
        return cls(**numbers)


def attack_plan(
    plan: Plan,
    *,
    steps: int | None = None,
    trials: int = 100_000,
    confidence: float = 0.99,
    seed: int | None = None,
) -> RunAttack:
    """Simulate a plan's mechanism on its worst pair of neighbours, and bound epsilon from below.

    Args:
        plan: plan with Poisson batches, batches of a fixed size, random allocation or all examples
            in every step, and independent Gaussian noise, with or without mixing.
        steps: number of steps that were taken, by default all.
        trials: simulated runs on each side.
        confidence: probability that `epsilon_lower` holds.
        seed: seed of the simulation; by default it comes from the secure generator.

    **Guarantee**: `epsilon_lower` is a lower bound on epsilon of the mechanism that the plan
    states, with `confidence`; `epsilon_upper` is certified. It is about the statement: whether code
    carries it out is for :func:`audit_plan` and :func:`refute_plan`.

    Raises:
        ValueError: for plans whose likelihood ratio is not known here.

    Example:
        >>> from taut.audit import attack_plan
        >>> from taut.training import FlatClip, Plan
        >>> plan = Plan(
        ...     examples=100, rate=0.1, steps=20, noise_multiplier=1.0, delta=1e-3,
        ...     clipping=FlatClip(1.0),
        ... )
        >>> found = attack_plan(plan, trials=20_000, seed=0)
        >>> found.passed, found.epsilon_lower > 0.8 * found.epsilon_upper
        (True, True)
    """
    taken = plan.steps if steps is None else validate.positive_integer(steps=steps)
    if taken > plan.steps:
        raise ValueError(f"steps must be at most the plan's {plan.steps}, got steps={steps!r}")
    game = _game(plan, taken)
    found = simulated_epsilon(
        game, delta=plan.delta, trials=trials, confidence=confidence, seed=seed
    )
    certified = game.claimed.epsilon(plan.delta)
    return RunAttack(found, certified, plan.delta, taken, trials, confidence)


def simulated_epsilon(
    game: MechanismGame,
    *,
    delta: float,
    trials: int = 100_000,
    confidence: float = 0.99,
    seed: int | None = None,
) -> float:
    """Return a lower bound on epsilon, from a game whose likelihood ratio is exact.

    Args:
        game: game whose `log_ratios` are exact, of one that is meant to be simulated.
        delta: where epsilon is stated.
        trials: number of releases on each side.
        confidence: probability that the bound holds.
        seed: seed of the simulation; by default it comes from the secure generator.

    **Guarantee**: delta(epsilon) is the mean of (1 - exp(epsilon - L))_+ over releases with the
    record, L their log ratio, and is bounded by betting on it (Waudby-Smith and Ramdas 2024;
    docs/theory/mechanism-audits.md), in each order of the neighbours at half of the level.
    """
    validate.instance(MechanismGame, game=game)
    small = validate.below_one(delta=delta)
    count = trials_of(trials)
    level = validate.probability(confidence=confidence)
    if not 0.5 <= level < 1:
        raise ValueError(f"confidence must be at least 0.5 and below 1, got {confidence!r}")
    source = default_generator() if seed is None else SeededForExperiments(seed=seed)
    found = 0.0
    for with_record in (True, False):
        ratios = game.log_ratios(with_record, count, source)
        ratios = ratios if with_record else -ratios
        pilot = math.ceil(_PILOT * count)
        proven = epsilon_of_ratios(ratios[:pilot], ratios[pilot:], small, (1 - level) / 2)
        found = max(found, proven)
    return found


def _game(plan: Plan, steps: int) -> MechanismGame:
    """Return the game of the worst pair.

    Only one example has a gradient, of the clipping norm. In batches of a fixed size, where another
    example takes its place if it is not drawn, all others and what it is exchanged for have the
    opposite one: the sum moves by twice the norm if it is drawn.
    """
    if plan.mixing is not None:
        return _mixed_game(plan, steps)
    if plan.encoder is not None or (str(plan.adjacency), plan.sampling.name) not in _KNOWN:
        raise ValueError(
            "the likelihood ratio is known for Poisson batches, batches of a fixed size and random "
            f"allocation, with independent noise; got sampling={plan.sampling!r} and "
            f"adjacency {str(plan.adjacency)!r}; audit the code by audit_plan"
        )
    noise = np.array([plan.noise_multiplier_at(step) for step in range(steps)])
    if plan.adjacency is Adjacency.REPLACE:
        noise /= 2
    rates = np.array([plan.sampling_at(step).participation(plan.examples) for step in range(steps)])
    period = plan.sampling.epoch_steps
    loss = plan.loss if steps == plan.steps else plan.loss_at(steps)

    def chunk(with_record: bool, releases: int, source: RandomSource) -> NDArray[np.float64]:
        values = source.standard_normal(releases * steps).reshape(releases, steps)
        if with_record:
            values += _present(rates, period, releases, source) / noise
        logs = values / noise - 1 / (2 * noise**2)
        if period > 1:
            return _once(logs, period)
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp(np.log1p(-rates), np.log(rates) + logs).sum(1))

    return MechanismGame("run", loss, _in_parts(chunk, steps), exact=True)


def _mixed_game(plan: Plan, steps: int) -> MechanismGame:
    """Return the game of states that are mixed, of which one coordinate shows the record."""
    assert plan.mixing is not None
    states = MixedStatesGame.of(plan, {"weight": max(math.ceil(plan.mixing.spread), 2)})

    def chunk(with_record: bool, releases: int, source: RandomSource) -> NDArray[np.float64]:
        moves = states.sigma * source.standard_normal(releases * steps).reshape(releases, steps)
        if with_record:
            rates = np.full(steps, states.rate)
            moves += states.shift * _present(rates, 1, releases, source)
        return states.simulated(moves, source.uniform(releases * steps).reshape(releases, steps))

    loss = plan.loss if steps == plan.steps else plan.loss_at(steps)
    return MechanismGame("run", loss, _in_parts(chunk, steps), exact=True)


def _in_parts(chunk: LogRatios, steps: int) -> LogRatios:
    """Return a simulation that holds no more numbers at once than memory likes."""

    def log_ratios(with_record: bool, releases: int, source: RandomSource) -> NDArray[np.float64]:
        most = max(_NUMBERS // steps, 1)
        parts = [
            chunk(with_record, min(most, releases - first), source)
            for first in range(0, releases, most)
        ]
        return np.concatenate(parts)

    return log_ratios


def _present(
    rates: NDArray[np.float64], period: int, releases: int, source: RandomSource
) -> NDArray[np.float64]:
    """Return in which steps the record takes part, of shape (releases, steps)."""
    steps = len(rates)
    if period == 1:
        return (source.uniform(releases * steps).reshape(releases, steps) < rates).astype(float)
    epochs = math.ceil(steps / period)
    drawn = source.uniform_below(period, releases * epochs).astype(int).reshape(releases, epochs)
    present = drawn.repeat(period, axis=1)[:, :steps] == np.arange(steps) % period
    return np.asarray(present, dtype=np.float64)


def _once(logs: NDArray[np.float64], period: int) -> NDArray[np.float64]:
    """Return the log ratio of epochs in which the record is in one step each, the last in part."""
    total = np.zeros(len(logs))
    for first in range(0, logs.shape[1], period):
        part = logs[:, first : first + period]
        missing = period - part.shape[1]
        if missing:  # the record may have drawn one of these, where it is not seen
            part = np.column_stack([part, np.full(len(part), math.log(missing))])
        total += logsumexp(part, axis=1) - math.log(period)
    return total
