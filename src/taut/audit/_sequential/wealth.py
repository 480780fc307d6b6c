"""Wealth of one who bets against a claim, run by run, with tests chosen by earlier runs alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut.audit._attacks.claim import Claim
from taut.audit._attacks.statistics import Runs, Statistic, candidates
from taut.audit._sequential.region import Bet, Region

__all__ = ["AttackWealth", "Seen", "Test"]

_STYLES = ((0.5, 0.4), (0.5, 1.0), (1e-6, 0.5))
"""Ways to bet, whose evidence is averaged: how many runs of either kind a rate is estimated with
beside those seen, and what share of the evidence is staked. The first prior is that of Krichevsky
and Trofimov (1981); with the last, what never happened is taken for impossible, so that a few runs
can refute an epsilon that is large."""
_CUTS = 24  # thresholds per statistic: more would fit the few runs that chose them
_BOLD = 4  # hits before a test without false alarms is believed to have none
_FEWEST = 2  # runs on a side before the first bet
_OFTEN = 64  # runs, up to which the test is chosen anew after each; later twice in so many steps
_EXPLORE = 8  # runs that every setting gets first, and one of so many later, where it seems idle
_EPSILONS = 25  # on the grid of what is proven about epsilon, up to
_FARTHEST = 2.0  # times the claimed epsilon, and this much beyond


@dataclass(frozen=True)
class Test:
    """A rule that takes a run for one with the canary, and the bet on it.

    Attributes:
        name: what the statistic is called.
        statistic: number that is compared with the threshold.
        sign: direction in which it speaks for the canary.
        threshold: value beyond which a run is taken for one with the canary.
        tpr: the true-positive rate that earlier runs suggest,
        fpr: false-positive rate of the same runs.
        bet: payoffs against the claim.
    """

    name: str
    statistic: Statistic
    sign: float
    threshold: float
    tpr: float
    fpr: float
    bet: Bet

    def takes(self, run: Runs) -> bool:
        """Return whether a run, of shape (1, steps, coordinates), is taken for one with it."""
        return bool(self.sign * float(self.statistic(run)[0]) > self.sign * self.threshold)


class Seen:
    """Runs of one setting so far, and the best test that they suggest."""

    def __init__(
        self, name: str, statistics: Mapping[str, Statistic], region: Region, often: int
    ) -> None:
        self.name = name
        self._often = often
        self.tests: dict[float, Test] = {}
        self._statistics = statistics
        self._region = region
        self._runs: tuple[list[Runs], list[Runs]] = ([], [])

    @property
    def count(self) -> int:
        """How many runs there are."""
        return sum(len(side) for side in self._runs)

    def add(self, run: Runs, with_canary: bool) -> bool:
        """Take a run in; return whether the test was chosen anew."""
        self._runs[with_canary].append(run)
        count = self.count
        is_due = count <= self._often or count % max(count * 2 // self._often, 1) == 0
        if not is_due or min(len(side) for side in self._runs) < _FEWEST:
            return False
        self._choose()
        return True

    @property
    def growth(self) -> float:
        """The largest growth that a test promises, cautiously estimated."""
        cautious = self.tests.get(_STYLES[0][0])
        return 0.0 if cautious is None else cautious.bet.growth

    def change(self, region: Region) -> None:
        """Find tests against another region, from the next run on."""
        self._region = region
        self.tests = {}

    def _choose(self) -> None:
        """Find the test of the fastest growth, for every prior."""
        self.tests = {}
        fastest: dict[float, float] = {}
        without, including = (np.stack(side) for side in self._runs)
        for name, candidate in candidates(without, including, self._statistics).items():
            statistic, (moved, base) = candidate.statistic, candidate.fair
            cuts = _cuts(base, moved)
            for sign in (1.0, -1.0):
                alarms, hits = (_beyond(sign * values, sign * cuts) for values in (base, moved))
                for prior in {prior for prior, _ in _STYLES}:
                    fpr = (alarms + prior) / (len(base) + 2 * prior)
                    tpr = (hits + prior) / (len(moved) + 2 * prior)
                    growths, aims = self._region.growths(tpr, fpr)
                    if prior < 0.5:  # boldness needs more than a run or two that stand out
                        growths[np.minimum(hits, len(base) - alarms) < _BOLD] = 0.0
                    place = int(np.argmax(growths))
                    if growths[place] > fastest.get(prior, 0.0):
                        fastest[prior] = float(growths[place])
                        hit, false = float(tpr[place]), float(fpr[place])
                        bet = self._region.bet_at(hit, false, int(aims[place]))
                        cut = float(cuts[place])
                        self.tests[prior] = Test(name, statistic, sign, cut, hit, false, bet)


class AttackWealth:
    """Evidence against a claim, and for a lower bound on its epsilon.

    Args:
        claim: what is claimed.
        settings: settings by name, each with the statistics that belong to it.
        epsilons: number of values of epsilon that are bet against beside the claim.
        often: number of runs up to which a test is chosen anew after each; later more rarely.

    **Guarantee**: if every run is made with the canary or without by a fair coin, independent of
    all before, and the program keeps the claim whatever came before, the evidence is a
    non-negative supermartingale that begins at one: it ever reaches 1 / level with probability at
    most `level` (Ville 1939). The same holds for the evidence against every epsilon on a grid.
    """

    def __init__(
        self,
        claim: Claim,
        settings: Sequence[tuple[str, Mapping[str, Statistic]]],
        *,
        epsilons: int = _EPSILONS,
        often: int = _OFTEN,
    ) -> None:
        region = Region.of(claim)
        self.settings = [Seen(name, statistics, region, often) for name, statistics in settings]
        self.strongest: tuple[str, Test] | None = None
        self._logs = np.zeros(len(_STYLES))
        top = _FARTHEST * (1 + claim.epsilon)
        self._epsilons = np.linspace(0.0, top, epsilons)
        self._regions = [Region.of_epsilon(float(e), claim.delta) for e in self._epsilons]
        self._epsilon_logs = np.zeros((epsilons, len(_STYLES)))
        self._epsilon_bets: dict[tuple[int, float], list[Bet | None]] = {}

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence against the claim."""
        return _log_mean(self._logs)

    def epsilon_at_least(self, level: float) -> float:
        """Return the largest epsilon below which every one on the grid is refuted."""
        evidence = np.array([_log_mean(logs) for logs in self._epsilon_logs])
        refuted = int(np.argmin(evidence >= -math.log(level)))
        return float(self._epsilons[refuted - 1]) if refuted else 0.0

    def change(self, claim: Claim) -> None:
        """Bet against another claim from the next run on, with the evidence so far."""
        region = Region.of(claim)
        for setting in self.settings:
            setting.change(region)

    def next_setting(self, runs: int) -> int:
        """Return in which setting to make the next run: mostly where evidence grows fastest."""
        count = len(self.settings)
        growths = [setting.growth for setting in self.settings]
        fewest = min(range(count), key=lambda place: self.settings[place].count)
        if self.settings[fewest].count < _EXPLORE or runs % _EXPLORE == 0 or max(growths) <= 0:
            return fewest
        return int(np.argmax(growths))

    def update(self, place: int, run: Runs, with_canary: bool) -> None:
        """Bet on a run of a setting with what earlier runs taught, then learn from it.

        Args:
            place: place of the setting among all.
            run: run of shape (steps, coordinates).
            with_canary: whether the coin put the canary in.
        """
        setting = self.settings[place]
        for style, (prior, stake) in enumerate(_STYLES):
            test = setting.tests.get(prior)
            if test is None:
                continue
            taken = test.takes(run[None])
            self._logs[style] += test.bet.log_payoff(with_canary, taken, stake)
            for against, bet in zip(
                self._epsilon_logs, self._bets(place, prior, test), strict=True
            ):
                if bet is not None:
                    against[style] += bet.log_payoff(with_canary, taken, stake)
            if self._logs[style] >= self._logs.max():
                self.strongest = (setting.name, test)
        if setting.add(run, with_canary):
            for prior, _ in _STYLES:
                self._epsilon_bets.pop((place, prior), None)

    def _bets(self, place: int, prior: float, test: Test) -> list[Bet | None]:
        """Return the bets of a test against every epsilon on the grid."""
        if (place, prior) not in self._epsilon_bets:
            bets = [region.bet(test.tpr, test.fpr) for region in self._regions]
            self._epsilon_bets[place, prior] = bets
        return self._epsilon_bets[place, prior]


def _beyond(values: NDArray[np.float64], cuts: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((values[:, None] > cuts).sum(0), dtype=np.float64)


def _cuts(base: NDArray[np.float64], moved: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return thresholds between values that were seen, spaced by rank."""
    values = np.unique(np.concatenate([base, moved]))
    if len(values) > _CUTS:
        values = values[np.unique(np.linspace(0, len(values) - 1, _CUTS).astype(np.int64))]
    return np.asarray((values[1:] + values[:-1]) / 2) if len(values) > 1 else values


def _log_mean(logs: NDArray[np.float64]) -> float:
    return float(np.logaddexp.reduce(logs) - math.log(len(logs)))
