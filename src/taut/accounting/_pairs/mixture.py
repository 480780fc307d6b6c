"""The pair of a mixture of Gaussians with positive shifts.

A shift of zero is a record that was not sampled, so :class:`MixturePair` holds positive shifts only
and :class:`~taut.accounting._pairs.sampled.SampledPair` does the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._adjacency import Half
from taut.accounting._pairs.gaussian import (
    LARGEST_EXPONENT,
    MOST_NORMAL_NODES,
    NORMAL_REACH,
    NORMAL_STEP,
    gaussian_profile,
    tail_error,
)
from taut.accounting._pairs.pair import Cells, Pair, Quadrature, gauss_rule

__all__ = ["MixturePair"]

_LARGEST_LOSS = 1e200  # stands for an infinite loss; its square still has a sign
_OUTPUT_ENTRIES = 2**19  # of a table of outputs and components, worked on at a time: 4 megabytes
_INVERSE_KNOTS = 192  # between which inverses are interpolated, to start Newton's method near
_MOST_NEWTON_STEPS = 200  # from at most log(components) above a convex function's root: some ten do
_SQUARABLE_OUTPUT = 1e100  # outputs up to here have a square; no mass lies beyond
_SETTLED_ERROR = 4e-16  # relative to the parts of an excess: two units, its own rounding
# Cells whose width times (1 + position + largest shift) is less are integrated: eight nodes of
# Gauss's rule err by (8!)^4 / (17 (16!)^3) / 2^16 < 1e-27 times a derivative of at most 1e7.
_NARROW_CELL = 0.5
_TAYLOR_TERMS = 15  # of exp, up to the one left out: 0.5^14 / 15! = 5e-17 of the first


_MIXED_NODES, _MIXED_WEIGHTS = gauss_rule(8)  # for narrow cells: see `_NARROW_CELL`


@dataclass(frozen=True)
class MixturePair(Pair):
    """One half of a mixture of Gaussians whose shifts are all positive.

    With the record the output x is sum_k w_k N(c_k, 1), without it N(0, 1); ``REMOVE`` reads the
    former against the latter, ``ADD`` the reverse. The log ratio

        l(x) = log sum_k w_k exp(c_k x - c_k^2 / 2)

    is convex and increasing, so it has an inverse, found by Newton's method from the right.

    Attributes:
        weights: positive, summing to one.
        shifts: positive and increasing, in units of the noise.
        half: the direction.
    """

    weights: tuple[float, ...]
    shifts: tuple[float, ...]
    half: Half

    @property
    def profile_error(self) -> float:  # type: ignore[override]
        """Every component errs like a Gaussian; when adding, the smallest shift decides far out."""
        smallest = self.shifts[0] if self._sign < 0 else float(self._c @ np.exp(self._log_w))
        return RELATIVE_ERROR * (4096 + 64 / smallest)

    @property
    def max_loss(self) -> float:
        """Gaussian tails make the loss unbounded when every shift is positive."""
        return math.inf

    def profile(self, epsilon: Vector) -> Vector:
        """Return a sum of Gaussian profiles with positive weights, so that nothing cancels.

        At the x with l(x) = e, or -e when adding, P[l > e] - exp(e) Q[l > e] splits into the
        profiles of the single shifts at their own log ratios c x - c^2 / 2.
        """
        epsilon = np.asarray(epsilon, dtype=float)
        y = self._position(epsilon.ravel())
        value = np.empty_like(y)
        for part in self._blocks(y.size):
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                near = y[part, None] - (self._c if self._sign > 0 else 0.0)
                single = gaussian_profile(self._c, near)
                weights = np.exp(self._log_w) if self._sign > 0 else self._posterior(-y[part])
                value[part] = (weights * single).sum(axis=1)
        return value.reshape(epsilon.shape)

    def grid(self, tail: float, size: int) -> Vector:
        """Return losses at equispaced outputs over the bulk of both distributions."""
        x = np.linspace(float(ndtri(tail)), self._upper_quantile(tail), size)
        losses = self._sign * self._log_ratio(x)
        return np.unique(losses)

    def cells(self, edges: Vector) -> Cells:
        """Return differences of tails for wide cells, and integrals for narrow ones."""
        y = self._position(edges)
        parts = [np.zeros(edges.size - 1) for _ in range(4)]
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.diff(y) * (1 + np.abs(y[:-1]) + self._c[-1])
        narrow = (spread < _NARROW_CELL) & (np.abs(y[:-1]) < _SQUARABLE_OUTPUT)
        for fill, chosen in ((self._integrals, narrow), (self._differences, ~narrow)):
            at = np.flatnonzero(chosen)
            for block in self._blocks(at.size):
                here = at[block]
                values = fill(edges[here], y[here], y[here + 1])
                for part, value in zip(parts, values, strict=True):
                    part[here] = value
        mass, q_mass, surplus, error = parts
        return Cells(mass, q_mass, np.clip(surplus, 0.0, mass), error)

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return trapezoid nodes in the output, which converge exponentially."""
        largest = float(self._c[-1])
        # exp(tilt L) moves the peak by up to tilt times the largest shift; its branch points are
        # pi / largest off the real axis.
        ahead, behind = NORMAL_REACH + largest * (tilt + 2), NORMAL_REACH + largest
        step = min(NORMAL_STEP, 0.5 / (largest * max(frequency, 1.0)))
        nodes = min(max(math.ceil((ahead + behind) / step), 512), MOST_NORMAL_NODES)
        y = np.linspace(-behind, ahead, nodes)
        losses = self._loss_at(y)
        log_weights = -0.5 * y**2 - 0.5 * math.log(2 * math.pi) + math.log(y[1] - y[0])
        return Quadrature(losses, log_weights + losses if self._sign > 0 else log_weights)

    @cached_property
    def _c(self) -> Vector:
        return np.array(self.shifts)

    @cached_property
    def _log_w(self) -> Vector:
        logs: Vector = np.log(np.array(self.weights))
        return logs

    @cached_property
    def _powers(self) -> Vector:
        """The first powers of the shifts, relative to the largest, shape (components, powers)."""
        powers: Vector = np.power.outer(self._c / self._c[-1], np.arange(1.0, _TAYLOR_TERMS))
        return powers

    @property
    def _sign(self) -> int:
        """1 if the mixture is P, -1 if it is Q; the loss increases with y = sign * x."""
        return 1 if self.half is Half.REMOVE else -1

    def _blocks(self, size: int) -> list[slice]:
        rows = max(1, _OUTPUT_ENTRIES // self._c.size)
        return [slice(start, start + rows) for start in range(0, size, rows)]

    def _exponents(self, x: Vector) -> Vector:
        return self._log_w + self._c * (x[:, None] - self._c / 2)

    def _log_ratio(self, x: Vector) -> Vector:
        """Return l(x)."""
        value = np.empty_like(x)
        for part in self._blocks(x.size):
            exponents = self._exponents(x[part])
            peak = exponents.max(axis=1)
            value[part] = peak + np.log(np.exp(exponents - peak[:, None]).sum(axis=1))
        return value

    def _loss_at(self, y: Vector) -> Vector:
        return self._sign * self._log_ratio(self._sign * y)

    def _posterior(self, x: Vector) -> Vector:
        """Return the weights of the components given the output, shape (outputs, components)."""
        exponents = self._exponents(x)
        terms = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        weights: Vector = terms / terms.sum(axis=1, keepdims=True)
        return weights

    def _position(self, losses: Vector) -> Vector:
        """Return the y at which the loss takes each value."""
        targets = self._sign * np.clip(losses, -_LARGEST_LOSS, _LARGEST_LOSS)
        start = self._start(targets)
        if targets.size > 2 * _INVERSE_KNOTS:
            self._refine_start(targets, start)
        for part in self._blocks(targets.size):
            start[part] = self._invert(targets[part], start[part])
        return self._sign * start

    def _start(self, targets: Vector) -> Vector:
        """Return outputs to the right of the solution: where the first single term suffices."""
        start = np.full(targets.size, math.inf)
        for log_w, c in zip(self._log_w.tolist(), self._c.tolist(), strict=True):
            np.minimum(start, (targets - log_w) / c + c / 2, out=start)
        found: Vector = np.clip(start, -_SQUARABLE_OUTPUT, _SQUARABLE_OUTPUT)
        return found

    def _refine_start(self, targets: Vector, start: Vector) -> None:
        """Interpolate the inverse between knots where both distributions have their mass."""
        reach = np.array([-NORMAL_REACH, NORMAL_REACH + self._c[-1]])
        low, high = self._log_ratio(reach)
        inside = (targets > low) & (targets < high)
        ranked = np.sort(targets[inside])
        if ranked.size < _INVERSE_KNOTS:
            return
        knots = np.unique(ranked[np.linspace(0, ranked.size - 1, _INVERSE_KNOTS).astype(np.int64)])
        if knots.size < 2:
            return
        x = self._invert(knots, self._start(knots))
        slopes = 1 / (self._posterior(x) @ self._c)
        start[inside] = _hermite(knots, x, slopes, targets[inside])

    def _invert(self, targets: Vector, start: Vector) -> Vector:
        """Return l^{-1} by Newton's method; convexity makes it converge from either side."""
        x = start.copy()
        moving = np.arange(x.size)
        for _ in range(_MOST_NEWTON_STEPS):
            at = x[moving]
            exponents = self._exponents(at)
            peak = exponents.max(axis=1)
            terms = np.exp(exponents - peak[:, None])
            total = terms.sum(axis=1)
            slope = (terms @ self._c) / total
            excess = peak + np.log(total) - targets[moving]
            x[moving] = np.clip(at - excess / slope, -_SQUARABLE_OUTPUT, _SQUARABLE_OUTPUT)
            noise = _SETTLED_ERROR * (2 + np.abs(peak) + np.abs(at) * slope)
            moving = moving[np.abs(excess) > noise]
            if not moving.size:
                break
        return x

    def _upper_quantile(self, tail: float) -> float:
        """Return an x above which the mixture, and so N(0, 1) too, has at most ``tail``."""
        low, high = 0.0, float(self._c[-1]) - float(ndtri(tail))
        for _ in range(60):
            middle = (low + high) / 2
            above = float(np.exp(self._log_w + log_ndtr(self._c - middle)).sum())
            low, high = (middle, high) if above > tail else (low, middle)
        return high

    def _integrals(self, losses: Vector, left: Vector, right: Vector) -> tuple[Vector, ...]:
        """Return mass, q_mass, surplus and error of narrow cells by Gauss's rule.

        At the distance u from the lower edge the ratio of the densities has changed by the factor
        E exp(+-c u), with c drawn from the posterior there, so the surplus needs no subtraction.
        """
        width = right - left
        moments = self._posterior(self._sign * left) @ self._powers
        powers = np.arange(1, _TAYLOR_TERMS)
        factorials = np.array([float(math.factorial(j)) for j in powers])
        scaled = (self._sign * self._c[-1] * width[:, None]) ** powers / factorials
        gain = self._sign * ((moments * scaled) @ np.power.outer(_MIXED_NODES, powers).T)
        inside = width[:, None] * _MIXED_NODES
        log_density = -0.5 * (left[:, None] + inside) ** 2
        normal = np.exp(log_density) * (width[:, None] * _MIXED_WEIGHTS) / math.sqrt(2 * math.pi)
        change = np.exp(self._sign * losses[:, None] + log_density) * (
            width[:, None] * _MIXED_WEIGHTS / math.sqrt(2 * math.pi)
        )
        mixture = (change * (1 + self._sign * gain)).sum(axis=1)
        p_density = change if self._sign > 0 else normal
        surplus = (p_density * gain).sum(axis=1)
        error = RELATIVE_ERROR * (32 + np.abs(losses) + left**2) * surplus
        plain = normal.sum(axis=1)
        return (
            (mixture, plain, surplus, error) if self._sign > 0 else (plain, mixture, surplus, error)
        )

    def _differences(self, losses: Vector, left: Vector, right: Vector) -> tuple[Vector, ...]:
        """Return mass, q_mass, surplus and error of wide cells from tails on the small side."""
        plain = _tails(left[:, None], right[:, None])
        mixed = _tails(left[:, None] - self._sign * self._c, right[:, None] - self._sign * self._c)
        single, several = np.ones(1), np.exp(self._log_w)
        if self._sign > 0:
            (p, w_p), (q, w_q) = (mixed, several), (plain, single)
        else:
            (p, w_p), (q, w_q) = (plain, single), (mixed, several)
        far, near = (ndtr(part) @ w_p for part in p)
        q_far, q_near = (ndtr(part) @ w_q for part in q)
        cost_far, cost_near = (_raised(losses, part, w_q) for part in q)
        mass = np.maximum(near - far, 0.0)
        doubt = 1 + np.maximum(losses, 0.0)  # a product beyond the floats is taken in logarithms
        off = [
            np.maximum(*(tail_error(part, self._c[-1]).max(axis=1) for part in ends))
            for ends in (p, q)
        ]
        of_mass = off[0] * (mass + near + far)
        error = of_mass + off[1] * doubt * (cost_near + cost_far)
        # The surplus is between zero and the mass, also where what is taken from it overflows.
        told = np.isfinite(cost_near)
        cost = np.where(told, cost_near, 0.0) - np.where(told, cost_far, 0.0)
        return mass, np.maximum(q_near - q_far, 0.0), mass - cost, np.minimum(error, of_mass + mass)


def _tails(left: Vector, right: Vector) -> tuple[Vector, Vector]:
    """Return arguments whose normal distribution functions differ by the mass between.

    The farther one comes first; both are on the side of zero on which tails are small.
    """
    above = left > 0
    return np.where(above, -right, left), np.where(above, -left, right)


def _raised(losses: Vector, tail: Vector, weights: Vector) -> Vector:
    """Return exp(loss) times the weighted normal distribution functions at ``tail``."""
    with np.errstate(under="ignore"):
        value: Vector = np.exp(np.minimum(losses, LARGEST_EXPONENT)) * (ndtr(tail) @ weights)
        huge = losses > LARGEST_EXPONENT
        if huge.any():
            value[huge] = np.exp(losses[huge, None] + log_ndtr(tail[huge])) @ weights
    return value


def _hermite(knots: Vector, values: Vector, slopes: Vector, at: Vector) -> Vector:
    """Return the piecewise cubic through values and slopes at increasing ``knots``."""
    i = np.clip(np.searchsorted(knots, at) - 1, 0, knots.size - 2)
    width = knots[i + 1] - knots[i]
    t = (at - knots[i]) / width
    rise = values[i + 1] - values[i]
    bend = (1 - t) * (slopes[i] * width - rise) + t * (rise - slopes[i + 1] * width)
    curve: Vector = values[i] + t * rise + t * (1 - t) * bend
    return curve
