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

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._pairs.finite import FinitePair

__all__ = ["Knots", "convex_knots", "larger_pair", "lower_hull", "pair_of_knots"]


# Relative: losses or profiles that are closer may differ by rounding alone. A sum over up to 1e4
# outcomes is off by 1e-12 at most; dropping a knot, or taking either profile, is sound in any case.
_KNOT_ERROR = 1e-11


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
    last = np.append(np.diff(epsilons) > _KNOT_ERROR * (1 + np.abs(epsilons[1:])), True) & (
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


def larger_pair(first: FinitePair, second: FinitePair) -> FinitePair:
    """Return the finite pair whose profile is the maximum of two.

    Between nodes both profiles are lines. Where one of them stays the larger, its own masses are
    kept; a difference of slopes is formed only where the two cross.
    """
    pairs = (first, second)
    for pair in pairs:
        if not pair.losses:  # it always betrays the record, and no profile is larger
            return pair
    nodes = _clustered(np.concatenate([first.losses, second.losses]))
    masses = np.array([_on_nodes(pair, nodes) for pair in pairs])
    # Q-mass above each node, and above none of them: minus the slopes of the lines.
    slopes = np.append(masses[:, ::-1].cumsum(axis=1)[:, ::-1], np.zeros((2, 1)), axis=1)
    gap = _signs(first.profile(nodes), second.profile(nodes))
    signs = np.concatenate(
        [[0], gap, _signs(np.array([first.mass_inf]), np.array([second.mass_inf]))]
    )
    losses: list[float] = []
    q: list[float] = []
    owner = 0
    start = float(slopes[_owner(signs[0], signs[1], 0), 0])
    for k in range(nodes.size + 1):
        left, right = signs[k], signs[k + 1]
        mine = _owner(left, left if left * right < 0 else right, owner)
        if k > 0:
            same = mine == owner
            mass = masses[mine, k - 1] if same else slopes[owner, k - 1] - slopes[mine, k]
            losses.append(float(nodes[k - 1]))
            q.append(float(mass))
        owner = mine
        if left * right < 0 and 0 < k < nodes.size:
            losses.append(_crossing(first, second, nodes[k - 1 : k + 1]))
            q.append(float(slopes[owner, k] - slopes[1 - owner, k]))
            owner = 1 - owner
    return _from_q_masses(np.array(losses), np.array(q), max(x.mass_inf for x in pairs), 1 - start)


def _owner(left: int, right: int, before: int) -> int:
    """Return which profile is the larger between two nodes: the first (0) or the second (1)."""
    total = left + right
    return before if total == 0 else int(total < 0)


def _signs(first: Vector, second: Vector) -> NDArray[np.int64]:
    """Return the sign of a difference, zero where it is rounding alone."""
    near = np.abs(first - second) <= _KNOT_ERROR * np.maximum(first, second)
    return np.where(near, 0, np.sign(first - second)).astype(np.int64)


def _clustered(losses: Vector) -> Vector:
    """Return increasing losses, those equal up to rounding represented by the largest."""
    ordered = np.sort(losses)
    apart = np.diff(ordered) > 64 * RELATIVE_ERROR * np.abs(ordered[1:])
    last: Vector = ordered[np.append(apart, True)]
    return last


def _on_nodes(pair: FinitePair, nodes: Vector) -> Vector:
    """Return the Q-masses of a pair at the nodes its losses are represented by."""
    atoms = pair.atoms(0.0)
    at = np.searchsorted(nodes, atoms.losses * (1 - 16 * RELATIVE_ERROR * np.sign(atoms.losses)))
    return np.bincount(np.minimum(at, nodes.size - 1), atoms.q_masses, nodes.size).astype(float)


def _crossing(first: FinitePair, second: FinitePair, ends: Vector) -> float:
    """Return the loss between two nodes at which the profiles, linear in t, are equal."""
    gap = first.profile(ends) - second.profile(ends)
    share = float(gap[0] / (gap[0] - gap[1]))
    return float(ends[0] + np.log1p(share * np.expm1(ends[1] - ends[0])))


def _from_q_masses(losses: Vector, q: Vector, mass_inf: float, absent: float) -> FinitePair:
    """Return the pair with the given losses and Q-masses; slopes may differ by rounding only."""
    keep = q > 0
    log_p = losses[keep] + np.log(q[keep])
    return FinitePair(
        tuple(losses[keep].tolist()), tuple(log_p.tolist()), mass_inf, max(absent, 0.0)
    )
