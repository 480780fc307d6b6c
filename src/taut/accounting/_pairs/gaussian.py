"""Pairs of normal distributions: the Gaussian mechanism, and unequal variances."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc, erfcinv, erfcx, ndtr, ndtri

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR, UP
from taut.accounting._pairs.pair import Cells, Pair, Quadrature, gauss_rule

__all__ = [
    "LARGEST_EXPONENT",
    "MOST_NORMAL_NODES",
    "NORMAL_REACH",
    "NORMAL_STEP",
    "GaussianPair",
    "VariancePair",
    "gaussian_profile",
    "mills_ratio",
    "normal_density",
    "tail_error",
]

_SQRT2 = math.sqrt(2.0)  # between the arguments of erfc and of the normal distribution
_SQRT_HALF_PI = math.sqrt(math.pi / 2)  # between erfcx and Mills' ratio
NORMAL_REACH = 39.0
"""Standard deviations beyond which the normal density is below the smallest float."""
NORMAL_STEP = 0.05
"""Of a trapezoid rule, in deviations: it errs by exp(-2 pi^2 / step^2) for a normal density.

That is nothing. Sampled, the integrand has branch points pi / mu off the line, and the rule errs by
exp(-2 pi^2 / (mu step)) of the density there: by 1e-17 for mu = 10, below 1e-13 for mu = 50.
"""
MOST_NORMAL_NODES = 2**20
"""Of such a rule: 8 megabytes a vector; with the step above they span 52,000 deviations."""
LARGEST_EXPONENT = 600.0
"""Beyond it products with exp are taken in logarithms; exp(600) = 4e260 leaves room for sums."""
# Cells whose width times (1 + position + mu) is less are integrated: six nodes of Gauss's rule then
# err by (6!)^4 / (13 (12!)^3) spread^12 < 1e-34 times a derivative of at most 1e5, relatively.
_NARROW_SPREAD = 0.03
_LEAST_TAIL = 1e-290  # smaller tails are near the end of the floats and have lost digits
_BULK_REACH = 3.0  # deviations; further out tails are as small as cells, and their difference does
_CELL_NODES, _CELL_WEIGHTS = gauss_rule(6)  # for narrow cells: see `_NARROW_SPREAD`
# Over the reach of the larger deviation; more, where they would be further apart than this share of
# the smaller one, at which the trapezoid rule errs by exp(-2 pi^2 / 0.4^2) = 3e-54.
_RADIUS_NODES, _RADIUS_STEP = 4097, 0.4
# Around the peak of a loss its fall is integrated: 24 nodes of Gauss's rule are exact for degree
# 47, and err by less than 1e-16 for a normal density up to `_PEAK_REACH` deviations.
_PEAK_NODES, _PEAK_WEIGHTS = gauss_rule(24)
_PEAK_REACH = 4.0  # further out the two terms of a profile differ by enough


@dataclass(frozen=True)
class GaussianPair(Pair):
    """P = N(0, 1) against Q = N(mu, 1): the loss is N(mu^2/2, mu^2) under P.

    The pair is symmetric, and dominates the Gaussian mechanism in any dimension when mu is
    l2-sensitivity / sigma (Dong, Roth and Su 2022, Theorem 2.7).
    """

    mu: float
    closed_form = True

    @property
    def profile_error(self) -> float:  # type: ignore[override]
        """The two terms of the profile cancel for small mu."""
        return RELATIVE_ERROR * (1024 + 16 / self.mu)

    @property
    def gaussian_mu(self) -> float:  # type: ignore[override]
        """The ratio of sensitivity to noise."""
        return self.mu

    @property
    def max_loss(self) -> float:
        """Gaussian tails make the loss unbounded."""
        return math.inf

    def profile(self, epsilon: Vector) -> Vector:
        """Return Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) (Balle and Wang 2018, Theorem 8)."""
        near = epsilon / self.mu - self.mu / 2  # minus the first argument
        far = near + self.mu
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            # exp(e) phi(far) = phi(near), so both terms share the factor phi(near) and only the
            # well-scaled Mills ratios are subtracted.
            density = normal_density(near)
            tail = density * (mills_ratio(near) - mills_ratio(far))
            cost = np.where(far > 0, density * mills_ratio(far), np.exp(epsilon) * ndtr(-far))
        return np.where(near > -1.0, tail, ndtr(-near) - cost)

    def grid(self, tail: float, size: int) -> Vector:
        """Return equispaced losses over the union of both distributions' bulk."""
        reach = -float(ndtri(tail))
        x = np.linspace(-reach - self.mu, reach, size)
        return self.mu * x + self.mu**2 / 2

    def cells(self, edges: Vector) -> Cells:
        """Return cell masses from tails on whichever side is small."""
        x = edges / self.mu - self.mu / 2
        far = x + self.mu
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            p_tail, q_tail = ndtr(-np.abs(x)), ndtr(-np.abs(far))
            scale = np.exp(np.minimum(edges, LARGEST_EXPONENT))
            scaled = scale * q_tail
            extreme = (edges > LARGEST_EXPONENT) | (q_tail < _LEAST_TAIL)
            if extreme.any():  # exp(edge) phi(far) = phi(x) keeps the product in range
                scaled[extreme] = normal_density(x[extreme]) * mills_ratio(np.abs(far[extreme]))
            one = np.ones(edges.size - 1)
            mass = _between(x, p_tail, one, one)
            q_mass = _between(far, q_tail, one, one)
            shrink = np.exp(edges[:-1] - edges[1:])
            surplus = mass - _between(far, scaled, scale[:-1], shrink)
        p_off, q_off = tail_error(x, self.mu) * p_tail, tail_error(far, self.mu) * scaled
        error = RELATIVE_ERROR * mass + p_off[:-1] + p_off[1:] + q_off[:-1] + q_off[1:] * shrink
        cells = Cells(mass, q_mass, np.clip(surplus, 0.0, mass), error)
        with np.errstate(over="ignore"):
            narrow = np.diff(x) * (1 + np.abs(x[:-1]) + self.mu) < _NARROW_SPREAD
        narrow &= np.abs(x[:-1]) < _BULK_REACH  # further out the tails are as small as the cells
        if narrow.any():
            self._integrate(x, narrow, cells)
        return cells

    def _integrate(self, x: Vector, narrow: NDArray[np.bool_], cells: Cells) -> None:
        """Fill in ``narrow`` cells by Gauss's rule: differences of tails would lose digits."""
        left, width = x[:-1][narrow], np.diff(x)[narrow]
        inside = width[:, None] * _CELL_NODES
        with np.errstate(over="ignore", under="ignore"):
            p = normal_density(left[:, None] + inside) * (width[:, None] * _CELL_WEIGHTS)
            q = normal_density(left[:, None] + inside + self.mu) * (width[:, None] * _CELL_WEIGHTS)
        cells.mass[narrow] = p.sum(axis=1)
        cells.q_mass[narrow] = q.sum(axis=1)
        cells.surplus[narrow] = -(p * np.expm1(-self.mu * inside)).sum(axis=1)
        cells.error[narrow] = 16 * RELATIVE_ERROR * cells.surplus[narrow]

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return trapezoid nodes in x, which converge exponentially for the normal density."""
        # exp(tilt L) moves the peak by tilt mu; sampling looks at both distributions.
        peaks = np.array([-self.mu, 0.0, self.mu * tilt, self.mu * (tilt + 2)])
        # Neighbouring nodes must not differ by much of a turn of exp(i frequency L).
        step = min(NORMAL_STEP, 0.5 / max(self.mu * frequency, 1e-9))
        span = peaks[-1] - peaks[0] + 2 * NORMAL_REACH
        if span <= MOST_NORMAL_NODES * NORMAL_STEP:
            x, step = np.linspace(
                peaks[0] - NORMAL_REACH,
                peaks[-1] + NORMAL_REACH,
                min(max(math.ceil(span / step), 512), MOST_NORMAL_NODES),
                retstep=True,
            )
        else:  # so far apart, nothing but the peaks matters
            step = NORMAL_STEP
            window = np.arange(-NORMAL_REACH, NORMAL_REACH, step)
            x = (np.unique(peaks)[:, None] + window).ravel()
        log_weights = -0.5 * x**2 - 0.5 * math.log(2 * math.pi) + math.log(step)
        return Quadrature(self.mu * x + self.mu**2 / 2, log_weights)

    def log_mgf(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return mu^2 z (z + 1) / 2."""
        return 0.5 * self.mu**2 * z * (z + 1)


