"""The audit: many runs on two neighbours against one claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut._base.arrays import real_numbers
from taut.accounting import Adjacency, PrivacyLoss
from taut.audit._attacks.attack import Sides, best_attack
from taut.audit._attacks.claim import Claim, epsilon_at_least
from taut.audit._attacks.noise_checks import NoiseCheck, noise_checks
from taut.audit._attacks.result import AuditResult
from taut.audit._attacks.statistics import Runs, Statistic
from taut.noise import SeededForExperiments, default_generator

__all__ = ["MakeRun", "audit_observations", "audit_training", "collect", "enough", "judge", "seeds"]

MakeRun: TypeAlias = Callable[[bool, int], ArrayLike]
"""Trains once, with the canary or without, and returns all that an attacker sees."""

_LARGEST_SEEN = 1e100  # of what runs release: sums of its squares are doubles
_FEWEST = 40  # runs on a side: with fewer not even noise-free releases refute a small epsilon


def audit_training(
    make_run: MakeRun,
    *,
    claimed: PrivacyLoss,
    delta: float,
    trials: int,
    confidence: float = 0.99,
    seed: int | None = None,
    statistics: Mapping[str, Statistic] | None = None,
    noise_scale: float | None = None,
) -> AuditResult:
    """Train many times on two neighbours, and bound epsilon from below by telling them apart.

    Args:
        make_run: called with whether the canary is in the data and with a seed; returns what is
            released in all steps, of shape (steps,) or (steps, coordinates), the coordinate that
            the canary moves first. Runs must differ in nothing but the canary and randomness.
        claimed: the loss that the loop is said to have.
        delta: where `epsilon_lower` is stated.
        trials: runs on each side; epsilon beyond about log(trials / 15) cannot be shown.
        confidence: the probability that a loop which keeps its claim passes.
        seed: seed of the seeds that runs are given; by default they are drawn securely.
        statistics: further numbers to tell runs apart by, such as the exact likelihood ratio, as
            functions of an array of shape (runs, steps, coordinates).
        noise_scale: claimed standard deviation of the noise; if given, all coordinates but the
            first are claimed to hold normal noise of this standard deviation and nothing else,
            which is checked as well.

    **Guarantee**: that of :class:`AuditResult`. Half of the runs choose statistic and threshold,
    the other half judge them (Clopper and Pearson 1934), so that no choice is too clever to be
    valid. The method is that of Jagielski et al. (2020) and Nasr et al. (2021, 2023).

    Raises:
        ValueError: for runs of different shapes, values that are not finite, or too few trials.

    Example:
        >>> import numpy as np
        >>> import taut
        >>> from taut.audit import audit_training
        >>> def run(with_canary, seed):
        ...     noise = np.random.default_rng(seed).normal(size=4)  # of half the claimed deviation
        ...     return 2.0 * with_canary + noise
        >>> claimed = 4 * taut.gaussian(sigma=1.0)
        >>> result = audit_training(run, claimed=claimed, delta=0.5, trials=400, seed=1)
        >>> result.passed, result.epsilon_lower > result.claimed_epsilon
        (False, True)
    """
    claim = Claim(claimed, delta)
    without, including = collect(make_run, seeds(2 * enough(trials), seed))
    return _audit_sides(without, including, claim, claimed, confidence, statistics, noise_scale)


def audit_observations(
    without: ArrayLike,
    including: ArrayLike,
    *,
    claimed: PrivacyLoss,
    delta: float,
    confidence: float = 0.99,
    statistics: Mapping[str, Statistic] | None = None,
    noise_scale: float | None = None,
) -> AuditResult:
    """Audit runs that were made elsewhere, such as many at once.

    Args:
        without: what runs without the canary released, of shape (runs, steps) or (runs, steps,
            coordinates); runs must be independent of each other.
        including: the same with the canary.
        claimed: claimed loss, as in :func:`audit_training`, and so are the others.
        delta: where `epsilon_lower` is stated.
        confidence: the probability that a loop which keeps its claim passes.
        statistics: further numbers to tell runs apart by.
        noise_scale: standard deviation of the noise on the coordinates after the first.

    **Guarantee**: that of :class:`AuditResult`.

    Example:
        >>> import numpy as np
        >>> import taut
        >>> from taut.audit import audit_observations
        >>> draw = np.random.default_rng(0)
        >>> result = audit_observations(
        ...     draw.normal(size=(2_000, 1)), 1.0 + draw.normal(size=(2_000, 1)),
        ...     claimed=taut.gaussian(sigma=1.0), delta=1e-5,
        ... )
        >>> result.passed, 0 < result.epsilon_lower < result.claimed_epsilon
        (True, True)
    """
    claim = Claim(claimed, delta)
    base, moved = _as_runs(without, "without"), _as_runs(including, "including")
    enough(min(len(base), len(moved)))
    return _audit_sides(base, moved, claim, claimed, confidence, statistics, noise_scale)


def judge(
    settings: Sequence[Sides],
    noise: Runs | None,
    claim: Claim,
    adjacency: Adjacency,
    confidence: float,
    draws: Sequence[NoiseCheck] = (),
) -> AuditResult:
    """Choose attacks on one half of all runs, and judge them and the noise on the rest."""
    level = _confidence(confidence)
    failure = (1 - level) / (2 if noise is None else 3)
    parts = [sides.split() for sides in settings]
    choosing, judging = [first for first, _ in parts], {sides.craft: sides for _, sides in parts}

    def proven(tpr: NDArray[np.float64], fpr: NDArray[np.float64]) -> NDArray[np.float64]:
        return epsilon_at_least(tpr, fpr, claim.delta)

    def excess(tpr: NDArray[np.float64], fpr: NDArray[np.float64]) -> NDArray[np.float64]:
        return tpr - claim.allowed(fpr)

    attacks = [best_attack(choosing, score, failure) for score in (proven, excess)]
    evidence, strongest = (attack.judged(judging[attack.craft], failure) for attack in attacks)
    checks = [] if noise is None else [*noise_checks(noise), *draws]
    return AuditResult(
        epsilon_lower=float(proven(*_rates(evidence.tpr_lower, evidence.fpr_upper))),
        claimed_epsilon=claim.epsilon,
        delta=claim.delta,
        adjacency=adjacency,
        confidence=level,
        trials=min(len(runs) for s in settings for runs in (s.without, s.including)),
        evidence=evidence,
        strongest=strongest,
        allowed_tpr=float(claim.allowed(strongest.fpr_upper)),
        noise_checks=tuple(checks),
        noise_failure=failure / len(checks) if checks else 0.0,
    )


def collect(make_run: MakeRun, run_seeds: Sequence[int]) -> tuple[Runs, Runs]:
    """Return runs without the canary and runs with it, made in turns."""
    found: tuple[list[NDArray[np.float64]], ...] = ([], [])
    for place, run_seed in enumerate(run_seeds):
        with_canary = place % 2 == 1
        run = _numbers(make_run(with_canary, run_seed), "make_run")
        first = found[0][0] if found[0] else run
        if run.shape != first.shape:
            raise ValueError(
                f"make_run must return arrays of one shape, got {run.shape} after "
                f"{first.shape}; release as much with the canary as without"
            )
        found[with_canary].append(run)
    return _as_runs(found[0], "make_run"), _as_runs(found[1], "make_run")


def seeds(count: int, seed: int | None) -> list[int]:
    """Return distinct seeds for runs, from a seed or drawn securely."""
    source = default_generator() if seed is None else SeededForExperiments(seed=seed)
    return [int(word) >> 8 for word in source.integers_u64(count)]


def _audit_sides(
    without: Runs,
    including: Runs,
    claim: Claim,
    claimed: PrivacyLoss,
    confidence: float,
    statistics: Mapping[str, Statistic] | None,
    noise_scale: float | None,
) -> AuditResult:
    if without.shape[1:] != including.shape[1:]:
        raise ValueError(
            f"runs must have one shape, got {without.shape[1:]} without the canary and "
            f"{including.shape[1:]} with it"
        )
    noise = None
    if noise_scale is not None:
        scale = validate.positive(noise_scale=noise_scale)
        noise = np.concatenate([without, including])[:, :, 1:] / scale
        if not noise.size:
            raise ValueError(
                "noise_scale is about the coordinates after the first, and runs have one only; "
                "release further coordinates, or leave noise_scale out"
            )
    sides = Sides("given", without, including, dict(statistics or {}))
    return judge([sides], noise, claim, claimed.adjacency, confidence)


def _as_runs(array: ArrayLike, name: str) -> Runs:
    runs = _numbers(array, name)
    if runs.ndim == 2:
        runs = runs[:, :, None]
    if runs.ndim != 3 or 0 in runs.shape:
        raise ValueError(
            f"{name}: a run must be of shape (steps,) or (steps, coordinates), got {runs.shape[1:]}"
        )
    if not np.isfinite(runs).all():
        raise ValueError(
            f"{name}: runs hold NaN or infinite values; a release that is not finite needs no "
            "audit to be recognised"
        )
    if np.abs(runs).max() > _LARGEST_SEEN:
        raise ValueError(
            f"{name}: runs hold numbers beyond 1e100, whose squares and products overflow; give "
            "them in larger units"
        )
    return runs


def _numbers(array: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return numbers, and bits as zeros and ones: randomised answers are audited too."""
    is_bits = isinstance(array, np.ndarray) and array.dtype == np.bool_
    return real_numbers(array.astype(float) if is_bits else array, name)  # type: ignore[union-attr]


def enough(trials: int) -> int:
    """Return the number of runs on a side, or say that there are too few."""
    count = validate.positive_integer(trials=trials)
    if count < _FEWEST:
        raise ValueError(f"trials must be at least {_FEWEST} on each side, got trials={trials!r}")
    return count


def _confidence(confidence: float) -> float:
    level = validate.probability(confidence=confidence)
    if not 0.5 <= level < 1:
        raise ValueError(
            f"confidence must be at least 0.5 and below 1, got confidence={confidence!r}; "
            "a usual choice is 0.99"
        )
    return level


def _rates(tpr: float, fpr: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.asarray(tpr), np.asarray(fpr)
