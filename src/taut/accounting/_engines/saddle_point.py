"""Upper cumulants of a sum: where to tilt, how wide to look, what Chernoff already proves.

A few hundred nodes are kept per distinct loss, discretised upwards, so the cumulants and everything
derived from them are upper bounds; they need no common lattice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut._base.arrays import Vector
from taut.accounting._engines.convolution import Window
from taut.accounting._engines.half_sum import RenyiTerm
from taut.accounting._pairs.discretisation import Widths, upper_masses
from taut.accounting._pairs.pair import Pair

__all__ = ["SHARP_NODES", "CumulantTable", "Cumulants", "Saddle"]

UNCUT_TAIL = 1e-290
"""Mass that may be cut where any delta may be asked about: floats tell hardly less from zero."""
SHARP_NODES = 4096
"""Nodes for a bound that is published, not only looked at: see ``_ROUGH_NODES``."""

# For placing a saddle and a window; wherever they are, bounds hold. What splitting cells adds falls
# with the square of their number, so ``SHARP_NODES`` add 256 times less.
_ROUGH_NODES = 256
# The same where a sum has many distinct terms, of which each matters little.
_MANY_TERMS, _ROUGHER_NODES = 64, 64
# In units of one over the standard deviation of the sum. A bound holds at every tilt, so a best one
# outside of these eight decades costs tightness only.
_FIRST_TILTS = np.geomspace(1e-4, 1e4, 33)
_REFINING_POWERS = np.linspace(-1.0, 1.0, 13)  # of the last ratio: six tilts to either neighbour
_CHEAP_TILT = 62.0  # the least table of moments reaches it; larger ones grow with the square
# Candidates, as shares of the saddle's tilt. All are sound; the narrowest window is taken.
_TILT_SHARES = np.array([0.25, 0.35, 0.5, 0.65, 0.8, 1.0])
# Exponents for Chernoff's bound on what leaves a window, likewise; sound, all of them. Neighbours
# differ by half, so the best is missed by little; the first is off 0.05, to equal no candidate.
_CHERNOFF_SHARES = np.geomspace(0.0501, 2e3, 27)
# How far the scale of the tilted mass may exceed delta, in tolerances. A transform errs by some
# 1e-16 of the scale, so by 1e-7 of the tolerance at first; where that is too much, by 1e-16 of it.
_TILTED_EXCESSES = (1e9, 1.0)
_ESCAPE_SHARE = 1e-3  # of the tolerance: what mass outside of a window may add to the gap
_LARGEST_EXPONENT = 600.0  # of a share of what may leave; a window accounts for any such share
_WIDENING = 0.25  # of the even width: errors go with its square, so wide cells add a sixteenth
_BULK_MASS = 1e-3  # tilted mass above, and its square below, beyond which cells may widen
_SLOPE_STEP = 1e-4  # relative, of a central difference: off by 1e-8, and for explanations only


class Saddle(NamedTuple):
    """Where the tilted sum concentrates on the question.

    Attributes:
        tilt: the exponent c.
        epsilon: the epsilon that Chernoff's bound proves, or the one that was asked about.
        log_delta: the log delta that goes with it.
    """

    tilt: float
    epsilon: float
    log_delta: float


class Cumulants:
    """Upper cumulants of a sum of losses, at finitely many nodes."""

    def __init__(
        self,
        terms: Sequence[tuple[Pair, int]],
        tail: float,
        curves: Sequence[tuple[RenyiTerm, int]] = (),
        nodes: int | None = None,
    ) -> None:
        """Discretise every pair of ``terms`` with at most ``tail`` of its mass cut.

        Releases without a pair take part by the cumulants of their ``curves``. More ``nodes`` are
        worth their time where the bound itself is the answer.
        """
        if nodes is None:
            nodes = _ROUGH_NODES if len(terms) <= _MANY_TERMS else _ROUGHER_NODES
        self._curves = curves
        self._known: dict[bytes, Vector] = {}  # cumulants of the curves at tilts
        self._terms = []
        self._lost = tail * sum(count for _, count in terms)
        self._zcdp = [pair.zcdp for pair, _ in terms]
        for pair, count in terms:
            losses = np.union1d(pair.grid(tail, nodes), pair.atoms(tail).losses)
            if losses.size > 4 * nodes:
                losses = losses[np.linspace(0, losses.size - 1, 4 * nodes).astype(int)]
            if losses.size == 1:
                losses = np.append(losses, losses[0] + 1.0)
            with np.errstate(divide="ignore"):
                self._terms.append((losses, np.log(upper_masses(pair, losses, tail)), count))

    def _proven(self, tilts: Vector) -> Vector:
        """Return the best cumulant bound of the sum at ``tilts`` > 0, order by order."""
        total = np.zeros(tilts.shape)
        parts = zip(self.of_terms(tilts), self._zcdp, self._terms, strict=True)
        for cumulant, rho, (_, _, count) in parts:
            total += count * np.minimum(cumulant, rho * tilts * (tilts + 1))
        if self._curves:  # searches begin alike
            key = tilts.tobytes()
            if key not in self._known:
                known = np.zeros(tilts.shape)
                for curve, count in self._curves:
                    known += count * curve.cumulants(tilts)
                self._known[key] = known
            total += self._known[key]
        return total

    def of_terms(self, tilts: Vector) -> list[Vector]:
        """Return the cumulant of one copy of every term at real ``tilts`` of shape (m,)."""
        values = []
        for losses, log_masses, _ in self._terms:
            exponent = log_masses + tilts[:, None] * losses
            peak = exponent.max(axis=1)
            values.append(peak + np.log(np.exp(exponent - peak[:, None]).sum(axis=1)))
        return values

    def spread(self, tilt: float) -> float:
        """Return the variance of the tilted sum."""
        return math.fsum(count * variance for _, variance, count in self._moments(tilt))

    def means(self, tilt: float) -> list[float]:
        """Return the mean tilted loss of every term, all its copies together; curves come last."""
        near = tilt * np.array([1 - _SLOPE_STEP, 1 + _SLOPE_STEP])
        slopes = [
            count * float(np.diff(curve.cumulants(near))[0]) / (2 * _SLOPE_STEP * tilt)
            for curve, count in self._curves
        ]
        return [count * mean for mean, _, count in self._moments(tilt)] + slopes

    def _moments(self, tilt: float) -> list[tuple[float, float, int]]:
        """Return mean and variance of one tilted copy, and the count, of every term."""
        moments = []
        for losses, log_masses, count in self._terms:
            exponent = log_masses + tilt * losses
            weight = np.exp(exponent - exponent.max())
            weight /= weight.sum()
            mean = float(weight @ losses)
            moments.append((mean, float(weight @ (losses - mean) ** 2), count))
        return moments

    def at_delta(self, delta: float) -> Saddle:
        """Return the best Chernoff epsilon at ``delta`` and its tilt."""
        room = math.log(max(delta - self._lost, 5e-324))  # the least float: nothing is left
        tilts, values = self._search(lambda c: (self._proven(c) + _log_kernel(c) - room) / c)
        best = int(np.argmin(values))
        return Saddle(float(tilts[best]), float(values[best]), math.log(delta))

    def at_epsilon(self, epsilon: float) -> Saddle:
        """Return the best Chernoff log delta at ``epsilon`` and its tilt."""
        tilts, values = self._search(lambda c: self._proven(c) + _log_kernel(c) - c * epsilon)
        best = int(np.argmin(values))
        lost = math.log(max(self._lost, 1e-320))  # a float below every delta that is told apart
        log_delta = float(np.logaddexp(values[best], lost))
        return Saddle(float(tilts[best]), epsilon, min(log_delta, 0.0))

    def around(self, saddle: Saddle) -> CumulantTable:
        """Return cumulants on a ladder of tilts around a saddle, to plan windows with."""
        tilts = np.sort(
            saddle.tilt * np.concatenate([-_CHERNOFF_SHARES, [0.0], _TILT_SHARES, _CHERNOFF_SHARES])
        )
        return CumulantTable(
            saddle, tilts, self.of_terms(tilts), [count for _, _, count in self._terms]
        )

    def widths(self, tilt: float, widest: float) -> list[Widths]:
        """Return how wide cells may be where the tilted loss has little mass.

        Widths that grow with the density to the power -1/3 spread the error evenly; the factor
        keeps what the wide cells add well below what the narrow ones do. Where the bulk is, and
        where it meets the bottom, cells stay narrow: rounding down wastes mass wherever they widen.
        """
        result = []
        for losses, log_masses, _ in self._terms:
            exponent = log_masses + tilt * losses
            weight = np.exp(exponent - exponent.max())
            weight /= weight.sum()
            mass = (weight[:-1] + weight[1:]) / 2
            density = mass / np.diff(losses)
            typical = float(mass @ density)
            with np.errstate(divide="ignore", over="ignore"):
                factor = np.clip(_WIDENING * np.cbrt(typical / density), 1.0, 2.0**30)
            above = np.cumsum(mass[::-1])[::-1]
            factor[(above > _BULK_MASS) & (np.cumsum(mass) > _BULK_MASS**2)] = 1.0
            result.append(Widths(losses, factor, widest))
        return result

    def _search(self, objective: Callable[[Vector], Vector]) -> tuple[Vector, Vector]:
        """Return tilts around the minimum of a unimodal ``objective``, and its values there."""
        spread = self.spread(0.0) + math.fsum(n * _spread(curve) for curve, n in self._curves)
        # Where a search begins: any tilt is sound, and squares of these stay floats.
        scale = 1 / math.sqrt(min(max(spread, 1e-300), 1e300))
        # Orders nearer to one, or beyond a billion, are best for no epsilon that is told apart.
        best = self._roughly(objective, np.clip(scale * _FIRST_TILTS, 1e-9, 1e9))
        for ratio in (
            _FIRST_TILTS[1] / _FIRST_TILTS[0],
            (_FIRST_TILTS[1] / _FIRST_TILTS[0]) ** (1 / 6),
        ):
            tilts = best * ratio**_REFINING_POWERS
            if self._curves:  # theorems speak of integer orders, and chords meet there
                corners = np.concatenate([curve.corners() for curve, _ in self._curves])
                near = corners[(corners >= tilts[0]) & (corners <= tilts[-1])]
                whole = np.maximum(np.round(tilts), 1.0)
                tilts = np.unique(np.concatenate([tilts, whole, near]))
            values = objective(tilts)
            best = float(tilts[np.argmin(values)])
        return tilts, values

    def _roughly(self, objective: Callable[[Vector], Vector], tilts: Vector) -> float:
        """Return the best of ``tilts``; curves are asked for large orders only if those can win."""
        small = tilts[tilts < _CHEAP_TILT]
        if self._curves and small.size > 1:
            best = int(np.argmin(objective(small)))
            if best < small.size - 1:
                return float(small[best])
        return float(tilts[np.argmin(objective(tilts))])


@dataclass(frozen=True)
class CumulantTable:
    """Cumulants of every term on increasing ``tilts``, around a saddle."""

    saddle: Saddle
    tilts: Vector
    cumulants: list[Vector]
    counts: list[int]

    def windows(self, tolerance: float) -> list[Window]:
        """Return windows to try in turn: as narrow as noise allows, then with little noise."""
        return list(dict.fromkeys(self._window(tolerance, room) for room in _TILTED_EXCESSES))

    def _window(self, tolerance: float, room: float) -> Window:
        """Return the tilt and window with the fewest nodes that answer at the saddle.

        A smaller tilt than the saddle's narrows the window where tilting would dwell on rare large
        losses; rounding noise, which grows as the tilt shrinks, limits it.
        """
        total = self._total(self.counts)
        # log of the scale by which tilted mass exceeds delta
        excess = total - self.tilts * self.saddle.epsilon - self.saddle.log_delta
        at_saddle = float(np.interp(self.saddle.tilt, self.tilts, excess))
        limit = max(math.log(room * tolerance), at_saddle + 1)
        best, narrowest = None, math.inf
        for i in np.flatnonzero(np.isin(self.tilts, self.saddle.tilt * _TILT_SHARES)):
            if excess[i] > limit:
                continue
            share = math.exp(min(max(-float(excess[i]), -_LARGEST_EXPONENT), _LARGEST_EXPONENT))
            escape = min(_ESCAPE_SHARE * tolerance * share, 1e-3)
            window, width = self._around(int(i), total, escape, 1.0)
            if width < narrowest:
                best, narrowest = window, width
        assert best is not None  # the saddle's own tilt is always within the limit
        return best

    def block_window(
        self, term: int, count: int, tilt: float, escape: float, tail: float
    ) -> Window:
        """Return the window for ``count`` copies of one term at a given tilt."""
        counts = [0] * len(self.counts)
        counts[term] = count
        at = int(np.argmin(np.abs(self.tilts - tilt)))
        return self._around(at, self._total(counts), escape, tail)[0]

    def _total(self, counts: Sequence[int]) -> Vector:
        pairs = zip(counts, self.cumulants, strict=True)
        total: Vector = np.sum([count * cumulant for count, cumulant in pairs], axis=0)
        return total

    def _around(self, at: int, total: Vector, escape: float, tail: float) -> tuple[Window, float]:
        """Return the window at a ladder's tilt with the best Chernoff exponents, and its width."""
        margin = -math.log(escape)
        above, below = slice(at + 1, None), slice(None, at)
        tilt = float(self.tilts[at])
        tops = (total[above] - total[at] + margin) / (self.tilts[above] - tilt)
        tops = np.maximum(tops, (total[above] - math.log(tail)) / self.tilts[above])
        bottoms = (total[at] - total[below] - margin) / (tilt - self.tilts[below])
        high, low = int(np.argmin(tops)), int(np.argmax(bottoms))
        window = Window(
            tilt, float(self.tilts[below][low]), float(self.tilts[above][high]), escape, tail
        )
        return window, float(tops[high] - bottoms[low])


def _log_kernel(tilt: Vector) -> Vector:
    """Return log max_x exp(-c x)(1 - exp(-x)): what a tail bound gains over a moment bound."""
    return tilt * np.log(tilt) - (1 + tilt) * np.log1p(tilt)


def _spread(curve: RenyiTerm) -> float:
    """Return about the variance of a curve's loss, K(c) / (c (c + 1) / 2) at a known order."""
    # The largest of these orders that is known will do: it says where a search begins.
    tilts = np.geomspace(1.0, 1e-6, 25)
    variances = 2 * curve.cumulants(tilts) / (tilts * (tilts + 1))
    known = variances[np.isfinite(variances)]
    return float(known[0]) if known.size else 1.0
