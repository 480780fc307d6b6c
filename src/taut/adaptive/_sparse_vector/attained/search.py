"""Which streams tell most apart: a search on a coarse grid, which promises nothing.

Whatever it finds is certified afterwards (`streams.py`), so that a poor search costs sharpness and
never soundness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import betainc

from taut._base.arrays import Matrix, Vector
from taut.adaptive._sparse_vector.attained.streams import (
    Attack,
    Streams,
    epsilons,
    log_binomial,
    times,
)
from taut.adaptive._sparse_vector.scalar_noise import log_cumulative, log_density, log_tail

__all__ = ["strongest"]

_NODES = 160  # of the threshold's noise
_WIDTHS = {"gaussian": (-8.0, 8.0), "laplace": (-25.0, 25.0), "exponential": (0.0, 25.0)}
_LENGTHS = 7  # of the first phase that are tried
_ROUNDS = 4  # of a search around the best so far, on finer and finer grids
_ROUNDED = 1e-9  # of a probability that is left over
_COUNTS = 24  # numbers of answers above that are told apart


@dataclass(frozen=True)
class _Place:
    """Where the search stands: lengths, and levels in deviations of the difference of noises."""

    first: int
    second: int
    first_level: float
    second_level: float


def strongest(
    streams: Streams,
    *,
    moves: tuple[tuple[float, float], ...],
    queries: int,
    least_level: float,
    delta: float,
) -> list[Attack]:
    """Return one attack for every pair of moves, the best first.

    Args:
        streams: what is attacked.
        moves: how much higher queries of both phases are on one side than on the other.
        queries: number of questions.
        least_level: the least level of any query, relative to the threshold.
        delta: where epsilon is wanted.
    """
    found = []
    for pair in moves:
        epsilon, attack = _best(_Coarse(streams, pair, least_level, delta), queries)
        found.append((epsilon, attack))
    found.sort(key=lambda one: -one[0])
    return [attack for _, attack in found]


@dataclass(frozen=True)
class _Coarse:
    """Sums in the place of integrals, for many levels at once."""

    streams: Streams
    moves: tuple[float, float]
    least_level: float
    delta: float

    @property
    def unit(self) -> float:
        """The deviation of the difference of both noises."""
        return math.hypot(self.streams.threshold.deviation, self.streams.query.deviation)

    def attack(self, place: _Place) -> Attack:
        """Return the attack at a place, levels on the grid and above the least."""
        levels = []
        for level, move in zip((place.first_level, place.second_level), self.moves, strict=True):
            steps = round(level * self.unit / self.streams.grid) * self.streams.grid
            levels.append(max(steps, self.least_level - min(move, 0.0)))
        return Attack(place.first, levels[0], place.second, levels[1], *self.moves)

    def epsilons(self, first: int, second: int, one: Vector, other: Vector) -> Matrix:
        """Return epsilon for all levels of both phases, shape (a, b)."""
        levels = [
            np.maximum(level * self.unit, self.least_level - min(move, 0.0))
            for level, move in zip((one, other), self.moves, strict=True)
        ]
        q = self._probabilities(first, second, levels[0], levels[1])
        p = self._probabilities(first, second, levels[0] + self.moves[0], levels[1] + self.moves[1])
        return epsilons(p, q, self.delta)

    def _probabilities(self, first: int, second: int, one: Vector, other: Vector) -> Matrix:
        """Return probabilities of outcomes, shape (a, b, m)."""
        threshold, query, tops = self.streams.threshold, self.streams.query, self.streams.tops
        low, high = _WIDTHS[threshold.kind]
        x = low + (high - low) * (np.arange(_NODES) + 0.5) / _NODES  # densities may jump at ends
        z = x * threshold.scale
        mass = np.exp(log_density(threshold.kind, x))
        mass /= mass.sum()
        still = mass * np.exp(
            times(first, log_cumulative(query.kind, (z - one[:, None]) / query.scale))
        )
        u = (z - other[:, None]) / query.scale
        below, above = log_cumulative(query.kind, u), log_tail(query.kind, u)
        counts = range(max(0, tops - _COUNTS), tops)
        told = [
            np.exp(log_binomial(second, j) + times(j, above) + times(second - j, below))
            for j in counts
        ]
        told.append(betainc(tops, second - tops + 1.0, np.exp(above)))
        rows = np.stack(told, axis=1)
        joint: Matrix = still @ rows.reshape(-1, z.size).T
        found = joint.reshape(one.size, other.size, len(told))
        rest = 1 - found.sum(axis=2, keepdims=True)
        # Little of it is rounding, and would look like much to tell apart.
        return np.concatenate([found, np.where(rest > _ROUNDED, rest, 0.0)], axis=2)


def _best(coarse: _Coarse, queries: int) -> tuple[float, Attack]:
    """Return the largest epsilon that a search finds, and its attack."""
    tops = coarse.streams.tops
    lengths = sorted({int(m) for m in np.geomspace(tops, queries, 5)})
    firsts = [0, *sorted({int(m) for m in np.geomspace(1, max(queries, 1), _LENGTHS)})]
    best, place = -1.0, _Place(0, tops, 0.0, 0.0)
    levels = np.linspace(-4, 4, 9)
    for first, second in product(firsts, lengths):
        if first + second > queries:
            second = queries - first
        if second < tops:
            continue
        found = coarse.epsilons(first, second, levels if first else np.zeros(1), levels)
        best, place = _better(best, place, found, first, second, levels, levels)
    width = levels[1] - levels[0]
    for step in range(_ROUNDS):
        factor = 2.0 ** (1 - step)
        near = np.linspace(-width, width, 5)
        one, other = place.first_level + near, place.second_level + near
        for a, b in product((-1, 0, 1), repeat=2):
            first = round(place.first * 2 ** (a * factor))
            second = max(round(place.second * 2 ** (b * factor)), tops)
            if first + second > queries:
                continue
            found = coarse.epsilons(first, second, one, other)
            best, place = _better(best, place, found, first, second, one, other)
        width /= 2
    return best, coarse.attack(place)


def _better(
    best: float,
    place: _Place,
    found: Matrix,
    first: int,
    second: int,
    one: Vector,
    other: Vector,
) -> tuple[float, _Place]:
    index = np.unravel_index(int(found.argmax()), found.shape)
    if found[index] <= best:
        return best, place
    return float(found[index]), _Place(first, second, float(one[index[0]]), float(other[index[1]]))
