"""An attack on many answers above: a public coin says which way the next query moves.

All queries are at one level on one side, so that every answer above belongs to either kind with
probability one half, wherever the noisy threshold is. On the other side one kind has moved up and
the other one down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, expit

from taut._base.arrays import Vector
from taut.accounting import PrivacyLoss
from taut.adaptive._sparse_vector.attained.streams import Streams, epsilons, told_apart
from taut.adaptive._sparse_vector.scalar_noise import log_cumulative, log_tail

__all__ = ["CoinAttack", "best_coin_attack"]

_STRIPS = 600  # of the threshold's noise, of which each counts at its worse end
_REACH = {"gaussian": (-7.0, 7.0), "laplace": (-20.0, 20.0), "exponential": (0.0, 20.0)}
_OF_BINOMIALS = 1e-10  # relative error of SciPy's betainc, of which it has thirteen digits
_LEVELS = 25  # that are tried
_MOST_TOPS = 10**5  # counts that are told apart


@dataclass(frozen=True)
class CoinAttack:
    """Queries of two kinds, mixed by a public coin.

    Attributes:
        streams: what is attacked.
        queries: number of questions.
        level: value of all queries on one side.
        up: height by which the first kind exceeds itself on the other side.
        down: height by which the second kind falls on the other side.
    """

    streams: Streams
    queries: int
    level: float
    up: float
    down: float

    @property
    def loss(self) -> PrivacyLoss:
        """A loss that the answers have at least, from one side to the other."""
        return told_apart(*self.masses())

    def masses(self) -> tuple[Vector, Vector]:
        """Return lower and upper bounds on probabilities of outcomes, of the largest ratio first.

        Outcomes are how many answers above were of the first kind, if all were used up.
        """
        tops = self.streams.tops
        counts = np.arange(tops, -1, -1.0)
        halves = np.exp(_log_binomials(tops) - tops * math.log(2.0)) * (1 + _OF_BINOMIALS)
        return np.diff(np.r_[0.0, self._at_least(counts)]), halves

    def _at_least(self, counts: Vector) -> Vector:
        """Return lower bounds on P(so many of the first kind, all used up).

        The share of the first kind rises with the threshold, as tails are log-concave; how likely
        it is that all are used up falls.
        """
        threshold, query = self.streams.threshold, self.streams.query
        tops, grid = self.streams.tops, self.streams.grid
        low, high = _REACH[threshold.kind]
        x = np.linspace(low, high, _STRIPS + 1)
        # Noise on the grid looks like an ideal threshold that is up to a step lower.
        z = x * threshold.scale - self.level
        mass = np.diff(np.exp(log_cumulative(threshold.kind, x))) - 2.0**-50
        far = (z[:-1] - grid) / query.scale  # where the share is least
        above = log_tail(query.kind, far - self.up / query.scale)
        share = expit(above - log_tail(query.kind, far + self.down / query.scale))
        near = z[1:] / query.scale  # where answers above are rarest
        kinds = (near - self.up / query.scale, near + self.down / query.scale)
        chance = sum(np.exp(log_tail(query.kind, place)) for place in kinds) / 2
        ended = betainc(tops, self.queries - tops + 1.0, np.minimum(chance, 1.0))
        weight = np.maximum(mass, 0.0) * ended * (1 - _OF_BINOMIALS)
        tails = np.ones((counts.size, share.size))
        some = counts > 0
        tails[some] = betainc(counts[some, None], tops - counts[some, None] + 1.0, share)
        found: Vector = tails @ weight
        return np.maximum.accumulate(found) * (1 - _OF_BINOMIALS)


def best_coin_attack(
    streams: Streams, queries: int, moves: tuple[float, float], least_level: float, delta: float
) -> CoinAttack | None:
    """Return the attack at the best of some levels, None if there are too many answers above."""
    if streams.tops > _MOST_TOPS:
        return None
    unit = math.hypot(streams.threshold.deviation, streams.query.deviation)
    best, most = None, -1.0
    for level in np.linspace(-6.0, 2.0, _LEVELS):
        steps = round(level * unit / streams.grid) * streams.grid
        attack = CoinAttack(streams, queries, max(steps, least_level + moves[1]), *moves)
        p, q = attack.masses()
        found = float(epsilons(p, q, delta))
        if found > most:
            best, most = attack, found
    return best


def _log_binomials(n: int) -> Vector:
    j = np.arange(float(n))
    logs: Vector = np.r_[0.0, np.cumsum(np.log((n - j) / (j + 1)))]
    return logs
