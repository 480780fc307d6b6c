"""The composed loss under an exponential tilt: delta from epsilon, and epsilon from delta.

A plain FFT has an absolute error floor near 1e-16, which hides every delta below about 1e-11.
Multiplying the masses by exp(tilt L) first, with the tilt near the saddle point of the question,
moves that floor to 1e-16 times the answer; the tilt is undone in the final sum, here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taut._base.arrays import Vector
from taut.accounting._pairs.discretisation import ALIGNMENT, Lattice, lowest_node, round_cells
from taut.accounting._pairs.finite import FinitePair

__all__ = ["TiltedSum"]

_FAINT_WEIGHT = 1e-60  # stands for empty nodes, whose logarithm is asked; placing a node is a guess
# Of the largest of three geometric sums that cancel: each is within some 1e-14 of itself, so that a
# hundredfold covers what their difference lost.
_CANCELLED = 1e-12
_ATOM_WEIGHT = 0.02  # of one node: with less, no place of the coarse nodes wastes more than another


@dataclass(frozen=True)
class TiltedSum:
    """The composed loss in a window: weights proportional to mass times exp(tilt loss).

    Attributes:
        step: distance of neighbouring nodes.
        first: loss of the first node.
        weights: tilted masses, summing to about one, shape (n,).
        tilt: the exponent c.
        log_scale: log E exp(c L) over finite losses.
        mass_inf: mass at infinite loss.
        noise: bound on the l2-norm of the rounding errors of the weights.
        above: bound on the untilted mass above the window.
        mass: lower bound on the finite mass if nothing lies below the window, else 0.
        misplaced: bound on the tilted mass that sits on a wrong node or does not exist.
        label_error: bound on the rounding error of the loss of a node.
        scale_error: bound on the relative rounding error of the scale.
    """

    step: float
    first: float
    weights: Vector
    tilt: float
    log_scale: float
    mass_inf: float
    noise: float
    above: float
    mass: float
    misplaced: float
    label_error: float
    scale_error: float

    def upper(self, node: int) -> float:
        """Return an upper bound on delta at the loss of ``node`` (counted from the first)."""
        scale = self._scale(node)
        if scale is None:
            return 1.0
        value = (self._excess(node) + self._doubt) * scale * (1 + self.scale_error)
        return min(self.mass_inf + self.above + value, 1.0)

    def lower(self, node: int) -> float:
        """Return a lower bound on delta at the loss of ``node``."""
        scale = self._scale(node)
        if scale is None:
            return self.mass_inf
        value = (self._excess(node) - self._doubt) * scale * (1 - self.scale_error)
        return self.mass_inf + max(value, 0.0)

    def delta_upper(self, epsilon: float) -> float:
        """Return an upper bound on delta(epsilon)."""
        return self._interpolate(epsilon - self.label_error, self.upper)

    def delta_lower(self, epsilon: float) -> float:
        """Return a lower bound on delta(epsilon)."""
        return self._interpolate(epsilon + self.label_error, self.lower)

    def epsilon_upper(self, delta: float) -> float:
        """Return an epsilon at which delta is surely reached, possibly infinite."""
        at_first = self.upper(0)
        if at_first <= delta:
            return self._below_window(1.0, at_first, delta) + self.label_error
        if self.upper(self.weights.size) > delta:
            return math.inf
        node = self._last_above(delta, self.upper, 0, self.weights.size)
        return self._crossing(node, delta, self.upper) + self.label_error

    def epsilon_lower(self, delta: float, below: float) -> float:
        """Return an epsilon up to which delta is surely exceeded.

        The search goes down from ``below``; far down, rounding would swallow the answer. Minus
        infinity means that nothing could be certified.
        """
        top = self.first + self.weights.size * self.step
        high = math.floor((min(below, top) - self.first) / self.step) + 1
        reach = 1
        while high - reach > 0 and self.lower(high - reach) <= delta:
            reach *= 2
        low = max(high - reach, 0)
        if self.lower(low) <= delta:
            total = self.mass_inf + self.mass
            if low > 0 or total <= delta:
                return -math.inf
            return self._below_window(total, self.lower(0), delta) - self.label_error
        node = self._last_above(delta, self.lower, low, high)
        return self._crossing(node, delta, self.lower) - self.label_error

    def _interpolate(self, epsilon: float, bound: Callable[[int], float]) -> float:
        """Return the chord of ``bound`` at ``epsilon``: lattice profiles are linear in exp(e)."""
        node = math.floor((epsilon - self.first) / self.step)
        if node < 0:
            # Convexity in t = exp(e): below the chord from the value at t = 0, which is 1. Rounded
            # down, the profile is that chord if all mass is in the window, else not below its end.
            total = 1.0 if bound == self.upper else max(self.mass_inf + self.mass, bound(0))
            return total + (bound(0) - total) * math.exp(epsilon - self.first)
        left, right = bound(node), bound(node + 1)
        rest = epsilon - self.first - node * self.step
        if self.step > 600:
            share = math.exp(rest - self.step)
        else:
            share = math.expm1(rest) / math.expm1(self.step)
        return left + (right - left) * min(max(share, 0.0), 1.0)

    def _last_above(self, delta: float, bound: Callable[[int], float], low: int, high: int) -> int:
        """Return the last node at which ``bound`` exceeds ``delta``, by bisection."""
        while high - low > 1:
            middle = (low + high) // 2
            if bound(middle) > delta:
                low = middle
            else:
                high = middle
        return low

    def _crossing(self, node: int, delta: float, bound: Callable[[int], float]) -> float:
        """Return where the chord from ``node`` to the next one falls to ``delta``."""
        left, right = bound(node), bound(node + 1)
        share = (left - delta) / (left - right)
        if self.step > 600:
            # A share of zero leaves the node itself, of which the maximum takes care.
            rest = max(self.step + math.log(max(share, 1e-300)), 0.0)
        else:
            rest = math.log1p(share * math.expm1(self.step))
        return self.first + node * self.step + rest

    def _below_window(self, total: float, at_first: float, delta: float) -> float:
        """Return where the chord from ``total`` at t = 0 to the first node falls to ``delta``."""
        if total <= at_first:
            return self.first
        return self.first + math.log((total - delta) / (total - at_first))

    def _scale(self, node: int) -> float | None:
        """Return what undoes the tilt, or None so far down that tilted sums underflow."""
        exponent = self.log_scale - self.tilt * (self.first + node * self.step)
        return math.exp(exponent) if exponent < 600.0 else None

    @cached_property
    def _doubt(self) -> float:
        """Bound on the error of ``_excess``: rounding, by Cauchy-Schwarz, and misplaced mass."""
        c, s = self.tilt, self.step
        # Squared l2-norm and maximum of exp(-c x) (1 - exp(-x)) over the nodes x > 0.
        squared = _geometric(2 * c * s) - 2 * _geometric((2 * c + 1) * s)
        squared += _geometric((2 * c + 2) * s)
        squared = min(
            max(squared, 0.0) + _CANCELLED * _geometric(2 * c * s), float(self.weights.size)
        )
        peak = math.exp(c * math.log(c) - (c + 1) * math.log1p(c)) if c > 0 else 1.0
        return self.noise * math.sqrt(squared) + self.misplaced * peak

    def _excess(self, node: int) -> float:
        """Return the sum over i > node of w_i exp(-c x) (1 - exp(-x)), x = (i - node) step."""
        width, tails, kernels = self._chunks
        start = node + 1
        if start >= self.weights.size:
            return 0.0
        chunk = start // width
        piece = self.weights[start : (chunk + 1) * width]
        inside = float((piece * kernels[1][1 : piece.size + 1]).sum())
        reach = ((chunk + 1) * width - node) * self.step
        return max(inside + self._shifted(tails[chunk + 1], reach)[1], 0.0)

    def _shifted(self, tail: tuple[float, float], reach: float) -> tuple[float, float]:
        """Return sums of w exp(-c x) and w exp(-c x) (1 - exp(-x)) from ``reach`` further down.

        The two are carried side by side: their difference would cancel.
        """
        plain, excess = tail
        decay = math.exp(-self.tilt * reach)
        return decay * plain, decay * (math.exp(-reach) * excess - math.expm1(-reach) * plain)

    @cached_property
    def _chunks(self) -> tuple[int, list[tuple[float, float]], tuple[Vector, Vector]]:
        """Return the chunk width, both sums from every chunk start on, and both kernels inside.

        Sums at every node would cost several exponentials per node; chunks of sqrt(n) nodes share
        them.
        """
        width = max(1, math.isqrt(self.weights.size))
        count = -(-self.weights.size // width)
        table = np.zeros((count, width))
        table.ravel()[: self.weights.size] = self.weights
        x = self.step * np.arange(width + 1)
        plain = np.exp(-self.tilt * x)
        kernels = plain, -plain * np.expm1(-x)
        sums = [(table * kernel[:width]).sum(axis=1).tolist() for kernel in kernels]
        tails = [(0.0, 0.0)] * (count + 1)
        for i in range(count - 1, -1, -1):
            later = self._shifted(tails[i + 1], width * self.step)
            tails[i] = sums[0][i] + later[0], sums[1][i] + later[1]
        return width, tails, kernels

    def as_lattice(self, factor: int, offset: float, *, upper: bool) -> Lattice:
        """Return the sum as one loss on nodes ``factor`` times as far apart, valid at this tilt.

        Undoing the tilt and rounding to the coarse nodes are done together, with one factor per
        coarse cell and one per place within it. ``offset`` is one of the coarse nodes.
        """
        step = factor * self.step
        # Places of the old nodes within a coarse cell: phase + j * old step.
        ahead = (self.first - offset) / self.step
        lead = math.floor(ahead + ALIGNMENT) % factor
        phase = max(ahead - math.floor(ahead + ALIGNMENT), 0.0)
        first = self.first - (lead + phase) * self.step
        count = -(-(lead + self.weights.size) // factor)
        table = np.zeros((count, factor))
        # Weights that may be nothing but noise would blow up under the exponents of a tail bound.
        floor = self.noise / math.sqrt(self.weights.size)
        table.ravel()[lead : lead + self.weights.size] = np.where(
            self.weights > floor, self.weights, 0.0
        )
        place = (np.arange(factor) + phase) * self.step
        coarse = first + step * np.arange(count)
        table *= np.exp(np.minimum(self.log_scale - self.tilt * coarse, 700.0))[:, None]
        table *= np.exp(-self.tilt * place)
        on_edge = np.zeros(count + 1)
        if phase < ALIGNMENT:
            on_edge[:-1] = table[:, 0]
            table[:, 0] = 0.0
        raised = (table * (np.expm1(-place) / math.expm1(-step))).sum(axis=1)
        masses = round_cells(step, table.sum(axis=1), raised, on_edge, upper=upper)
        mass_inf = self.mass_inf + (self.above if upper else 0.0)
        misplaced = self.misplaced + 2 * self.noise * math.sqrt(self.weights.size)
        return Lattice(
            step,
            first,
            np.arange(count + 1),
            masses,
            mass_inf,
            misplaced,
            self.label_error,
            self.scale_error,
        )

    def coarse_offset(self, factor: int) -> float:
        """Return where coarse nodes waste least: it matters for sums that are nearly an atom."""
        heaviest = int(np.argmax(self.weights))
        if self.weights[heaviest] < _ATOM_WEIGHT:
            return self.first
        low = max(heaviest - 2 * factor, 0)
        weights = np.maximum(self.weights[low : heaviest + 25 * factor], _FAINT_WEIGHT)
        losses = self.first + self.step * np.arange(low, low + weights.size)
        start = int(np.argmax(np.cumsum(weights) > 1e-3 * weights.sum()))
        losses, weights = losses[start:], weights[start:]
        log_masses = np.log(weights) - self.tilt * (losses - losses[0])
        local = FinitePair(tuple(losses.tolist()), tuple(log_masses.tolist()))
        return lowest_node(local, factor * self.step, 0.0)


def _geometric(x: float) -> float:
    """Return the sum of exp(-k x) over k >= 1."""
    if x <= 0:
        return math.inf
    return 1 / math.expm1(x) if x < 700 else 0.0
