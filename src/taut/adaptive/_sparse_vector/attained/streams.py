"""What two streams of queries really tell apart: certified lower bounds on epsilon.

An attack has two phases. First, queries at one level that move one way: that all answers are below
tells where the noisy threshold is. Then queries at another level that move the other way, of which
the answers above are counted. Given the threshold an outcome has the probability of a binomial
number, so that its probability is one integral of a log-concave function, and is enclosed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, gammaln

from taut._base.arrays import Matrix, Vector
from taut.accounting import PrivacyLoss, finite
from taut.adaptive._sparse_vector.integrals import log_integrals
from taut.adaptive._sparse_vector.scalar_noise import (
    ScalarNoise,
    log_cumulative,
    log_density,
    log_tail,
)

__all__ = ["Attack", "Streams", "epsilons", "log_binomial", "of_binomials", "times", "told_apart"]

_CELLS = 8192  # of the threshold's noise: bounds then are within some 1e-4 of each other
_REACH = {"gaussian": (-12.0, 12.0), "laplace": (-45.0, 45.0), "exponential": (0.0, 45.0)}
_COUNTS = 64  # numbers of answers above that are told apart; fewer are one outcome with all others
_ROUNDINGS = 32 * 2.0**-53  # relative error of one logarithm of a tail: with room for log_ndtr
_OF_BINOMIALS = 1e-10  # relative error of SciPy's betainc, with a hundred of it in hand
_OF_COUNTS = 2.0**-53  # the same for every one that is counted: seen are a fifth of it
_SUMMED = 2.0**-52  # relative error of a sum, for each term
_HALVINGS = 40  # of an interval that holds an epsilon
_LEAST = 1e-200  # of a probability that is looked at
_LARGEST = 500.0  # of an epsilon that is looked for
_VANISHING = 1e-290  # of a probability: what is lost where a binomial tail leaves doubles


@dataclass(frozen=True)
class Attack:
    """Two streams on neighbours, relative to the threshold.

    Attributes:
        first: number of queries of the first phase.
        first_level: their value on one side.
        second: number of queries of the second phase, at least the answers above of the design.
        second_level: their value on the same side.
        first_move: height by which those of the first phase rise on the other side.
        second_move: the same for the second phase.
    """

    first: int
    first_level: float
    second: int
    second_level: float
    first_move: float
    second_move: float

    @property
    def moved(self) -> Attack:
        """The streams, seen from the other side."""
        return Attack(
            self.first,
            self.first_level + self.first_move,
            self.second,
            self.second_level + self.second_move,
            -self.first_move,
            -self.second_move,
        )


@dataclass(frozen=True)
class Streams:
    """A sparse vector that is attacked.

    Attributes:
        threshold: noise on the threshold.
        query: noise on every query.
        tops: number of answers above after which it ends.
        grid: step of the grid of the noise; bounds hold for ideal noise too.
    """

    threshold: ScalarNoise
    query: ScalarNoise
    tops: int
    grid: float

    def loss(self, attack: Attack) -> PrivacyLoss:
        """Return a loss that the answers to an attack have at least, from one side to the other."""
        p = np.exp(self._bounds(attack.moved, side=-1)[0])
        q = np.exp(self._bounds(attack, side=1)[1]) + _VANISHING
        order = np.argsort(-p / q, kind="stable")
        return told_apart(p[order], q[order])

    def _bounds(self, stream: Attack, *, side: int) -> tuple[Vector, Vector]:
        """Return bounds on the logarithms of probabilities, lower if the side is negative."""
        low, high = _REACH[self.threshold.kind]
        z = np.linspace(low, high, _CELLS + 1) * self.threshold.scale
        first_below, _ = self._tails(z, stream.first_level, side)
        below, above = self._tails(z, stream.second_level, side)
        density = log_density(self.threshold.kind, z / self.threshold.scale)
        density = density - math.log(self.threshold.scale)
        still = times(stream.first, first_below)
        rows, doubts = [], []
        for count in range(max(0, self.tops - _COUNTS), self.tops):
            ways = log_binomial(stream.second, count)
            told = times(count, above) + times(stream.second - count, below)
            rows.append(density + still + told + ways)
            size = np.abs(density) + np.abs(still) + np.abs(told) + 3 * gammaln(stream.second + 2)
            doubts.append(_ROUNDINGS * size)
        ended, doubt = self._ended(stream.second, above)
        rows.append(density + still + ended)
        doubts.append(_ROUNDINGS * (np.abs(density) + np.abs(still)) + doubt)
        logs, room = np.array(rows), np.array(doubts)
        room[~np.isfinite(logs)] = 0.0
        begins = self.threshold.kind == "exponential"
        found = log_integrals(logs, float(z[1] - z[0]), room, begins=begins)
        return found.lower, found.upper

    def _ended(self, questions: int, above: Vector) -> tuple[Vector, Vector]:
        """Return log P(all answers above are used up), log-concave in the threshold, and doubts."""
        if questions == self.tops:
            ended = times(self.tops, above)
            return ended, _ROUNDINGS * np.abs(ended)
        with np.errstate(divide="ignore"):
            logs = np.log(betainc(self.tops, questions - self.tops + 1.0, np.exp(above)))
        # What its argument is off by counts `tops` times at most: it rises no faster than a power.
        return logs, of_binomials(questions) + self.tops * _ROUNDINGS * (1 + np.abs(above))

    def _tails(self, z: Vector, level: float, side: int) -> tuple[Vector, Vector]:
        """Return log F and log G at a query, both for noise on the grid and off it.

        Rounded to the grid, threshold and query noise together look like an ideal threshold that
        is up to a step lower.
        """
        kind, place = self.query.kind, z - level
        lowered = place - self.grid
        below, above = (place, lowered) if side > 0 else (lowered, place)
        scale = self.query.scale
        return log_cumulative(kind, below / scale), log_tail(kind, above / scale)


def told_apart(p: Vector, q: Vector) -> PrivacyLoss:
    """Return a loss that is not above the truth, from one side to the other.

    How often the other side is told, against how often in error, is a concave curve. Points below
    it have their hull below it: so lower bounds on the probabilities of one side and upper bounds
    on those of the other give a pair that is no easier to tell apart.

    Args:
        p: lower bounds on the probabilities of outcomes, the first ones favouring this side; or
            differences of lower bounds on those of the first outcomes together.
        q: upper bounds on the probabilities of outcomes on the other side.
    """
    down = 1 - _SUMMED * p.size
    points = [(0.0, 0.0)]
    for level, power in zip(np.cumsum(q), np.cumsum(p), strict=True):
        if level / down < 1:
            points.append((float(level / down), float(power * down)))
    steps = np.diff(_hull([*points, (1.0, 1.0)]), axis=0)
    return finite(steps[:, 1], steps[:, 0], adjacency="add")


def epsilons(p: Matrix, q: Matrix, delta: float) -> Matrix:
    """Return where hockey sticks meet delta, by bisection; nothing is certified.

    Args:
        p: masses of outcomes, shape (..., m).
        q: the same on the other side.
        delta: where epsilon is wanted; at zero, the largest ratio.
    """
    seen = (p > _LEAST) & (q > _LEAST)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.where(seen, np.log(p / q), 0.0)
    high: Matrix = np.clip(ratios.max(axis=-1), 0.0, _LARGEST)
    if delta == 0:
        return high
    low: Matrix = np.zeros_like(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        with np.errstate(over="ignore"):
            above = np.maximum(p - np.exp(middle)[..., None] * q, 0).sum(axis=-1) > delta
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return low


def of_binomials(count: int) -> float:
    """Return the relative error of a binomial tail of so many, with that of their logarithms."""
    return _OF_BINOMIALS + _OF_COUNTS * count


def times(count: int, logs: Vector) -> Vector:
    """Return the logarithm of a power, of which the zeroth is one."""
    return count * logs if count else np.zeros_like(logs)


def log_binomial(n: int, k: int) -> float:
    return float(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


def _hull(points: list[tuple[float, float]]) -> Vector:
    """Return the corners of the least concave function above points, sorted by their first part."""
    corners: list[tuple[float, float]] = []
    for x, y in points:
        while len(corners) > 1:
            (x0, y0), (x1, y1) = corners[-2:]
            if (y1 - y0) * (x - x1) > (y - y1) * (x1 - x0):
                break
            corners.pop()
        corners.append((x, y))
    return np.array(corners)
