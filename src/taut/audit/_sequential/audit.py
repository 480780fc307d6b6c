"""The sequential audit: one run after the other, until a claim is refuted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss
from taut.audit._attacks.audit import MakeRun
from taut.audit._attacks.claim import Claim
from taut.audit._attacks.crafted import Craft
from taut.audit._attacks.loop_game import Loop, LoopGame
from taut.audit._attacks.shipped_engine import engine_loop
from taut.audit._attacks.statistics import Runs, Statistic
from taut.audit._sequential.noise_evidence import RepetitionEvidence, SizeEvidence
from taut.audit._sequential.result import RunningCheck, SequentialResult
from taut.audit._sequential.wealth import AttackWealth
from taut.audit._verdict import DRAWS
from taut.noise import SeededForExperiments, default_generator

if TYPE_CHECKING:
    from taut.training import Plan

__all__ = ["refute_loop", "refute_plan", "refute_training"]

_VIOLATIONS, _EPSILON, _CHECKS = 0.5, 0.25, 0.25
"""Shares of the level: evidence against the claim, the bound on epsilon, noise and batches."""

_Play = Callable[[int, bool, int], Runs]
"""Makes a run of a setting, with the canary or without, from a seed."""


def refute_training(
    make_run: MakeRun,
    *,
    claimed: PrivacyLoss,
    delta: float,
    level: float = 1e-2,
    most_runs: int = 1_000,
    seed: int | None = None,
    statistics: Mapping[str, Statistic] | None = None,
    noise_scale: float | None = None,
) -> SequentialResult:
    """Train again and again, with the canary or without by a coin, until a claim is refuted.

    Args:
        make_run: function as for :func:`audit_training`: called with whether the canary is in the
            data and with a seed; returns what is released in all steps.
        claimed: the loss that the loop is said to have.
        delta: where `epsilon_lower` is stated.
        level: the probability that a loop which keeps its claim is ever refuted.
        most_runs: number of runs after which it gives up.
        seed: seed of coins and of the seeds that runs are given; by default all are drawn securely.
        statistics: further numbers to tell runs apart by.
        noise_scale: claimed standard deviation of the noise on the coordinates after the first,
            which then is checked as well.

    **Guarantee**: that of :class:`SequentialResult`. The method bets on tests that earlier runs
    suggest; see docs/theory/sequential.md.

    Raises:
        ValueError: for runs of different shapes, or values that are not finite.

    Example:
        >>> import numpy as np
        >>> import taut
        >>> from taut.audit import refute_training
        >>> def run(with_canary, seed):
        ...     noise = np.random.default_rng(seed).normal(size=4)  # of half the claimed deviation
        ...     return 2.0 * with_canary + noise
        >>> claimed = 4 * taut.gaussian(sigma=1.0)
        >>> result = refute_training(run, claimed=claimed, delta=1e-3, seed=1)
        >>> result.passed, result.runs < 200
        (False, True)
    """
    claim = Claim(claimed, delta)
    scale = None if noise_scale is None else validate.positive(noise_scale=noise_scale)
    evidence = _Evidence(claim, [("given", dict(statistics or {}))], scale)

    def play(_: int, with_canary: bool, run_seed: int) -> Runs:
        return _as_run(make_run(with_canary, run_seed))

    return evidence.gathered(play, claimed.adjacency, level, most_runs, seed)


def refute_loop(
    loop: Loop,
    plan: Plan,
    *,
    level: float = 1e-2,
    most_runs: int = 1_000,
    seed: int | None = None,
    dimension: int = 4,
    crafts: Sequence[Craft] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> SequentialResult:
    """Run a training loop again and again, until it is shown not to carry out a plan.

    Args:
        loop: training loop, as for :func:`audit_loop`.
        plan: what is claimed, likewise.
        level: the probability that a loop which keeps its claim is ever refuted.
        most_runs: number of runs after which it gives up, in all crafted pairs together.
        seed: seed of coins and of the seeds that runs are given; by default all are drawn securely.
        dimension: dimension of gradients, at least 2.
        crafts: pairs of neighbours, by default both of :func:`crafted`.
        sizes: number of weights of every parameter by its name, for a clipping by groups of
            parameters; their sum takes the place of `dimension`.

    **Guarantee**: that of :class:`SequentialResult`, for the adjacency of the plan's sampling and
    an attacker who sees every step.

    Raises:
        ValueError: if the loop returns other shapes than the plan says, or crafts do not fit.
        UnsoundConfiguration: as :func:`audit_loop`.

    Example:
        >>> import numpy as np
        >>> from taut.audit import refute_loop
        >>> from taut.training import FlatClip, Plan
        >>> plan = Plan(
        ...     examples=4, rate=0.5, steps=4, noise_multiplier=1.0, delta=1e-3,
        ...     clipping=FlatClip(1.0),
        ... )
        >>> def loop(gradients, seed):
        ...     draw = np.random.default_rng(seed)
        ...     kept = draw.normal(size=gradients.shape[1])  # the same in all steps
        ...     batches = draw.random((plan.steps, len(gradients))) < plan.rate
        ...     return (batches @ np.clip(gradients, -1.0, 1.0) + kept) / plan.batch_size
        >>> result = refute_loop(loop, plan, seed=0)
        >>> result.passed, result.runs < 100
        (False, True)
    """
    game = LoopGame(plan, dimension, crafts, sizes)
    settings = [(craft.name, game.statistics(craft)) for craft in game.crafts]
    evidence = _Evidence(game.claim, settings, 1.0, game)

    def play(place: int, with_canary: bool, run_seed: int) -> Runs:
        return game.run(loop, game.crafts[place], with_canary, run_seed)

    return evidence.gathered(play, game.adjacency, level, most_runs, seed)


def refute_plan(
    plan: Plan,
    *,
    level: float = 1e-2,
    most_runs: int = 400,
    seed: int | None = None,
    engine: Literal["trainer", "gradient"] = "gradient",
    max_physical_batch_size: int | None = None,
    dimension: int = 4,
    sizes: Mapping[str, int] | None = None,
) -> SequentialResult:
    """Carry out a plan again and again with the shipped engine, until its claim is refuted.

    Args:
        plan: a small one shows most, and quickly; see :func:`audit_loop`.
        level: the probability that an engine which keeps its claim is ever refuted.
        most_runs: number of runs after which it gives up.
        seed: seed of all runs; by default batches and noise come from the secure generator.
        engine: "gradient" or "trainer", as for :func:`audit_plan`.
        max_physical_batch_size: larger batches are computed in parts.
        dimension: the number of weights.
        sizes: number of weights of every parameter by its name, for a clipping by groups of
            parameters; their sum takes the place of `dimension`.

    **Guarantee**: that of :class:`SequentialResult`.

    Example:
        >>> from taut.audit import refute_plan
        >>> from taut.training import FlatClip, Plan
        >>> plan = Plan(
        ...     examples=3, rate=0.5, steps=2, noise_multiplier=1.0, delta=1e-3,
        ...     clipping=FlatClip(1.0),
        ... )
        >>> refute_plan(plan, most_runs=40, seed=0).passed
        True
    """
    loop = engine_loop(plan, engine, sizes or dimension, max_physical_batch_size, seed is not None)
    return refute_loop(
        loop,
        plan,
        level=level,
        most_runs=most_runs,
        seed=seed,
        dimension=dimension,
        sizes=sizes,
    )


class _Evidence:
    """All that is gathered against a claim: attacks, noise, and batches where these are seen."""

    def __init__(
        self,
        claim: Claim,
        settings: Sequence[tuple[str, Mapping[str, Statistic]]],
        noise_scale: float | None,
        game: LoopGame | None = None,
    ) -> None:
        self._claim = claim
        self._wealth = AttackWealth(claim, settings)
        self._scale = noise_scale
        self._game = game
        self._variance, self._between_steps = (
            SizeEvidence("variance"),
            SizeEvidence("between steps"),
        )
        self._between_runs, self._draws = RepetitionEvidence(), SizeEvidence(DRAWS)
        self._shape: tuple[int, ...] | None = None

    @property
    def _checks(self) -> list[SizeEvidence | RepetitionEvidence]:
        if self._scale is None:
            return []
        found: list[SizeEvidence | RepetitionEvidence] = [self._variance, self._between_steps]
        found.append(self._between_runs)
        if self._game is not None and self._game.draws_seen_in is not None:
            found.append(self._draws)
        return found

    def gathered(
        self, play: _Play, adjacency: Adjacency, level: float, most_runs: int, seed: int | None
    ) -> SequentialResult:
        """Make runs until something is refuted, and say what was found."""
        chance = validate.probability(level=level)
        if not 0 < chance <= 0.5:
            raise ValueError(
                f"level must be above 0 and at most 0.5, got level={level!r}; a usual choice is "
                "0.01"
            )
        most = validate.positive_integer(most_runs=most_runs)
        source = default_generator() if seed is None else SeededForExperiments(seed=seed)
        for runs in range(1, most + 1):
            place = self._wealth.next_setting(runs)
            word = int(source.integers_u64(1)[0])
            with_canary = bool(word & 1)
            run = play(place, with_canary, word >> 8)
            self._take(place, run, with_canary)
            result = self._result(adjacency, chance, runs, most)
            if not result.passed:
                break
        return result

    def _take(self, place: int, run: Runs, with_canary: bool) -> None:
        if self._shape not in (None, run.shape):
            raise ValueError(
                f"runs must be arrays of one shape, got {run.shape} after {self._shape}; release "
                "as much with the canary as without"
            )
        self._shape = run.shape
        self._wealth.update(place, run, with_canary)
        if self._scale is None:
            return
        silent = run[:, 1:] / self._scale
        if not silent.size:
            raise ValueError(
                "noise_scale is about the coordinates after the first, and runs have one only; "
                "release further coordinates, or leave noise_scale out"
            )
        self._variance.update(silent)
        self._between_steps.update(silent.sum(0) / math.sqrt(len(silent)))
        self._between_runs.update(silent)
        game = self._game
        if game is not None and with_canary and game.crafts[place].name == game.draws_seen_in:
            self._draws.update(game.draws(run[None]))

    def _result(self, adjacency: Adjacency, level: float, runs: int, most: int) -> SequentialResult:
        checks = self._checks
        strongest = self._wealth.strongest
        return SequentialResult(
            epsilon_lower=self._wealth.epsilon_at_least(_EPSILON * level),
            claimed_epsilon=self._claim.epsilon,
            delta=self._claim.delta,
            adjacency=adjacency,
            level=level,
            runs=runs,
            most_runs=most,
            log_evidence=self._wealth.log_evidence,
            needed=-math.log(_VIOLATIONS * level),
            craft=None if strongest is None else strongest[0],
            statistic=None if strongest is None else strongest[1].name,
            checks=tuple(RunningCheck(c.name, c.ratio, c.log_evidence) for c in checks),
            check_needed=-math.log(_CHECKS * level / max(len(checks), 1)),
        )


def _as_run(released: object) -> NDArray[np.float64]:
    run = np.asarray(released, dtype=np.float64)
    run = run[:, None] if run.ndim == 1 else run
    if run.ndim != 2 or not run.size:
        raise ValueError(
            f"make_run: a run must be of shape (steps,) or (steps, coordinates), got {run.shape}"
        )
    if not np.isfinite(run).all():
        raise ValueError(
            "make_run: runs hold NaN or infinite values; a release that is not finite needs no "
            "audit to be recognised"
        )
    return run
