"""The audit of a mechanism: many releases on two neighbours, seen through likelihood ratios."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut.audit._attacks.attack import Evidence, rate_at_least, rate_at_most
from taut.audit._attacks.claim import Claim, epsilon_at_least
from taut.audit._attacks.result import AuditResult
from taut.audit._mechanisms.exact_ratios import epsilon_of_ratios
from taut.audit._mechanisms.games import MechanismGame, trials_of
from taut.noise import RandomSource, SeededForExperiments, default_generator

__all__ = ["audit_mechanism"]

_PILOT = 0.1  # share of all releases that choose the threshold
_CHUNK = 100_000  # releases at once, for the memory's sake
_CUTS = 400  # thresholds that are tried
_DIGITS = 9  # of log ratios: ratios that are equal must not differ by what rounding leaves


def audit_mechanism(
    game: MechanismGame,
    *,
    delta: float,
    trials: int = 1_000_000,
    confidence: float = 0.99,
    seed: int | None = None,
) -> AuditResult:
    """Release again and again on two neighbours, and bound epsilon from below.

    Args:
        game: mechanism and neighbours, such as `gaussian_game(1.0)`.
        delta: where epsilon is stated.
        trials: number of releases on each side.
        confidence: the probability that a mechanism which keeps its claim passes.
        seed: seed of all releases; by default they come from the secure generator.

    **Guarantee**: that of :class:`AuditResult`. A tenth of the releases chooses threshold and order
    of the neighbours, the others judge them (Clopper and Pearson 1934). Where the game is exact,
    half of what may fail goes to a bound on the mean that delta is of the ratio, which proves more
    (docs/theory/mechanism-audits.md). Log ratios are rounded to
    nine digits: what low bits of floating-point noise tell beyond is not looked at here (Mironov
    2012); `NoiseMechanism.release` leaves none.

    Raises:
        ValueError: for fewer than a thousand trials, more than memory holds, or ratios that are
            NaN.

    Example:
        >>> from taut.audit import audit_mechanism, laplace_game
        >>> result = audit_mechanism(laplace_game(1.0), delta=0.0, trials=50_000, seed=0)
        >>> result.passed, result.epsilon_lower > 0.95 * result.claimed_epsilon
        (True, True)
    """
    validate.instance(MechanismGame, game=game)
    claim = Claim(game.claimed, delta)
    count = trials_of(trials)
    if count < 1_000:
        raise ValueError(f"trials must be at least 1000 on each side, got trials={trials!r}")
    level = validate.probability(confidence=confidence)
    if not 0.5 <= level < 1:
        raise ValueError(f"confidence must be at least 0.5 and below 1, got {confidence!r}")
    source = default_generator() if seed is None else SeededForExperiments(seed=seed)
    pilot = round(_PILOT * count)
    chosen = [_seen(game, side, pilot, source) for side in (False, True)]
    judging = [_seen(game, side, count - pilot, source) for side in (False, True)]
    failure = 1 - level
    cut, reverse = _threshold(chosen[0], chosen[1], claim.delta, count - pilot, failure)
    counting = failure / 2 if game.exact else failure
    evidence = _judged(judging, cut, reverse, counting, game.name)
    found = float(epsilon_at_least(evidence.tpr_lower, evidence.fpr_upper, claim.delta))
    if game.exact:
        for side, sign in enumerate((-1.0, 1.0)):
            pilot_ratios, ratios = sign * chosen[side], sign * judging[side]
            proven = epsilon_of_ratios(pilot_ratios, ratios, claim.delta, failure / 4)
            found = max(found, proven)
    return AuditResult(
        epsilon_lower=found,
        claimed_epsilon=claim.epsilon,
        delta=claim.delta,
        adjacency=game.claimed.adjacency,
        confidence=level,
        trials=count,
        evidence=evidence,
        strongest=evidence,
        allowed_tpr=float(claim.allowed(evidence.fpr_upper)),
        noise_checks=(),
        noise_failure=0.0,
    )


def _seen(
    game: MechanismGame, with_record: bool, count: int, source: RandomSource
) -> NDArray[np.float64]:
    parts = [
        game.log_ratios(with_record, min(_CHUNK, count - first), source)
        for first in range(0, count, _CHUNK)
    ]
    values = np.asarray(np.round(np.concatenate(parts), _DIGITS), dtype=np.float64)
    if values.shape != (count,) or np.isnan(values).any():
        raise ValueError(
            f"log_ratios must return one number for every release, of shape ({count},) and without "
            f"NaN, got shape {values.shape}"
        )
    return values


def _threshold(
    without: NDArray[np.float64],
    including: NDArray[np.float64],
    delta: float,
    judges: int,
    failure: float,
) -> tuple[float, bool]:
    """Return the threshold, and whether to look below it, that would prove most with the judges."""
    values = np.unique(np.concatenate([without, including]))
    ranks = np.unique(np.linspace(0, len(values) - 1, _CUTS).astype(np.int64))
    tails = np.unique(np.geomspace(1, len(values), _CUTS).astype(np.int64)) - 1
    places = np.unique(np.concatenate([ranks, tails, len(values) - 1 - tails]))
    kept = values[places]
    # Between two values, so that what repeats exactly is not split by rounding.
    cuts = (kept[1:] + kept[:-1]) / 2 if len(kept) > 1 else kept
    best = (-np.inf, float(cuts[0]), False)
    for reverse in (False, True):
        target, other = (without, including) if reverse else (including, without)
        hits = _share(target, cuts, reverse) * judges
        alarms = _share(other, cuts, reverse) * judges
        proven = epsilon_at_least(
            rate_at_least(hits, judges, failure / 2),
            rate_at_most(alarms, judges, failure / 2),
            delta,
        )
        place = int(np.argmax(proven))
        best = max(best, (float(proven[place]), float(cuts[place]), reverse))
    return best[1], best[2]


def _share(
    values: NDArray[np.float64], cuts: NDArray[np.float64], below: bool
) -> NDArray[np.float64]:
    under = np.searchsorted(np.sort(values), cuts, side="right") / len(values)
    return np.asarray(under if below else 1 - under)


def _judged(
    sides: list[NDArray[np.float64]], cut: float, reverse: bool, failure: float, name: str
) -> Evidence:
    target, other = (sides[0], sides[1]) if reverse else (sides[1], sides[0])
    hits, alarms = (
        int(np.sum(values <= cut) if reverse else np.sum(values > cut))
        for values in (target, other)
    )
    return Evidence(
        craft=name,
        statistic="likelihood ratio",
        reverse=reverse,
        trials=len(target),
        hits=hits,
        false_alarms=alarms,
        tpr_lower=float(rate_at_least(hits, len(target), failure / 2)),
        fpr_upper=float(rate_at_most(alarms, len(other), failure / 2)),
    )
