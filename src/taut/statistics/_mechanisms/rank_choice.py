"""One draw of the exponential mechanism for a rank: exact, in one word of random bits."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from taut.accounting import Adjacency, PrivacyLoss
from taut.noise import LInfBall, RandomSource
from taut.noise.recording import Release, released
from taut.statistics._mechanisms.rank_weights import RankWeights
from taut.statistics._mechanisms.sorted_points import Inside

__all__ = ["RankChoice"]

_WATCHED = 33  # places at which a replay compares ranks


@dataclass(frozen=True)
class RankChoice:
    """A whole number, public bounds on it, of which a given share of all points lies below.

    A candidate c in [low, high] weighs exp(-rate u) with u = |b r - a n| for the share a/b, where
    r of the n points are below c.

    Attributes:
        share: the wanted share, between 0 and 1.
        rate: how fast weights fall with u.
        change: largest change of r - share n by one record, which replays compare with.
        adjacency: neighbouring relation.
        loss: what a replay adds up.
    """

    share: Fraction
    rate: Fraction
    change: float
    adjacency: Adjacency
    loss: PrivacyLoss

    def draw(self, points: Inside, low: int, high: int, source: RandomSource) -> int:
        """Return a candidate.

        Args:
            points: those within the bounds; the ranks that `near` tells must be known.
            low: least candidate, which must depend on nothing private but what was released.
            high: largest candidate.
            source: where bits come from.
        """
        return released(
            lambda: self._drawn(points, low, high, source),
            lambda: self._described(points, low, high),
            source,
        )

    def near(self, size: int) -> tuple[int, int]:
        """Return the ranks, from one up to another, that a draw of so many points looks at."""
        first, last = self._within_reach(size)
        return max(first - 1, 0), min(last + 1, size)

    @property
    def most_near(self) -> int:
        """The number of points that a draw looks at, at most, however many there are."""
        return 2 * self.weights.reach // self.share.denominator + 3

    @property
    def weights(self) -> RankWeights:
        """The weights by u."""
        return _weights(self.rate)

    def masses(self, points: NDArray[np.int64], low: int, high: int) -> list[int]:
        """Return integers in proportion to the probabilities of all candidates: for tests."""
        ranks = np.searchsorted(points, np.arange(low, high + 1), side="left")
        return [self.weights.at(self._distance(int(rank), points.size)) for rank in ranks]

    def _distance(self, rank: int, n: int) -> int:
        return abs(self.share.denominator * rank - self.share.numerator * n)

    def _within_reach(self, n: int) -> tuple[int, int]:
        """Return the ends of ranks within reach: candidates of all others weigh the same."""
        (a, b), reach = self.share.as_integer_ratio(), self.weights.reach
        first = max(0, -((reach - a * n) // b))
        last = min(n, (a * n + reach) // b)
        return min(first, last), max(first, last)  # the two next ranks, if none is in reach

    def _drawn(self, points: Inside, low: int, high: int, source: RandomSource) -> int:
        n, (a, b) = points.size, self.share.as_integer_ratio()
        least, weight_at = self.weights.least, self.weights.at
        first, last = self._within_reach(n)
        near = points.known[first - points.first : last - points.first].tolist()
        starts = [low if first == 0 else int(points.known[first - 1 - points.first]) + 1]
        starts += [point + 1 for point in near]
        ends = [*near, high if last == n else int(points.known[last - points.first])]
        weights = [weight_at(abs(b * rank - a * n)) for rank in range(first, last + 1)]
        spans = (end + 1 - start for start, end in zip(starts, ends, strict=True))
        below = (starts[0] - low) * least
        sums = list(accumulate((s * w for s, w in zip(spans, weights, strict=True)), initial=below))
        place = _uniform_below(sums[-1] + (high - ends[-1]) * least, source)
        if place < below:
            return low + place // least
        if place >= sums[-1]:
            return int(ends[-1] + 1 + (place - sums[-1]) // least)
        gap = bisect_right(sums, place) - 1
        return int(starts[gap] + (place - sums[gap]) // weights[gap])

    def _described(self, points: Inside, low: int, high: int) -> Release:
        """Return what a replay is told: ranks at some public places, beside the wanted one."""
        places = [low + (high - low) * i // (_WATCHED - 1) for i in range(_WATCHED)]
        ranks = points.ranks(places)
        return Release(
            type(self).__name__,
            ranks.astype(np.float64) - float(self.share) * points.size,
            LInfBall(_WATCHED, self.change, adjacency=self.adjacency),
            {"share": float(self.share), "rate": float(self.rate), "bounds": (low, high)},
            loss=lambda: self.loss,
        )


@lru_cache(maxsize=256)
def _weights(rate: Fraction) -> RankWeights:
    """Return the weights of a rate; their tables take some milliseconds."""
    return RankWeights(rate)


def _uniform_below(bound: int, source: RandomSource) -> int:
    """Return an integer, exactly uniform below a bound of any size."""
    bits = (bound - 1).bit_length()
    while True:
        drawn = int.from_bytes(source.bytes((bits + 7) // 8), "little") & ((1 << bits) - 1)
        if drawn < bound:
            return drawn
