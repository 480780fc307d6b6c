"""Composition by doubling in convex order: certified at any rate and at any delta.

A sum of T losses is formed by squaring, log2(T) times, on a lattice that is fine at the bulk and
coarse in the tails, with non-negative numbers only (``dyadic.py``). Nothing cancels, so that a
tail of 1e-30 beside a bulk of one keeps its digits, which no transform could promise. Derivation:
docs/theory/convex-order.md.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._engines.bounds import Bounds, falls_below
from taut.accounting._engines.dyadic import (
    BULK_SHARE,
    Dyadic,
    MergedLosses,
    Scale,
    SpreadLosses,
    power,
)
from taut.accounting._engines.half_sum import HalfSum
from taut.accounting._pairs.discretisation import BeyondLattice
from taut.accounting._pairs.pair import Cells, Pair

__all__ = ["ConvexOrder", "OrderedSum", "mass_error", "places"]

# Relative gap of epsilon times N squared: 15 to 25 for sampled Gaussians at any rate and count. A
# bracket that is wider than asked is refined.
_GAP = 30.0
_MOST_NODES = (
    4096  # N beyond which one convolution takes ten milliseconds, and a sum of them a second
)
_MOST_REFINEMENTS = 4  # one is usual; each quadruples N at most
_SUM_SHARE = 0.25  # of the tolerance: what a sum may add to the gap that its pairs have already
_LOST_SHARE = 0.05  # of the tolerance times delta: what all cut tails may add
_CUT_SHRINKAGE = 1e-40  # by which less is cut where delta is lost in what was cut
_FAINTEST_TAIL = 1e-280  # smaller tails are near the end of the floats
_STALLED = 0.9  # of the gap before: what is left is rounding, which more nodes do not mend
_FIRST_LOOK = 0.01  # halves that differ by more are told apart; closer ones are asked sharply
# Of the largest loss: deviations below are not resolved. Nodes have 53 bits: 39 between the two,
# and 13 for the N nodes of a level.
_NARROWEST_SHARE = 2.0**-39
_LEAST_WIDTH = 1e-290  # of a loss, and of a mass that is divided by
_LABEL_ERROR = 8 * RELATIVE_ERROR  # 64 units: one for every squaring, up to 2^60 copies


@dataclass(frozen=True)
class OrderedSum:
    """A sum of losses, spread and merged: certified bounds on delta at every epsilon.

    Attributes:
        upper: the sum spread.
        lower: the sum merged.
        mass_inf: bounds on the probability of an infinite loss.
        label_error: bound on the relative rounding error of the nodes' losses.
    """

    upper: Dyadic
    lower: Dyadic
    mass_inf: Bounds
    label_error: float

    @cached_property
    def spread(self) -> tuple[Vector, Vector]:
        """Losses of the spread sum, in increasing order, and their masses."""
        where, rows = self.upper.nodes()
        return where, rows[0]

    @cached_property
    def merged(self) -> tuple[Vector, Vector, Vector]:
        """Nodes of the merged sum, in increasing order, their masses, and E exp(node - L)."""
        where, rows = self.lower.nodes()
        return where, rows[0], rows[1]

    def delta_upper(self, epsilon: float) -> float:
        """Return an upper bound on delta(epsilon)."""
        where, masses = self.spread
        epsilon -= self.label_error * (abs(epsilon) + abs(self.upper.centre))
        start = int(np.searchsorted(where, epsilon, side="right"))
        finite = -float(masses[start:] @ np.expm1(epsilon - where[start:]))
        slack = 1 + self.upper.error + RELATIVE_ERROR * (2 + masses.size)
        value = (self.mass_inf.upper + self.upper.lost) * (1 + RELATIVE_ERROR) + finite * slack
        return min(value, 1.0)

    def delta_lower(self, epsilon: float) -> float:
        """Return a lower bound on delta(epsilon)."""
        where, masses, moments = self.merged
        epsilon += self.label_error * (abs(epsilon) + abs(self.lower.centre))
        slack = self.lower.error + 4 * RELATIVE_ERROR
        with np.errstate(over="ignore"):
            lost = moments * np.exp(np.minimum(epsilon - where, 700.0)) * (1 + slack)
        gain = np.maximum(masses * (1 - slack) - lost, 0.0)
        finite = float(gain.sum()) * (1 - RELATIVE_ERROR * (1 + masses.size))
        return self.mass_inf.lower * (1 - RELATIVE_ERROR) + finite

    def epsilon(self, delta: float, guess: float) -> Bounds:
        """Return bounds on epsilon at ``delta``."""
        high = falls_below(self.delta_upper, delta, guess).upper
        low = falls_below(self.delta_lower, delta, high).lower
        return Bounds(min(low, high), high)


class ConvexOrder:
    """Answers questions about a sum of losses in one direction.

    Where a pair dominates without being reached, upper bounds are those of the pair, and lower
    ones those of a pair that some release reaches.
    """

    def __init__(self, part: HalfSum, tail: float) -> None:
        """Take a sum, and the mass that may be cut from each copy."""
        self._part = part
        self._tail = tail
        self._places: dict[tuple[Pair, int, float], _Placement] = {}

    def epsilon(self, delta: float, tolerance: float, guess: float) -> Bounds:
        """Return bounds on epsilon at ``delta``, relative gap ``tolerance`` if time allows.

        Raises:
            BeyondLattice: if nodes are too far apart, or too many, for floats.
        """
        return self._refine(tolerance, lambda found: found.epsilon(delta, guess))[0]

    def stays_below(self, delta: float, epsilon: float) -> bool:
        """Return whether a rough look proves that epsilon(delta) is at most ``epsilon``."""
        try:
            upper = self._side(SpreadLosses(), _half(_FIRST_LOOK))
        except BeyondLattice:
            return False
        return self._seen(upper, upper).delta_upper(epsilon) <= delta

    def upper_epsilons(
        self, deltas: Sequence[float], tolerance: float, ceilings: Sequence[float]
    ) -> list[float]:
        """Return upper bounds on epsilon at ``deltas``, none above its ceiling.

        Raises:
            BeyondLattice: if nodes are too far apart, or too many, for floats.
        """
        best, half = list(ceilings), _half(tolerance)
        for turn in range(_MOST_REFINEMENTS):
            upper = self._side(SpreadLosses(), half)
            delta_upper = self._seen(upper, upper).delta_upper
            last, best = (
                best,
                [
                    min(falls_below(delta_upper, delta, min(most, 1.0)).upper, most)
                    for delta, most in zip(deltas, best, strict=True)
                ],
            )
            # With twice the nodes a quarter of the error is left, a third of what was gained.
            gains = (a - b if a > b else 0.0 for a, b in zip(last, best, strict=True))
            room = 3 * _SUM_SHARE * tolerance
            small = all(gain <= room * b for gain, b in zip(gains, best, strict=True))
            if (turn and small) or half == _MOST_NODES:
                break
            half = min(2 * half, _MOST_NODES)
        return best

    def curve(self, epsilon: float, tolerance: float) -> OrderedSum:
        """Return the sum with a relative gap of delta of ``tolerance`` at ``epsilon``.

        Raises:
            BeyondLattice: if nodes are too far apart, or too many, for floats.
        """
        self._cut_less(epsilon, tolerance)
        return self._refine(
            tolerance, lambda found: Bounds(found.delta_lower(epsilon), found.delta_upper(epsilon))
        )[1]

    def _cut_less(self, epsilon: float, tolerance: float) -> None:
        """Lower the mass that is cut until it is a small share of delta at ``epsilon``."""
        for _ in range(_MOST_REFINEMENTS):
            upper = self._side(SpreadLosses(), _half(_FIRST_LOOK))
            delta = self._seen(upper, upper).delta_upper(epsilon)
            wanted = _LOST_SHARE * min(tolerance, _FIRST_LOOK) * delta
            if upper.lost <= wanted or self._tail <= _FAINTEST_TAIL:
                return
            # What is left of delta may be nothing but what was lost: then much less must be cut.
            share = wanted / upper.lost if upper.lost < 0.5 * delta else _CUT_SHRINKAGE
            self._tail = max(self._tail * share, _FAINTEST_TAIL)

    def _refine(
        self, tolerance: float, bounds: Callable[[OrderedSum], Bounds]
    ) -> tuple[Bounds, OrderedSum]:
        """Return the best ``bounds``, and the narrowest sum: the gap falls with N squared."""
        best, last, stalls = Bounds(0.0, math.inf), math.inf, 0
        # Where a pair is not reached, the bounds differ however sharp they are.
        reached = self._part.attained == self._part
        half = _half(tolerance if reached else _SUM_SHARE * tolerance)
        for _ in range(_MOST_REFINEMENTS):
            found = self.compose(half)
            at = bounds(found)
            upper = min(best.upper, at.upper)
            best = Bounds(min(max(best.lower, at.lower), upper), upper)
            wanted = tolerance * best.upper
            if best.gap <= wanted or half == _MOST_NODES or math.isinf(upper):
                break
            if reached:
                # Distances are powers of two, so that one refinement may gain little, but not two.
                stalls += at.gap > _STALLED * last
                if stalls == 2:
                    break
                growth = min(max(1.15 * math.sqrt(at.gap / wanted), 1.5), 4.0)
            else:
                before = last if math.isfinite(last) else bounds(self.compose(half // 2)).gap
                # With twice the nodes a quarter of the sum's own gap is left.
                if (before - at.gap) / 3 <= _SUM_SHARE * wanted:
                    break
                growth = 2.0
            last = at.gap
            half = min(_multiple(half * growth), _MOST_NODES)
        return best, found

    def compose(self, half: int) -> OrderedSum:
        """Return the sum on levels of ``half`` nodes to either side."""
        self._places.clear()  # of another number of nodes
        return self._seen(self._side(SpreadLosses(), half), self._side(MergedLosses(), half))

    def _seen(self, upper: Dyadic, lower: Dyadic) -> OrderedSum:
        mass_inf = Bounds(self._part.attained.mass_inf, self._part.mass_inf)
        # Centres are added up once in every squaring, and once for every term.
        return OrderedSum(upper, lower, mass_inf, _LABEL_ERROR * (1 + len(self._part.terms)))

    def _side(self, scale: Scale, half: int) -> Dyadic:
        """Return the sum of all copies, spread or merged."""
        part = self._part if scale.rows == 1 else self._part.attained
        try:
            with np.errstate(invalid="raise", over="ignore", divide="ignore"):
                return self._total(part.terms, scale, half)
        except (ArithmeticError, ValueError) as error:
            raise BeyondLattice(str(error)) from error

    def _placed(self, pair: Pair, half: int) -> _Placement:
        """Return where a loss is put; both sides ask, one after the other."""
        key = pair, half, self._tail
        if key not in self._places:
            self._places[key] = _place(*key)
        return self._places[key]

    def _total(self, terms: Sequence[tuple[Pair, int]], scale: Scale, half: int) -> Dyadic:
        powers = []
        for i, (pair, count) in enumerate(terms):
            single = _single(pair, self._placed(pair, half), scale, half, self._tail)
            powers.append((count, i, power(single, count, self._tail)))
        # Small sums first: each then meets others of its size.
        heapq.heapify(powers)
        while len(powers) > 1:
            (n, i, left), (m, _, right) = heapq.heappop(powers), heapq.heappop(powers)
            heapq.heappush(powers, (n + m, i, left.plus(right, self._tail * (n + m))))
        return powers[0][2]


def _half(tolerance: float) -> int:
    """Return N at which brackets are about ``tolerance`` wide."""
    return min(_multiple(math.sqrt(_GAP / tolerance)), _MOST_NODES)


def _multiple(half: float) -> int:
    """Return the next multiple of eight: levels need one of four, and so does half of it."""
    return 8 * math.ceil(half / 8)


class _Placement(NamedTuple):
    """Where one loss is put: what its spread and its merged law have in common."""

    centre: float
    bottom: int
    levels: int
    kept: slice
    edges: Vector
    cells: Cells


def _place(pair: Pair, half: int, tail: float) -> _Placement:
    """Return nodes around the mean of a loss, and the cells between them.

    Where the nodes are is a matter of accuracy alone, so that a quadrature may place them.
    """
    losses, log_weights = pair.quadrature(0.0)
    weights = np.exp(log_weights)
    weights /= weights.sum()
    mean = float(weights @ losses)
    reach = pair.grid(tail, 2)
    slack = RELATIVE_ERROR * float(np.abs(reach).max()) + pair.loss_error
    low, high = float(reach[0]) - 2 * slack, float(reach[-1]) + 2 * slack
    widest = max(high - mean, mean - low)
    deviation = max(
        float(weights @ np.abs(losses - mean)),
        _NARROWEST_SHARE * max(widest, abs(mean)),
        _LEAST_WIDTH,
    )
    bottom = math.frexp(deviation / (BULK_SHARE * half))[1] - 1
    centre = math.ldexp(float(round(math.ldexp(mean, -bottom))), bottom)
    levels = max(math.frexp((widest + deviation) / math.ldexp(half, bottom))[1], 0)
    level, place = places(half, levels)
    edges = centre + np.ldexp(place.astype(float), bottom + level)
    first = int(np.searchsorted(edges, low, side="right")) - 1
    last = max(int(np.searchsorted(edges, high, side="left")), first + 1)
    kept = slice(first, last + 1)
    return _Placement(centre, bottom, levels, kept, edges[kept], pair.cells(edges[kept]))


def _single(pair: Pair, at: _Placement, scale: Scale, half: int, tail: float) -> Dyadic:
    """Return one loss, spread or merged, on its nodes."""
    centre, bottom, levels, kept, edges, cells = at
    level, place = places(half, levels)
    rows = (_spread if scale.rows == 1 else _merged)(pair, edges, cells, tail)
    values = np.zeros((levels + 1, scale.rows, 2 * half + 1))
    values[level[kept], :, place[kept] + half] = rows.T
    return Dyadic(
        scale, half, centre, {bottom + e: values[e] for e in range(levels + 1)}, tail, 0.0
    )


@lru_cache(maxsize=64)
def places(half: int, levels: int) -> NDArray[np.int64]:
    """Return levels and indices of all nodes in increasing order, shape (2, n)."""
    outer, middle = np.arange(half // 2 + 1, half + 1), np.arange(-half, half + 1)
    above = [np.stack([np.full(outer.size, e + 1), outer]) for e in range(levels)]
    below = [np.stack([part[0], -part[1][::-1]]) for part in above[::-1]]
    return np.concatenate([*below, np.stack([np.zeros_like(middle), middle]), *above], axis=1)


def mass_error(mass: Vector) -> Vector:
    """Return bounds on the rounding errors of the masses of cells.

    They are differences of tails, on whichever side is smaller. A tail is off by one evaluation,
    and by as much again for every factor of exp(2) that it lies below one: an error in x of a
    normal tail is magnified by x^2, twice the logarithm (``gaussian.tail_error``).
    """
    below = np.cumsum(mass)
    above = np.cumsum(mass[::-1])[::-1]
    tail = np.maximum(np.minimum(above, below), _LEAST_WIDTH)
    error: Vector = RELATIVE_ERROR * (16 * mass + 2 * (2 - np.log(tail)) * tail)
    return error


def _spread(pair: Pair, edges: Vector, cells: Cells, tail: float) -> Vector:
    """Return masses on ``edges`` for every cell split between its ends; errors go up."""
    mass, _, surplus, error = cells
    width = -np.expm1(-np.diff(edges))
    raised = (surplus + error) / width
    if pair.continuous:
        mass = mass + mass_error(mass)
    cell, losses, masses = _placed_atoms(pair, edges, tail, up=True)
    if losses.size:
        lift = np.clip(-np.expm1(edges[cell] - losses) / width[cell], 0.0, 1.0)
        mass = mass + np.bincount(cell, masses, mass.size)
        raised = raised + np.bincount(cell, masses * (lift + RELATIVE_ERROR), mass.size)
    raised = np.minimum(raised * (1 + 4 * RELATIVE_ERROR), mass)
    result = np.zeros((1, edges.size))
    result[0, 1:] += raised
    result[0, :-1] += mass - raised
    # What lies below the grid is raised to zero: further down, as P-mass of an outcome that Q has
    # often, it would stand for more Q-mass than there is.
    result[0, min(int(np.searchsorted(edges, 0.0)), edges.size - 1)] += tail
    return result


def _merged(pair: Pair, edges: Vector, cells: Cells, tail: float) -> Vector:
    """Return masses of the cells and E exp(edge - L), at their lower ends; errors go down."""
    mass, _, surplus, error = cells
    off = mass_error(mass)
    least = np.maximum(mass - off, 0.0) if pair.continuous else mass
    share = np.maximum(surplus - error, 0.0) / np.maximum(mass + off, _LEAST_WIDTH)
    moment = least * np.maximum(1 - share * (1 - RELATIVE_ERROR), 0.0) * (1 + RELATIVE_ERROR)
    cell, losses, masses = _placed_atoms(pair, edges, tail, up=False)
    if losses.size:
        least = least + np.bincount(cell, masses, mass.size)
        moment = moment + np.bincount(cell, masses * np.exp(edges[cell] - losses), mass.size)
    result = np.zeros((2, edges.size))
    result[:, :-1] = np.where(moment > 0, np.stack([least, moment]), 0.0)
    return result


def _placed_atoms(
    pair: Pair, edges: Vector, tail: float, *, up: bool
) -> tuple[NDArray[np.int64], Vector, Vector]:
    """Return cells, losses and masses of the atoms, with rounding errors on the safe side."""
    losses, masses, _ = pair.atoms(tail)
    slack = RELATIVE_ERROR * np.abs(losses) + pair.loss_error
    losses = losses + slack if up else losses - slack
    masses = masses * (1 + 16 * RELATIVE_ERROR if up else 1 - 16 * RELATIVE_ERROR)
    cell = np.clip(np.searchsorted(edges, losses, side="right") - 1, 0, edges.size - 2)
    return cell, losses, masses
