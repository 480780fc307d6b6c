"""Privacy profiles as data: from an upper bound on delta(epsilon) to a dominating pair.

A function h is the profile of some pair iff it is convex, non-increasing, h(0) = 1 and
h(t) >= (1 - t)_+ (Zhu, Dong and Wang 2022, Lemma 9). So any upper bound can be replaced by its
lower convex hull, and the hull's kinks are the outcomes of a finite pair.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taut.accounting._finite import FinitePair
from taut.accounting._pair import Pair, Vector

__all__ = ["Knots", "convex_knots", "lower_hull", "pair_of_knots", "symmetric_knots"]


_CLOSE = 1e-11  # relative; what is closer differs by rounding alone


class Knots(NamedTuple):
    """A convex piecewise-linear profile in the threshold t = exp(epsilon).

    Attributes:
        epsilons: increasing log thresholds, shape (n,).
        deltas: the profile there, shape (n,); it starts at h(0) = 1 and is constant past the end.
    """

    epsilons: Vector
    deltas: Vector


def convex_knots(epsilons: Vector, deltas: Vector) -> Knots:
    """Return the largest profile below the given points, which every true profile is below too.

    The points need not be sorted, monotone or convex; each must be an upper bound at its epsilon.
    """
    order = np.argsort(epsilons, kind="stable")
    epsilons = epsilons[order]
    deltas = np.minimum.accumulate(np.minimum(deltas[order], 1.0))
    thresholds = np.exp(epsilons)
    deltas = np.maximum(deltas, np.maximum(1 - thresholds, 0.0))
    # Thresholds too close for a slope: dropping a point is sound, and the last has the least delta.
    last = np.append(np.diff(epsilons) > _CLOSE * (1 + np.abs(epsilons[1:])), True) & (
        thresholds > 0
    )
    thresholds, deltas, epsilons = thresholds[last], deltas[last], epsilons[last]
    _, corners, kept = _hull(np.append(0.0, thresholds), np.append(1.0, deltas))
    return Knots(epsilons[kept[1:] - 1], corners[1:])


def lower_hull(x: Vector, y: Vector) -> tuple[Vector, Vector]:
    """Return the corners of the lower convex hull of points with increasing ``x``."""
    at, corners, _ = _hull(x, y)
    return at, corners


def _hull(x: Vector, y: Vector) -> tuple[Vector, Vector, NDArray[np.int64]]:
    """Return the corners of the lower convex hull and their indices (Andrew 1979)."""
    kept: list[int] = []
    points = list(zip(x.tolist(), y.tolist(), strict=True))
    for i, (t, h) in enumerate(points):
        while len(kept) > 1:
            (t0, h0), (t1, h1) = points[kept[-2]], points[kept[-1]]
            if (h1 - h0) * (t - t0) < (h - h0) * (t1 - t0):
                break
            kept.pop()
        kept.append(i)
    index = np.array(kept, dtype=np.int64)
    return x[index], y[index], index


def pair_of_knots(knots: Knots) -> FinitePair:
    """Return the finite pair whose profile is the piecewise-linear function through ``knots``."""
    thresholds = np.exp(np.append(-math.inf, knots.epsilons))
    values = np.append(1.0, knots.deltas)
    slopes = np.append(np.diff(values) / np.diff(thresholds), 0.0)
    slopes = np.maximum(slopes, -1.0)
    q = np.maximum(np.diff(slopes), 0.0)
    keep = q > 0
    with np.errstate(divide="ignore"):
        log_p = knots.epsilons[keep] + np.log(q[keep])
    return FinitePair(
        tuple(knots.epsilons[keep].tolist()),
        tuple(log_p.tolist()),
        float(values[-1]),
        max(1.0 + float(slopes[0]), 0.0),
    )


def symmetric_knots(pair: Pair, swapped: Pair) -> Knots:
    """Return the maximum of the profiles of two finite pairs."""
    losses = np.concatenate([pair.atoms(0.0).losses, swapped.atoms(0.0).losses, [0.0]])
    nodes = np.unique(np.concatenate([losses, -losses]))
    first, second = pair.profile(nodes), swapped.profile(nodes)
    # Between nodes both profiles are linear in t; their maximum has a kink where they cross.
    gap = first - second
    gap[np.abs(gap) < _CLOSE * np.maximum(first, second)] = 0.0
    cross = np.flatnonzero(gap[:-1] * gap[1:] < 0)
    t = np.exp(nodes)
    share = gap[cross] / (gap[cross] - gap[cross + 1])
    extra = np.log(t[cross] + share * (t[cross + 1] - t[cross]))
    nodes = np.union1d(nodes, extra)
    return convex_knots(nodes, np.maximum(pair.profile(nodes), swapped.profile(nodes)))
