"""An attack on many answers above: a public coin says which way the next query moves.

All queries are at one level on one side, so that every answer above belongs to either kind with
probability one half, wherever the noisy threshold is. On the other side one kind has moved up and
the other one down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, expit

from taut._base.arrays import Vector
from taut.accounting import PrivacyLoss
from taut.adaptive._sparse_vector.attained.streams import (
    Streams,
    epsilons,
    of_binomials,
    told_apart,
)
from taut.adaptive._sparse_vector.scalar_noise import log_cumulative, log_tail

__all__ = ["CoinAttack", "best_coin_attack"]

Integers = NDArray[np.int64]

_STRIPS = 600  # of the threshold's noise, of which each counts at its worse end
_REACH = {"gaussian": (-7.0, 7.0), "laplace": (-20.0, 20.0), "exponential": (0.0, 20.0)}
_OF_SUMS = 2.0**-52  # relative error of a sum of logarithms, for each term and each unit of it
_OF_SHARES = 2.0**-48  # relative error of a probability above: counts as often as it is taken
_LEVELS = 25  # that are tried
_COUNTS = 500  # numbers of the first kind that are told apart
_SPREAD = 5.0  # ten deviations of a number of equal coins, for each root of them
_FORGOTTEN = 1e-12  # of the likeliest strip: shares of rarer ones are not looked for
_VANISHING = 1e-290  # of a probability: what is lost where it leaves doubles
_MOST_TOPS = 10**5  # whose binomials are added up


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

        Outcomes are between which of some numbers the answers above of the first kind were, if all
        were used up.
        """
        tops = self.streams.tops
        share, weight = self._strips()
        counts = _told(share, weight, tops)
        # Nested events: at least so many of the first kind, for some numbers, the largest first.
        one = self._at_least(counts, share, weight)
        other = np.cumsum(_of_coins(tops)[::-1])[tops - counts]
        return np.diff(one, prepend=0.0), np.diff(other, prepend=0.0)

    def _strips(self) -> tuple[Vector, Vector]:
        """Return the least share of the first kind and the least mass, for strips of the threshold.

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
        share: Vector = expit(above - log_tail(query.kind, far + self.down / query.scale))
        near = z[1:] / query.scale  # where answers above are rarest
        kinds = (near - self.up / query.scale, near + self.down / query.scale)
        chance = sum(np.exp(log_tail(query.kind, place)) for place in kinds) / 2
        ended = betainc(tops, self.queries - tops + 1.0, np.minimum(chance, 1.0))
        return share, np.maximum(mass, 0.0) * ended

    def _at_least(self, counts: Integers, share: Vector, weight: Vector) -> Vector:
        """Return lower bounds on P(so many of the first kind, all used up)."""
        tops = self.streams.tops
        tails = np.ones((counts.size, share.size))
        some = counts > 0
        tails[some] = betainc(counts[some, None], tops - counts[some, None] + 1.0, share)
        found: Vector = tails @ weight
        doubt = of_binomials(self.queries) + of_binomials(tops) + 2 * tops * _OF_SHARES
        return np.maximum.accumulate(found) * math.exp(-2 * doubt)  # twice: sums, and this product


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


def _told(share: Vector, weight: Vector, tops: int) -> Integers:
    """Return which numbers of the first kind are told apart, the largest first; any are sound."""
    likely = np.r_[0.5, share[weight > _FORGOTTEN * weight.max()]]
    room = _SPREAD * math.sqrt(tops)
    low = max(tops * float(likely.min()) - room, 0.0)
    high = min(tops * float(likely.max()) + room, float(tops))
    numbers = np.rint(np.linspace(low, high, _COUNTS)).astype(np.int64)
    return np.unique(numbers)[::-1]


def _of_coins(n: int) -> Vector:
    """Return upper bounds on the probabilities of all numbers of heads, with room for their sum."""
    j = np.arange(float(n))
    logs = np.r_[0.0, np.cumsum(np.log((n - j) / (j + 1)))]
    doubt = _OF_SUMS * (n + 1) * (1 + n * math.log(2.0))
    found: Vector = np.exp(logs - n * math.log(2.0) + doubt) + _VANISHING
    return found