@dataclass(frozen=True)
class VariancePair(Pair):
    """P = N(0, sigma_p^2) against Q = N(0, sigma_q^2) (Zhu, Dong and Wang 2022, Example 5).

    The loss is peak - curvature x^2; it is unbounded above exactly if sigma_p > sigma_q.
    """

    sigma_p: float
    sigma_q: float

    @property
    def profile_error(self) -> float:  # type: ignore[override]
        """The two terms of the profile cancel for nearly equal variances."""
        return RELATIVE_ERROR * (4096 + 1024 / abs(1 - (self.sigma_q / self.sigma_p) ** 2))

    @property
    def _peak(self) -> float:
        return math.log1p((self.sigma_q - self.sigma_p) / self.sigma_p)

    @property
    def _curvature(self) -> float:
        return 0.5 * (self.sigma_p**-2 - self.sigma_q**-2)

    @property
    def max_loss(self) -> float:
        """The loss at x = 0, or infinity where it grows with x."""
        return self._peak * UP if self.sigma_p < self.sigma_q else math.inf

    def profile(self, epsilon: Vector) -> Vector:
        """Return P[L > e] - exp(e) Q[L > e]."""
        x = self._radius(epsilon)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            p, cost = erfc(x / (self.sigma_p * _SQRT2)), self._scaled_tail(x)
            if self.sigma_p < self.sigma_q:
                p, cost = 1 - p, np.exp(np.minimum(epsilon, self._peak)) - cost
            value: Vector = np.maximum(np.maximum(p - cost, -np.expm1(epsilon)), 0.0)
        if self.sigma_p < self.sigma_q:
            near = (self._curvature * x**2 < 1) & (x < _PEAK_REACH * self.sigma_p)
            near &= epsilon < self._peak
            value = np.where(near, self._near_peak(x), value)
        return value

    def _near_peak(self, x: Vector) -> Vector:
        """Return the integral of p (1 - exp(e - L)) over |y| < x, free of cancellation."""
        y = x[..., None] * _PEAK_NODES
        gain = -np.expm1(-self._curvature * (x[..., None] ** 2 - y**2))
        density = normal_density(y / self.sigma_p) / self.sigma_p
        value: Vector = 2 * x * (density * gain * _PEAK_WEIGHTS).sum(axis=-1)
        return value

    def grid(self, tail: float, size: int) -> Vector:
        """Return losses equispaced in x."""
        widest = max(self.sigma_p, self.sigma_q)
        x = np.linspace(0.0, widest * _SQRT2 * float(erfcinv(tail)), size)
        return np.unique(self._peak - self._curvature * x**2)

    def cells(self, edges: Vector) -> Cells:
        """Return cell masses from tails on whichever side is small."""
        x = self._radius(edges)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            outer = [erfc(x / (sigma * _SQRT2)) for sigma in (self.sigma_p, self.sigma_q)]
            mass, q_mass = (np.abs(np.diff(tail)) for tail in outer)
            scaled = self._scaled_tail(x)
            # Beyond the largest loss the radius is 0 and does not belong to the edge.
            inside = np.minimum(edges, self._peak) if self.sigma_p < self.sigma_q else edges
            inside = np.maximum(inside, self._peak) if self.sigma_p > self.sigma_q else inside
            shrink = np.exp(inside[:-1] - inside[1:])
            cost = np.abs(scaled[:-1] - shrink * scaled[1:])
            cost = np.where(cost > 0, cost * np.exp(np.minimum(edges[:-1] - inside[:-1], 0.0)), 0.0)
            off = tail_error(x / self.sigma_p)
            p_off, q_off = off * outer[0], off * scaled
            error = p_off[:-1] + p_off[1:] + q_off[:-1] + shrink * q_off[1:]
        return Cells(mass, q_mass, np.clip(mass - cost, 0.0, mass), error)

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return trapezoid nodes in x over the wider of the two distributions."""
        narrow, wide = sorted((self.sigma_p, self.sigma_q))
        needed = min(NORMAL_REACH * wide / (_RADIUS_STEP * narrow), MOST_NORMAL_NODES)
        x = np.linspace(0.0, NORMAL_REACH * wide, max(_RADIUS_NODES, math.ceil(needed)))
        step = x[1] - x[0]
        log_weights = -0.5 * (x / self.sigma_p) ** 2 + math.log(
            2 * step / (self.sigma_p * math.sqrt(2 * math.pi))
        )
        log_weights[0] -= math.log(2)
        return Quadrature(self._peak - self._curvature * x**2, log_weights)

    def log_mgf(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the closed form; infinite where the integral diverges."""
        z = np.asarray(z, dtype=np.complex128)
        precision = (1 + z) / self.sigma_p**2 - z / self.sigma_q**2
        with np.errstate(divide="ignore", invalid="ignore"):
            value = (
                -(1 + z) * math.log(self.sigma_p)
                + z * math.log(self.sigma_q)
                - 0.5 * np.log(precision)
            )
        return np.where(precision.real > 0, value, complex(math.inf))

    def _radius(self, epsilon: Vector) -> Vector:
        return np.sqrt(np.maximum((self._peak - epsilon) / self._curvature, 0.0))

    def _scaled_tail(self, x: Vector) -> Vector:
        """Return p(x)/q(x) times the Q-mass beyond radius ``x``, without overflow."""
        y_p, y_q = x / (self.sigma_p * _SQRT2), x / (self.sigma_q * _SQRT2)
        tail: Vector = (self.sigma_q / self.sigma_p) * np.exp(-(y_p**2)) * erfcx(y_q)
        return tail


