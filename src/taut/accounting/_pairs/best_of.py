"""What choosing the best of a random number of runs makes of a pair.

One run has outputs with law P on one dataset and Q on the other. Ranked by score, the best of K
runs has density f'(F) with respect to P, where F is the P-mass that is ranked no higher and f the
generating function of K; likewise f'(G) with respect to Q. For no event G is below the trade-off
curve q of the pair at F, so that H_t of the selection is at most E_P[g(t dQ/dP)] with the convex
function g(c) = max_p (f'(p) - c f'(q(p)))_+. Derivation: docs/theory/selection.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR, UP
from taut.accounting._pairs.blurred import SmoothPair
from taut.accounting._pairs.finite import FinitePair, binary_pair
from taut.accounting._pairs.pair import Pair
from taut.accounting._pairs.profile import lower_hull

__all__ = ["BestOf", "CountLaw", "pure_cost", "reached_pair"]

# By how much log f' may change within a cell: epsilon is raised by at most twice as much.
_CELL = 1e-4
_FIRST_CELLS = 1024  # halved where f' changes by more
_FINEST_CUT = 1_000_000  # 8 megabytes a vector; halving ends there, and cells are sound at any size
_BLOCK = 64  # epsilons that are answered together: a matrix of some megabytes
_SLICE = 1e-4  # mass of an outcome beyond which it is ranked in slices, for lower bounds
_FAR_TAIL = 1e-4  # P-mass of the largest losses, which the worst ranking puts above the middling
_LEAST_MASS = 1e-290  # of an outcome that is kept for lower bounds: quotients stay within floats


class CountLaw(Protocol):
    """The law of the number of runs, by its generating function f."""

    @property
    def slope_error(self) -> float:
        """Bound on the relative error of `slope`."""

    def slope(self, at: Vector) -> Vector:
        """Return f' on [0, 1], which never decreases there; shape of ``at``."""

    def closed_cost(self, epsilon: float) -> float | None:
        """Return log max f'(p) / f'(q) over what epsilon-DP allows, if there is a formula."""


