"""Attacks: a rejection rule chosen on some runs, judged on others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from taut.audit._attacks.statistics import Runs, Statistic, candidates

__all__ = ["Attack", "Evidence", "Score", "Sides", "best_attack", "rate_at_least", "rate_at_most"]

Score: TypeAlias = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""How much bounds on true- and false-positive rates would prove."""

_THRESHOLDS = 400


@dataclass(frozen=True)
class Sides:
    """Runs on both neighbours, in one crafted setting.

    Attributes:
        craft: what the setting is called.
        without: runs on the dataset, of shape (runs, steps, coordinates).
        including: runs on its neighbour, which has the canary.
        statistics: candidates that belong to the setting, such as its likelihood ratio.
    """

    craft: str
    without: Runs
    including: Runs
    statistics: Mapping[str, Statistic]

    def split(self) -> tuple[Sides, Sides]:
        """Return runs to choose an attack with, and runs to judge it with."""
        halves = [
            Sides(self.craft, self.without[part], self.including[part], self.statistics)
            for part in (slice(0, None, 2), slice(1, None, 2))
        ]
        return halves[0], halves[1]


@dataclass(frozen=True)
class Evidence:
    """What an attack achieved on runs that it was not chosen with.

    Attributes:
        craft: the crafted setting.
        statistic: what it looks at.
        reverse: whether it recognises the runs without the canary.
        trials: the runs on each side that judged it.
        hits: how many of one side it recognised,
        false_alarms: number of runs on the other dataset that were taken for them.
        tpr_lower: a lower bound on its true-positive rate,
        fpr_upper: upper bound on its false-positive rate, both of the stated confidence.
    """

    craft: str
    statistic: str
    reverse: bool
    trials: int
    hits: int
    false_alarms: int
    tpr_lower: float
    fpr_upper: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return asdict(self)


@dataclass(frozen=True)
class Attack:
    """Takes runs whose statistic, times `sign`, exceeds `threshold` for those of one side."""

    craft: str
    name: str
    statistic: Statistic
    sign: float
    threshold: float
    reverse: bool

    def judged(self, sides: Sides, failure: float) -> Evidence:
        """Return the evidence of these runs; both bounds hold but with probability `failure`."""
        target, other = _ordered(sides, self.reverse)
        hits, alarms = (
            int(np.sum(self.sign * _values(self.name, self.statistic, runs) > self.threshold))
            for runs in (target, other)
        )
        return Evidence(
            craft=self.craft,
            statistic=self.name,
            reverse=self.reverse,
            trials=min(len(target), len(other)),
            hits=hits,
            false_alarms=alarms,
            tpr_lower=float(rate_at_least(hits, len(target), failure / 2)),
            fpr_upper=float(rate_at_most(alarms, len(other), failure / 2)),
        )


def best_attack(settings: list[Sides], score: Score, failure: float) -> Attack:
    """Return the attack that would prove most if these runs were fresh.

    Rates enter the score by their bounds, not their estimates, so that thresholds which only a
    handful of runs exceed are left alone; and what a statistic learned is tried on other runs.
    """
    best, found = -np.inf, None
    for sides in settings:
        checked = {
            name: partial(_values, name, statistic) for name, statistic in sides.statistics.items()
        }
        offered = candidates(sides.without, sides.including, checked)
        for name, candidate in offered.items():
            for reverse in (False, True):
                fair, taught = (
                    pair[::-1] if reverse else pair for pair in (candidate.fair, candidate.taught)
                )
                for sign in (1.0, -1.0):
                    value = float(_scored(sign * fair[0], sign * fair[1], score, failure)[1].max())
                    if value > best:
                        best = value
                        # The rule is the one that was learned from all runs, and so is its cut.
                        cuts, proven = _scored(sign * taught[0], sign * taught[1], score, failure)
                        cut = float(cuts[int(np.argmax(proven))])
                        found = Attack(sides.craft, name, candidate.statistic, sign, cut, reverse)
    assert found is not None
    return found


def _values(name: str, statistic: Statistic, runs: Runs) -> NDArray[np.float64]:
    values = np.asarray(statistic(runs), dtype=np.float64)
    if values.shape != (len(runs),) or np.isnan(values).any():
        raise ValueError(
            f"statistic {name!r} must return one number for every run, of shape ({len(runs)},) "
            f"and without NaN, got shape {values.shape}"
        )
    return values


def _ordered(sides: Sides, reverse: bool) -> tuple[Runs, Runs]:
    if reverse:
        return sides.without, sides.including
    return sides.including, sides.without


def _scored(
    target: NDArray[np.float64], other: NDArray[np.float64], score: Score, failure: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return thresholds, and what each would prove."""
    values = np.unique(np.concatenate([target, other]))
    if len(values) > _THRESHOLDS:
        # Rare events prove most: thresholds are spaced by rank in both tails as well as evenly.
        tail = np.unique(np.geomspace(1, len(values) - 1, _THRESHOLDS // 2).astype(np.int64))
        even = np.linspace(0, len(values) - 1, _THRESHOLDS // 2).astype(np.int64)
        values = values[np.unique(np.concatenate([even, tail, len(values) - 1 - tail]))]
    # Between two values, so that what repeats exactly is not split by rounding.
    cuts = (values[1:] + values[:-1]) / 2 if len(values) > 1 else values
    hits = len(target) - np.searchsorted(np.sort(target), cuts, side="right")
    alarms = len(other) - np.searchsorted(np.sort(other), cuts, side="right")
    tpr = rate_at_least(hits, len(target), failure / 2)
    fpr = rate_at_most(alarms, len(other), failure / 2)
    return cuts, score(tpr, fpr)


def rate_at_least(hits: ArrayLike, trials: int, failure: float) -> NDArray[np.float64]:
    """Return lower bounds on a probability, each wrong with probability at most `failure`.

    **Guarantee**: exact for independent trials (Clopper and Pearson 1934).
    """
    k = np.asarray(hits, dtype=np.float64)
    bound = betaincinv(np.maximum(k, 1.0), trials - k + 1.0, failure)
    return np.asarray(np.where(k > 0, bound, 0.0))


def rate_at_most(hits: ArrayLike, trials: int, failure: float) -> NDArray[np.float64]:
    """Return upper bounds on a probability, each wrong with probability at most `failure`."""
    return np.asarray(1.0 - rate_at_least(trials - np.asarray(hits), trials, failure))