def normal_density(x: Vector) -> Vector:
    """Return the standard normal density."""
    return np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)


def tail_error(x: Vector, offset: float = 0.0) -> Vector:
    """Return a bound on the relative error of the normal tail beyond ``x``, as it is computed.

    A tail falls like exp(-x^2 / 2), so that the rounding of x, of x^2 and of x^2 / 2 are magnified:
    by 1.75 x^2 units in the last place, and by |x| ``offset`` / 4 more if x is a difference of
    numbers as large as the offset. Beyond the reach tails are zero.
    """
    reach = np.minimum(np.abs(x), NORMAL_REACH)
    bound: Vector = RELATIVE_ERROR * (1 + reach * (reach + offset) / 4)
    return bound


def mills_ratio(x: Vector) -> Vector:
    """Return (1 - Phi(x)) / phi(x)."""
    ratio: Vector = _SQRT_HALF_PI * erfcx(x / _SQRT2)
    return ratio


def gaussian_profile(mu: Vector | float, near: Vector) -> Vector:
    """Return Phi(-near) - exp(mu near + mu^2 / 2) Phi(-near - mu), the profile of one shift."""
    far = near + mu
    density = normal_density(near)
    tail = density * (mills_ratio(near) - mills_ratio(far))
    cost = np.where(far > 0, density * mills_ratio(far), np.exp(mu * (near + mu / 2)) * ndtr(-far))
    return np.where(near > -1.0, tail, ndtr(-near) - cost)


def _between(x: Vector, tail: Vector, total: Vector, shrink: Vector) -> Vector:
    """Return the masses between consecutive ``x`` from the tails on either side of zero.

    ``tail[i]`` is the probability beyond x[i] on its own side of zero in the scale of edge i;
    ``shrink[i]`` brings edge i + 1 to that scale, in which ``total[i]`` is the whole mass.
    """
    left, right = tail[:-1], tail[1:] * shrink
    one_sided = np.where(x[1:] <= 0, right - left, left - right)
    straddling = (x[:-1] <= 0) & (x[1:] > 0)
    return np.maximum(np.where(straddling, total - left - right, one_sided), 0.0)