@dataclass(frozen=True)
class BestOf:
    """The selection from runs that ``pair`` dominates, with K of the given ``law``.

    **Guarantee**: `profile` bounds the hockey-stick divergence of the selection, in the direction
    of the pair, for every score that is part of a run's output and every way to break ties that
    does not look at outputs.
    """

    pair: FinitePair
    law: CountLaw

    @cached_property
    def _masses(self) -> tuple[Vector, Vector, Vector]:
        """Losses from the largest on, with their P- and Q-masses."""
        losses, masses, q_masses = self.pair.atoms(0.0)
        return losses[::-1], masses[::-1], q_masses[::-1]

    @cached_property
    def _curve(self) -> tuple[Vector, Vector]:
        """The most P-mass of an event, and its Q-mass, at the corners of the trade-off curve."""
        _, masses, q_masses = self._masses
        hair = RELATIVE_ERROR * (2 + masses.size)
        p = self.pair.mass_inf + np.append(0.0, np.cumsum(masses))
        q = np.append(0.0, np.cumsum(q_masses))
        return np.append(0.0, p * (1 + hair)), np.minimum(np.append(0.0, q * (1 - hair)), 1.0)

    @cached_property
    def _cells(self) -> tuple[Vector, Vector]:
        """Bounds on f'(p) from above and on f'(q(p)) from below, cell by cell."""
        corners, levels = self._curve
        p = np.unique(np.concatenate([np.linspace(0, 1, _FIRST_CELLS), corners[corners <= 1]]))
        while True:
            high = self.law.slope(p)
            low = self.law.slope(np.interp(p, corners, levels))
            with np.errstate(divide="ignore", invalid="ignore"):
                wide = np.maximum(np.diff(np.log(high)), np.diff(np.log(low))) > _CELL
            middle = (p[:-1] + p[1:])[wide] / 2
            middle = middle[(middle > p[:-1][wide]) & (middle < p[1:][wide])]
            if middle.size == 0 or p.size + middle.size > _FINEST_CUT:
                break
            p = np.sort(np.concatenate([p, middle]))
        hair = self.law.slope_error + 4 * RELATIVE_ERROR
        return high[1:] * (1 + hair), low[:-1] * (1 - hair)

    @cached_property
    def largest_ratio(self) -> float:
        """The most by which the choice can raise a likelihood ratio: max f'(p) / f'(q(p))."""
        high, low = self._cells
        with np.errstate(divide="ignore"):
            return float((high / low).max()) * UP

    @cached_property
    def _log_corners(self) -> tuple[Vector, Vector]:
        """Corners that any moment is largest at: log f'(q(p)), and log f'(p) above it."""
        high, low = self._cells
        return _upper_corners(np.log(low), np.log(high))

    def log_moments(self, orders: Vector) -> Vector:
        """Return log max f'(p)^a f'(q)^(1 - a) at the ``orders`` a > 1, rounded up; shape (m,)."""
        at, above = self._log_corners
        values = orders[:, None] * above - (orders[:, None] - 1) * at
        hair = 4 * RELATIVE_ERROR * orders * float(np.abs([*at, *above]).max())
        most: Vector = values.max(axis=1) + hair
        return most

    @cached_property
    def _gain(self) -> tuple[Vector, Vector]:
        """Corners of g, which is convex and falls to zero: costs c, and g there."""
        high, low = self._cells
        at, above = _upper_corners(low, high)
        costs = np.append((np.diff(above) / np.diff(at))[::-1], math.inf)
        # From cost to cost the best corner moves down, starting from the last.
        starts = np.append(0.0, costs[:-1])
        values = above[::-1] - starts * at[::-1]
        falling = (values > 0) & (starts < self.largest_ratio)
        return (
            np.append(starts[falling], self.largest_ratio),
            np.append(values[falling] * (1 + 8 * RELATIVE_ERROR), 0.0),
        )

    def profile(self, epsilons: Vector) -> Vector:
        """Return upper bounds on the divergence of the selection at ``epsilons``, shape (m,)."""
        losses, masses, _ = self._masses
        costs, gains = self._gain
        reach = math.log(self.largest_ratio) + RELATIVE_ERROR
        found = np.empty(epsilons.shape)
        order = np.argsort(epsilons)
        for block in np.array_split(order, 1 + epsilons.size // _BLOCK):
            if block.size == 0:
                continue
            kept = int(np.searchsorted(-losses, reach - float(epsilons[block[0]]), side="right"))
            with np.errstate(over="ignore"):
                cost = np.exp(epsilons[block, None] - losses[:kept])
            # A cost that is rounded up would have too small a gain.
            cost *= 1 - 4 * RELATIVE_ERROR * (1 + np.abs(epsilons[block, None]))
            found[block] = np.interp(cost, costs, gains) @ masses[:kept]
        total = self.pair.mass_inf * float(gains[0]) + found
        total *= 1 + RELATIVE_ERROR * (16 + losses.size)
        return np.minimum(total + _LEAST_MASS * losses.size, 1.0)


def _upper_corners(x: Vector, y: Vector) -> tuple[Vector, Vector]:
    """Return the corners of the upper hull of points, both of whose coordinates never decrease."""
    last = np.append(np.diff(x) > 0, True)
    at, below = lower_hull(x[last], -y[last])
    return at, -below


def pure_cost(law: CountLaw, epsilon: float) -> float:
    """Return the most by which a selection from ``epsilon``-DP runs exceeds ``epsilon``.

    By formula where there is one, else the maximum over all probabilities of an event that
    ``epsilon``-DP allows, rounded up (docs/theory/selection.md).
    """
    closed = law.closed_cost(epsilon)
    if closed is not None:
        return closed * UP
    return math.log(BestOf(binary_pair(epsilon), law).largest_ratio) * UP


def reached_pair(inside: Pair, law: CountLaw, never: float) -> FinitePair:
    """Return a pair that the selection from some runs with the pair ``inside`` reaches.

    The ranking is nearly the worst: lowest come outcomes that speak for P, but for the few with
    the largest losses, which are ranked just above them; then all others.

    Args:
        inside: a pair with finitely many outcomes, or bars.
        law: law of the number of runs.
        never: probability that there is no run, whose output tells nothing.
    """
    p, q = _outcomes(inside)
    if p.size == 0:
        return FinitePair((0.0,), (0.0,))
    hair = law.slope_error + RELATIVE_ERROR * (8 + p.size)
    mass_inf = inside.mass_inf * (1 - hair)
    ranking, below_inf = _worst_ranking(p, q, mass_inf, law)
    p, q = p[ranking], q[ranking]
    slices = np.ceil((p + q) / _SLICE).astype(np.int64)
    p, q = np.repeat(p / slices, slices), np.repeat(q / slices, slices)
    first = int(slices[:below_inf].sum())
    # An infinite loss lies between: P-mass that is ranked below all that follows it.
    ranked = np.cumsum(np.append(0.0, p[:-1])) + mass_inf * (np.arange(p.size) >= first)
    p_best = law.slope(np.minimum(ranked, 1.0) * (1 - hair)) * p * (1 - hair)
    q_best = law.slope(np.minimum(np.cumsum(q) * (1 + hair), 1.0)) * q * (1 + hair)
    betrayed = law.slope(np.array([float(p[:first].sum()) * (1 - hair)]))
    keep = (p_best > _LEAST_MASS) & (q_best > _LEAST_MASS)
    p_best, q_best = np.append(p_best[keep], never), np.append(q_best[keep], never)
    p_best, q_best = p_best[p_best > 0], q_best[q_best > 0]
    losses = np.log(p_best) - np.log(q_best)
    losses -= 4 * RELATIVE_ERROR * (1 + np.abs(np.log(p_best)) + np.abs(losses))
    order = np.argsort(losses)
    return FinitePair(
        tuple(losses[order].tolist()),
        tuple(np.log(p_best)[order].tolist()),
        float(betrayed[0]) * mass_inf * (1 - hair),
        0.0,
    )


def _outcomes(inside: Pair) -> tuple[Vector, Vector]:
    """Return P- and Q-masses of outcomes, from the largest loss on."""
    if isinstance(inside, SmoothPair):
        p, q = np.array(inside.p), np.array(inside.q)
    else:
        _, p, q = inside.atoms(0.0)
    keep = (p > _LEAST_MASS) & (q > _LEAST_MASS)
    p, q = p[keep], q[keep]
    order = np.argsort(np.log(q) - np.log(p), kind="stable")
    return p[order], q[order]


def _worst_ranking(
    p: Vector, q: Vector, mass_inf: float, law: CountLaw
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
    """Return a ranking from the lowest on, and how many outcomes stay below infinite losses."""
    above, other = np.minimum(np.cumsum(p) + mass_inf, 1.0), np.minimum(np.cumsum(q), 1.0)
    with np.errstate(divide="ignore"):
        lift = np.log(law.slope(above)) - np.log(law.slope(other))
    middle = int(np.argmax(lift)) + 1
    far = min(int(np.searchsorted(above, _FAR_TAIL)), middle - 1)
    index = np.arange(p.size)
    return np.concatenate([index[far:middle], index[:far], index[middle:]]), middle - far
