"""The pair of a sampled Gaussian sum under replace-one: contributions on opposite sides of none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._pairs.gaussian import (
    MOST_NORMAL_NODES,
    NORMAL_REACH,
    NORMAL_STEP,
    gaussian_profile,
    tail_error,
)
from taut.accounting._pairs.pair import Cells, Pair, Quadrature, gauss_rule

__all__ = ["OppositePair"]

_LARGE_RATIO = 40.0  # log of an argument from where asinh(x) = log(2 x) but for exp(-80)
# Cells whose width times (1 + position + 2 mu) is less are integrated: eight nodes of Gauss's rule
# err by (8!)^4 / (17 (16!)^3) / 2^16 < 1e-27 times a derivative of at most 1e7.
_NARROW_CELL = 0.5
_OPPOSITE_NODES, _OPPOSITE_WEIGHTS = gauss_rule(8)  # for narrow cells: see `_NARROW_CELL`
_LEAST_LOSS = 1e-100  # of a node of the grid; between closer ones a slope would overflow
_LARGEST_OUTPUT = 1e100  # outputs up to here have a square; no mass lies beyond


@dataclass(frozen=True)
class OppositePair(Pair):
    """P = (1 - rate) N(0, 1) + rate N(mu, 1) against Q = (1 - rate) N(0, 1) + rate N(-mu, 1).

    It dominates a Poisson-sampled sum with normal noise under replace-one, in any dimension, where
    taking a record out of the sample moves the sum by at most mu deviations of the noise
    (docs/theory/joint.md). With k = rate / (1 - rate) exp(-mu^2 / 2) the loss at the output x is

        l(x) = log(1 + k exp(mu x)) - log(1 + k exp(-mu x)),

    which is odd and increasing, and mu x = l / 2 + asinh(sinh(l / 2) / k).
    """

    mu: float
    rate: float

    @property
    def profile_error(self) -> float:  # type: ignore[override]
        """Two Gaussian profiles, at an output that is rounded."""
        return RELATIVE_ERROR * (4096 + 64 / self.mu)

    @property
    def max_loss(self) -> float:
        """Normal tails make the loss unbounded."""
        return math.inf

    @cached_property
    def _log_k(self) -> float:
        return math.log(self.rate) - math.log1p(-self.rate) - self.mu**2 / 2

    def _loss(self, x: Vector) -> Vector:
        """Return the loss at outputs; near zero a difference of logarithms would lose digits."""
        at = self.mu * np.abs(x)
        high = np.logaddexp(0.0, self._log_k + at)
        low = np.logaddexp(0.0, self._log_k - at)
        with np.errstate(over="ignore", invalid="ignore"):
            rise = 2 * np.sinh(np.minimum(at, 600.0)) * math.exp(max(self._log_k, -700.0))
            near = np.log1p(rise * np.exp(-low))
        value = np.where((at < 1.0) & (self._log_k > -600.0), near, high - low)
        return np.sign(x) * value

    def _output(self, losses: Vector) -> Vector:
        """Return the output at which the loss takes each value."""
        size = np.minimum(np.abs(losses), 1e200)  # outputs end before; sums of these stay floats
        with np.errstate(divide="ignore", over="ignore"):
            # log(2 sinh(l / 2) / k)
            log_ratio = size / 2 + np.log(-np.expm1(-size)) - self._log_k
            ratio = np.exp(np.minimum(log_ratio, _LARGE_RATIO)) / 2
        spread = np.where(log_ratio < _LARGE_RATIO, np.arcsinh(ratio), log_ratio)
        return np.sign(losses) * np.minimum((size / 2 + spread) / self.mu, _LARGEST_OUTPUT)

    def profile(self, epsilon: Vector) -> Vector:
        """Return the profile as a sum of two terms that are not negative.

        At l(x) = e the common part, (1 - rate) (exp(e) - 1) of N(0, 1), can be written by the
        densities of the two contributions at x, and splits between them.
        """
        epsilon = np.asarray(epsilon, dtype=float)
        at = np.abs(epsilon)
        x = self._output(at)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            mine = gaussian_profile(self.mu, x - self.mu)
            # exp(e - mu x - mu^2 / 2) is at most one: mu x >= e.
            other = np.exp(at - self.mu * x - self.mu**2 / 2) * gaussian_profile(self.mu, x)
            above = self.rate * (mine + np.where(other > 0, other, 0.0))
            swapped = -np.expm1(epsilon) + np.exp(np.minimum(epsilon, 0.0)) * above
        return np.where(epsilon >= 0, above, swapped)

    def grid(self, tail: float, size: int) -> Vector:
        """Return losses at equispaced outputs over the bulk of both distributions."""
        low, high = 0.0, self.mu - float(ndtri(tail))
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._above(middle) > tail else (low, middle)
        losses = self._loss(np.linspace(-high, high, size))
        return np.unique(np.where(np.abs(losses) < _LEAST_LOSS, 0.0, losses))

    def _above(self, x: float) -> float:
        """Return the P-mass above ``x``, which is the Q-mass below -x."""
        return float((1 - self.rate) * ndtr(-x) + self.rate * ndtr(self.mu - x))

    def cells(self, edges: Vector) -> Cells:
        """Return integrals for narrow cells, and differences of tails for wide ones."""
        x = self._output(edges)
        parts = [np.zeros(edges.size - 1) for _ in range(4)]
        spread = np.diff(x) * (1 + np.abs(x[:-1]) + 2 * self.mu)
        narrow = spread < _NARROW_CELL
        for fill, chosen in ((self._integrals, narrow), (self._differences, ~narrow)):
            at = np.flatnonzero(chosen)
            values = fill(edges[at], x[at], x[at + 1])
            for part, value in zip(parts, values, strict=True):
                part[at] = value
        mass, q_mass, surplus, error = parts
        return Cells(mass, q_mass, np.clip(surplus, 0.0, mass), error)

    def _integrals(self, losses: Vector, left: Vector, right: Vector) -> tuple[Vector, ...]:
        """Return mass, q_mass, surplus and error; the change of the loss needs no subtraction."""
        width = (right - left)[:, None]
        inside = width * _OPPOSITE_NODES
        x = left[:, None] + inside
        weight = width * _OPPOSITE_WEIGHTS / math.sqrt(2 * math.pi)
        with np.errstate(under="ignore", over="ignore"):
            up = 1 / (1 + np.exp(np.minimum(-self._log_k - self.mu * left, 700.0)))[:, None]
            down = 1 / (1 + np.exp(np.minimum(-self._log_k + self.mu * left, 700.0)))[:, None]
            gain = np.log1p(up * np.expm1(self.mu * inside))
            gain = gain - np.log1p(down * np.expm1(-self.mu * inside))
            q_density = self._density(x, weight, -self.mu)
            p_density = self._density(x, weight, self.mu)
        # p - exp(l_0) q = p (1 - exp(l_0 - l)).
        surplus = (p_density * -np.expm1(-gain)).sum(axis=1)
        error = RELATIVE_ERROR * (32 + np.abs(losses) + left**2) * surplus
        return p_density.sum(axis=1), q_density.sum(axis=1), surplus, error

    def _density(self, x: Vector, weight: Vector, shift: float) -> Vector:
        """Return the mass of the mixture with the given shift at nodes of given weights."""
        plain, moved = np.exp(-0.5 * x**2), np.exp(-0.5 * (x - shift) ** 2)
        mass: Vector = weight * ((1 - self.rate) * plain + self.rate * moved)
        return mass

    def _differences(self, losses: Vector, left: Vector, right: Vector) -> tuple[Vector, ...]:
        """Return mass, q_mass, surplus and error of wide cells from tails on the small side."""
        p_far, p_near, p_error = self._tails(left, right, self.mu)
        q_far, q_near, q_error = self._tails(left, right, -self.mu)
        with np.errstate(over="ignore", invalid="ignore"):
            factor = np.exp(np.minimum(losses, 700.0))
            mass, q_mass = np.maximum(p_near - p_far, 0.0), np.maximum(q_near - q_far, 0.0)
            cost = factor * (q_near + q_far)
            error = p_error * (mass + p_near + p_far) + q_error * (1 + np.abs(losses)) * cost
            surplus = mass - factor * q_mass
        # Where a product overflows, all of the mass is as much as can be in excess.
        known = np.isfinite(surplus) & np.isfinite(error)
        return mass, q_mass, np.where(known, surplus, mass), np.where(known, error, mass)

    def _tails(self, left: Vector, right: Vector, shift: float) -> tuple[Vector, Vector, Vector]:
        """Return the farther and nearer tail of a mixture, and their relative error."""
        above = left > 0
        far, near = np.where(above, -right, left), np.where(above, -left, right)
        moved = np.where(above, shift, -shift)
        tails = [(1 - self.rate) * ndtr(end) + self.rate * ndtr(end + moved) for end in (far, near)]
        error = np.max(
            [tail_error(end + part, self.mu) for end in (far, near) for part in (0.0, moved)],
            axis=0,
        )
        return tails[0], tails[1], error

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return trapezoid nodes in the output, which converge exponentially."""
        # The loss rises by at most 2 mu for each unit of the output, which moves the peak.
        ahead = NORMAL_REACH + 2 * self.mu * (max(tilt, 0.0) + 2)
        behind = NORMAL_REACH + 4 * self.mu
        step = min(NORMAL_STEP, 0.25 / (self.mu * max(frequency, 1.0)))
        nodes = min(max(math.ceil((ahead + behind) / step), 512), MOST_NORMAL_NODES)
        x = np.linspace(-behind, ahead, nodes)
        log_weights = -0.5 * x**2 - 0.5 * math.log(2 * math.pi) + math.log(x[1] - x[0])
        mixed = np.logaddexp(
            math.log1p(-self.rate), math.log(self.rate) + self.mu * x - self.mu**2 / 2
        )
        return Quadrature(self._loss(x), log_weights + mixed)
