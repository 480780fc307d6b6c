"""The game that bounds a sparse vector: what one comparison adds to the moment of the loss.

Given the noisy threshold, the moment of order a of the likelihood ratio is the value of a game. In
every step the adversary picks where the query lies; with u the threshold minus the query in units
of the noise, D the largest shift, F the distribution function and G = 1 - F the tail,

    t(u) = G(u - D)^a G(u)^(1 - a)   and   f(u) = F(u - D)^a F(u)^(1 - a)

weigh what follows an answer above and below. With V the value of the game, k queries and c answers
above left,

    V(k, c) = sup over u of  t(u) V(k - 1, c - 1) + f(u) V(k - 1, c),   V(k, 0) = V(0, c) = 1,

and as t, f are weights, V(k, c) / V(k - 1, c) - 1 is at most phi(r) = sup over u of
r t(u) - (1 - f(u)) at the ratio r = V(k - 1, c - 1) / V(k - 1, c). So one convex function of one
number is all that the noise has to say (docs/theory/sparse-vector.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.adaptive._sparse_vector.scalar_noise import hazard, hazard_slope, log_tail

__all__ = ["Gains", "gains", "gains_below", "lasting_gain", "saddle_values", "step_values"]

_STEP = 0.012  # of u, in units of the noise: cells add some 1e-3 of themselves to a gain
_CURVED_STEP = 0.06  # over the root of the order: the same where the order is what curves
_FEWEST_KNOTS = 2000  # of u: cells of Laplace noise then add 1e-6 of a gain
_MOST_KNOTS = 6000  # of u; beyond, cells are wider, which is sound and less sharp
_LOWEST = -9.0  # normal tails beyond are 1e-19: an answer is certain, and no weight differs from 1
_HIGHEST = 35.0  # in deviations: normal tails there are 1e-268, and still have all digits
_FORGOTTEN = 1e-6  # of an answer in all queries: what weights above the last knot may add
_RATIOS = 500  # knots of log r; between them chords are used, which lie above
_DEEPEST = 25.0  # of -log r: where less is asked for, more is answered
_ROUNDINGS = 32 * 2.0**-53  # relative error of one logarithm of a tail: with room for log_ndtr
_CURVATURE_ROOM = 1.01  # for the rounding of second derivatives, which lose half of their digits
_BLOCK = 0.004  # of the queries so far, that are accounted for in one step
_MOST_CELLS = 4e7  # blocks times answers times orders: some seconds


@dataclass(frozen=True)
class Gains:
    """phi at knots of log r, for several orders.

    Attributes:
        depths: the deepest knot -log r of every order, shape (m,).
        values: upper bounds on phi at the knots -depth (i / n)^2, shape (m, n + 1).
    """

    depths: Vector
    values: Matrix

    def logs(self) -> Matrix:
        """Return log r at the knots, shape (m, n + 1)."""
        shares = np.linspace(0.0, 1.0, self.values.shape[1])
        return -self.depths[:, None] * shares**2

    def at(self, log_ratios: Matrix) -> Matrix:
        """Return upper bounds on phi at log r <= 0, shape (m, j), by chords: phi is convex in it.

        Below the deepest knot the value there is taken: phi rises.
        """
        last = self.values.shape[1] - 1
        depth = self.depths[:, None]
        left = np.clip(-log_ratios / depth, 0.0, 1.0)
        index = np.minimum((np.sqrt(left) * last).astype(np.intp), last - 1)
        # The knot may be off by one for rounding; the weight is then cut, to the larger value.
        low, high = (index / last) ** 2, ((index + 1) / last) ** 2
        weight = np.clip((left - low) / (high - low), 0.0, 1.0)
        rows = np.arange(self.depths.size)[:, None]
        above, below = self.values[rows, index], self.values[rows, index + 1]
        result: Matrix = above + weight * (below - above)
        return result


def gains(kind: str, orders: Vector, shift: float, log_moments: Vector, queries: int) -> Gains:
    """Return phi for every order, as an upper bound.

    Args:
        kind: name of the noise on queries, symmetric and log-concave.
        orders: real orders above one, shape (m,).
        shift: the largest shift D, in units of the noise.
        log_moments: upper bounds on log t, shape (m,), at most 500, and orders at most a million:
            the second derivatives of cells are then within doubles.
        queries: largest number of queries, which decides how fine phi must be.
    """
    # V of one more answer is larger by at most the sum of t over queries. For Laplace noise by
    # t / (1 - f) <= exp((a - 1) D), as t is that times G(u - D) at most, and f at most F(u - D).
    deepest = log_moments + math.log1p(queries)
    if kind == "laplace":
        deepest = np.minimum(deepest, (orders - 1) * shift)
    depths = np.minimum(deepest, _DEEPEST)
    shares = np.linspace(0.0, 1.0, _RATIOS + 1) ** 2
    values = np.empty((orders.size, shares.size))
    for i, order in enumerate(orders):
        t, s = _weights(kind, float(order), shift, math.log(_FORGOTTEN / queries))
        ratios = np.exp(-depths[i] * shares)
        values[i] = np.maximum((ratios[:, None] * t - s).max(axis=1), 0.0)
    return Gains(depths, values)


def lasting_gain(order: float, shift: float) -> float:
    """Return an upper bound on sup log(t / (1 - f)) of Laplace noise.

    That is what one answer above adds at any length. Infinite where cells are too wide to tell.
    """
    t, s = _weights("laplace", order, shift, 0.0)
    matter = t > 0
    if (s[matter] <= 0).any():
        return math.inf
    return max(math.log(float((t[matter] / s[matter]).max())) + _ROUNDINGS, 0.0)


def gains_below(order: float, shift: float, places: Vector) -> Vector:
    """Return upper bounds on sup log(t / (1 - f)) of normal noise over all u up to each place.

    That is what one answer above adds at any length, if no query is further below the threshold.
    Infinite for places beyond which tails leave doubles.

    Args:
        order: real order above one.
        shift: the largest shift D, in deviations of the noise.
        places: largest u, in deviations, shape (m,).
    """
    highest = max(min(float(places.max()), _HIGHEST), 0.0)
    step = min(_STEP, _CURVED_STEP / math.sqrt(order))
    count = int(min((highest - _LOWEST) / step, _MOST_KNOTS))
    u = np.linspace(_LOWEST, highest, count + 1)
    t, s = _moved("gaussian", order, shift, u)
    (below, _), _ = _ends("gaussian", order, _LOWEST, 0.0, 0.0)
    with np.errstate(divide="ignore"):
        logs = np.where(s > 0, np.log(t) - np.log(np.maximum(s, 0.0)), math.inf)
    first = math.log(below / s[0]) if s[0] > 0 else math.inf
    largest = np.maximum.accumulate(np.maximum(logs, max(first, 0.0))) + _ROUNDINGS
    # A place between two knots is in the cell of the upper one.
    index = np.searchsorted(u, places, "left")
    return np.where(places > u[-1], math.inf, largest[np.minimum(index, count)])


def saddle_values(phi: Gains, queries: int, tops: int) -> Vector:
    """Return upper bounds on log V(k, c), shape (m,), at once: r^-c (1 + phi(r))^k for any r.

    These powers solve the recursion with "at least" in the place of "equal".
    """
    costs: Vector = (queries * np.log1p(phi.values) - tops * phi.logs()).min(axis=1)
    return costs * (1 + _ROUNDINGS)


def step_values(phi: Gains, queries: int, tops: int) -> Vector | None:
    """Return upper bounds on log V(k, c), shape (m,), step by step; None if that takes too long.

    A single step is exact. Several are one where many went before: V(k + s, c) is at most
    V(k, c) (1 + s phi(r)) at r = V(k + s, c - 1) / V(k, c). Blocks of one c wait for those of
    c - 1, so that all c go on together, each one block behind.
    """
    sizes = _blocks(queries)
    if float(sizes.size + tops) * tops * phi.depths.size > _MOST_CELLS:
        return None
    values = np.zeros((phi.depths.size, tops + 1))
    before = values.copy()  # of each c one block earlier
    lengths = np.concatenate([np.zeros(tops - 1), sizes, np.zeros(tops - 1)])
    for wave in range(sizes.size + tops - 1):
        # Answer j (from one) is at block wave - j + 1; others have length zero.
        here = lengths[wave : wave + tops][::-1]
        fewer = np.where(here == 1, before[:, :-1], values[:, :-1])
        # A bound on fewer answers may have grown past this one: then it bounds this one too.
        start = np.maximum(values[:, 1:], np.where(here > 0, fewer, 0.0))
        before = values.copy()
        values[:, 1:] = start + np.log1p(here * phi.at(np.minimum(fewer - start, 0.0)))
    last: Vector = values[:, -1] * (1 + (sizes.size + tops) * _ROUNDINGS)
    return last


def _blocks(queries: int) -> Vector:
    """Return lengths that add up to the number of queries, single ones at first."""
    sizes: list[int] = []
    done = 0
    while done < queries:
        size = min(max(1, int(_BLOCK * done)), queries - done)
        sizes.append(size)
        done += size
    return np.array(sizes, dtype=np.float64)


def _weights(kind: str, order: float, shift: float, log_least: float) -> tuple[Vector, Vector]:
    """Return points (t, s) such that r t(u) - (1 - f(u)) <= max of r t - s, for all u and r <= 1.

    A function on a cell of width h exceeds its larger end by at most h^2/8 times its largest second
    derivative; so knots are moved by that much, t up and s down.
    """
    u = _knots(kind, order, shift, log_least)
    t, s = _moved(kind, order, shift, u)
    ends = _ends(kind, order, float(u[0]), float(t[-1]), float(s[0]))
    return np.concatenate([t, ends[0]]), np.concatenate([s, ends[1]])


def _moved(kind: str, order: float, shift: float, u: Vector) -> tuple[Vector, Vector]:
    """Return t and 1 - f at knots, moved by what cells may add: t up, 1 - f down."""
    x = u - shift
    log_t = order * log_tail(kind, x) - (order - 1) * log_tail(kind, u)
    log_f = order * log_tail(kind, -x) - (order - 1) * log_tail(kind, -u)
    doubt_t, doubt_f = (
        _ROUNDINGS * (order * np.abs(log_tail(kind, y)) + order * np.abs(log_tail(kind, z)))
        for y, z in ((x, u), (-x, -u))
    )
    t = np.exp(log_t + doubt_t)
    s = -np.expm1(np.minimum(log_f + doubt_f, 0.0)) * (1 - _ROUNDINGS)
    width = np.diff(u)
    curve_t = _curvature(kind, order, u, shift, log_t)
    curve_f = _curvature(kind, order, -u, -shift, log_f)
    room = width**2 / 8 * _CURVATURE_ROOM
    t = _widened(t, room * curve_t)
    return t, s - _widened(np.zeros_like(s), room * curve_f)


def _knots(kind: str, order: float, shift: float, log_least: float) -> Vector:
    """Return where weights are computed: all u that can matter.

    For Laplace noise only 0 <= u <= D can: outside, r t + f is convex in exp(-|u|), and largest at
    an end (docs/theory/sparse-vector.md). For normal noise, up to where t is forgotten: there
    log t <= a (a - 1) D^2 / 2 - (u - a D)^2 / 2 + log of a factor below a.
    """
    lowest, highest = 0.0, shift
    if kind == "gaussian":
        square = order * (order - 1) * shift**2 + 2 * (math.log(order) - log_least)
        lowest, highest = _LOWEST, order * shift + math.sqrt(square) + 1
    step = min(_STEP, _CURVED_STEP / math.sqrt(order), (highest - lowest) / _FEWEST_KNOTS)
    count = int(min((highest - lowest) / step, _MOST_KNOTS))
    return np.linspace(lowest, highest, count + 1)


def _ends(
    kind: str, order: float, lowest: float, last_t: float, first_s: float
) -> tuple[list[float], list[float]]:
    """Return points for u outside of the knots: t at most G(u)^(1 - a) below, falling above."""
    if kind == "laplace":
        return [1.0, 0.0], [1.0, 0.0]
    below = math.exp((1 - order) * float(log_tail(kind, np.array(lowest))) * (1 + _ROUNDINGS))
    return [below, last_t], [first_s, 0.0]


def _curvature(kind: str, order: float, u: Vector, shift: float, logs: Vector) -> Vector:
    """Return bounds on the second derivative of G(u - D)^a G(u)^(1-a) on every cell.

    Its logarithm has the slope (a - 1) l(u) - a l(u - D) with the hazard l, which rises, and whose
    slope is monotone on either side of zero: so ends of cells enclose both.
    """
    rate, rate_x = hazard(kind, u), hazard(kind, u - shift)
    bend, bend_x = hazard_slope(kind, u), hazard_slope(kind, u - shift)
    slope = _largest_difference((order - 1) * rate, order * rate_x)
    second = _largest_difference((order - 1) * bend, order * bend_x)
    # The larger end of a cell, and what the slope may add between: half a cell away at most.
    top = np.maximum(logs[:-1], logs[1:]) + 0.5 * np.abs(np.diff(u)) * slope
    result: Vector = np.exp(top) * (slope**2 + second)
    return result


def _largest_difference(one: Vector, other: Vector) -> Vector:
    """Return the largest |y - z| for y and z between the values at the ends of a cell."""
    low, high = np.minimum(one[:-1], one[1:]), np.maximum(one[:-1], one[1:])
    least, most = np.minimum(other[:-1], other[1:]), np.maximum(other[:-1], other[1:])
    largest: Vector = np.maximum(high - least, most - low)
    return largest


def _widened(values: Vector, rooms: Vector) -> Vector:
    """Return values at knots, plus the larger room of the cells at either side."""
    padded = np.concatenate([[0.0], rooms, [0.0]])
    widened: Vector = values + np.maximum(padded[:-1], padded[1:])
    return widened
