"""Moments of Gaussian or Laplace noise plus uniform noise, bounded from above.

log E (f(x - v) / f(x))^k for a shift v, by quadratures whose errors are bounded and added: the
trapezoid rule for a Gaussian, Gauss-Legendre panels for Laplace noise. The derivations are in
docs/theory/mixed-noise.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._mechanisms.cumulant_tables import gaussian_cumulants

__all__ = [
    "NARROW",
    "gaussian_uniform_cumulants",
    "laplace_cumulants",
    "laplace_uniform_cumulants",
    "log_window",
]

NARROW = 0.01
"""Widths below this many units of the other noise are ignored: safe, and 1e-5 of its variance."""

_ORDER_GROUPS = (8, 32, 128, 256)  # orders up to each share nodes, whose step shrinks by their root
_EXPONENT_BLOCK = 2**21  # exponents worked on at a time: 16 megabytes
_MOST_MOMENT_NODES = 250_000  # for 256 orders half a second; beyond, the other noise alone counts
_EDGE_REACH = 12.0  # standard deviations beyond an edge, where Gaussian tails are below 1e-32
_EDGE_DECAY = (
    40.0  # e-folds beyond an edge, where exponential tails are below 1e-17; bounded, added
)


class _Nodes(NamedTuple):
    """Nodes of a quadrature of f(x - v)^k f(x)^(1-k), in logarithms.

    Attributes:
        shifted: log f(x - v), shape (n,).
        unshifted: log f(x), shape (n,).
        error: bound on the rounding error of either, shape (n,).
        log_weights: logarithms of the weights, shape (n,).
    """

    shifted: Vector
    unshifted: Vector
    error: Vector
    log_weights: Vector

    def log_sums(self, orders: Vector) -> Vector:
        """Return the logarithm of the sum for every order, rounded up."""
        out = np.empty(orders.size)
        rows = max(1, _EXPONENT_BLOCK // self.shifted.size)
        for start in range(0, orders.size, rows):
            k = orders[start : start + rows, None]
            terms = k * self.shifted + (1 - k) * self.unshifted + self.log_weights
            terms += (2 * k - 1) * self.error + RELATIVE_ERROR * np.abs(terms)
            peak = terms.max(axis=1)
            out[start : start + rows] = peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1))
        # Pairwise summation errs by a few units in the last place.
        return out + RELATIVE_ERROR * (2 + np.abs(out))


# --- a Gaussian plus uniform noise ---------------------------------------------------------------


def log_window(low: Vector, high: Vector) -> Vector:
    """Return log(Phi(high) - Phi(low)) for low < high, without cancellation in the tails."""
    return _window(low, high, 0.0)[0]


def _window(low: Vector, high: Vector, shift: float) -> tuple[Vector, Vector]:
    """Return log(Phi(high) - Phi(low)) and a bound on its error, both bounds less ``shift``."""
    low, high = low - shift, high - shift
    mirrored = low + high < 0
    low, high = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    near, far = log_ndtr(-low), log_ndtr(-high)
    ratio = np.exp(far - near)
    value = near + np.log1p(-ratio)
    spread = ratio * (1 + np.abs(near) + np.abs(far)) / (1 - ratio)
    # The score is at most that of one edge; it turns the error of a position into one of f.
    score = np.maximum(low, 0.0) + np.exp(-(np.minimum(low, 0.0) ** 2) / 2)
    at = np.abs(low) + shift
    return value, RELATIVE_ERROR * (np.abs(near) + spread + np.abs(value) + score * at)


@lru_cache(maxsize=128)
def gaussian_uniform_cumulants(shift: float, width: float, largest: int) -> Vector:
    """Return log int f(x - shift)^k f(x)^(1-k) dx, rounded up, at k = 0 to ``largest``.

    f is the density of a standard normal plus an independent uniform on [-width/2, width/2].
    Never above the Gaussian value k (k - 1) shift^2 / 2, since uniform noise is post-processing;
    equal to it for widths below ``NARROW``, orders above 256, and where the nodes would be many.
    """
    table = gaussian_cumulants(shift, largest)
    if width < NARROW or shift == 0:
        return table
    first = 2
    for last in _ORDER_GROUPS:
        orders = np.arange(first, min(last, largest) + 1.0)
        step = width / math.ceil(width * math.sqrt(last) / 0.22)
        nodes = (4 * _EDGE_REACH + (last + 1) * shift) / step
        if orders.size and nodes <= _MOST_MOMENT_NODES:
            found = _edges(shift, width, step, float(orders[-1])).log_sums(orders)
            part = slice(first, first + orders.size)
            table[part] = np.clip(_with_plateau(found, shift, width, step), 0.0, table[part])
        first = last + 1
    return table


def _edges(shift: float, width: float, step: float, order: float) -> _Nodes:
    """Return the nodes around both edges of the plateau, or all if the edges are close.

    Positions are counted from an edge, so that wide plateaus cost no digits; ``width`` is a
    multiple of ``step``, so that both sets lie on one lattice.
    """
    before = -np.ceil(_EDGE_REACH / step)
    after_left = np.ceil((_EDGE_REACH + shift) / step)
    after_right = np.ceil((_EDGE_REACH + order * shift) / step)
    span = round(width / step)
    if after_left + -before >= span:
        left = np.arange(before, span + after_right + 1) * step
        right = np.empty(0)
    else:
        left = np.arange(before, after_left + 1) * step
        right = np.arange(before, after_right + 1) * step
    # Offsets from the upper and the lower edge: the density is Phi(b) - Phi(a), over the width.
    a, b = np.concatenate([left - width, right]), np.concatenate([left, right + width])
    unshifted, error = _window(a, b, 0.0)
    shifted, shifted_error = _window(a, b, shift)
    weights = np.full(a.size, math.log(step / width))
    return _Nodes(shifted, unshifted, np.maximum(error, shifted_error), weights)


def _with_plateau(log_sums: Vector, shift: float, width: float, step: float) -> Vector:
    """Return log moments from sums over the edges: add the plateau, the tails and the errors.

    The tails fall by a factor exp(-12 step) from node to node at least, and the sums contain
    their first nodes, which are below 1e-30 of the whole. The rule itself errs by 1e-16.
    """
    middle = (
        round(width / step)
        - math.ceil((_EDGE_REACH + shift) / step)
        - math.ceil(_EDGE_REACH / step)
        - 1
    )
    share = max(middle, 0) * step / width
    total = np.logaddexp(log_sums, math.log(share)) if share > 0 else log_sums
    return total + RELATIVE_ERROR * (1 + np.abs(total))


# --- Laplace plus uniform noise ------------------------------------------------------------------


def laplace_cumulants(shift: float, orders: Vector) -> Vector:
    """Return log int f(x - shift)^k f(x)^(1-k) dx of Laplace noise of scale 1, rounded up."""
    k = orders
    rising = np.log(k / (2 * k - 1)) + (k - 1) * shift
    falling = np.log((k - 1) / (2 * k - 1)) - k * shift
    value = np.logaddexp(rising, falling)
    return np.maximum(value + RELATIVE_ERROR * (1 + np.abs(rising)), 0.0)


@lru_cache(maxsize=128)
def laplace_uniform_cumulants(shift: float, width: float, largest: int) -> Vector:
    """Return log int f(x - shift)^k f(x)^(1-k) dx, rounded up, at k = 0 to ``largest``.

    f is the density of Laplace noise of scale 1 plus an independent uniform on
    [-width/2, width/2]. Never above the value without uniform noise, and equal to it for widths
    below ``NARROW``, orders above 256, and where the nodes would be many.
    """
    table = np.zeros(largest + 1)
    table[2:] = laplace_cumulants(shift, np.arange(2, largest + 1.0))
    if width < NARROW or shift == 0:
        return table
    first = 2
    for last in _ORDER_GROUPS:
        orders = np.arange(first, min(last, largest) + 1.0)
        panels = _panels(shift, width, last) if orders.size else None
        if panels is not None:
            part = slice(first, first + orders.size)
            found = panels.nodes.log_sums(orders)
            found = np.logaddexp(found, _outside(orders, shift, width, panels.plateau))
            found += panels.error + RELATIVE_ERROR * (2 + np.abs(found))
            table[part] = np.clip(found, 0.0, table[part])
        first = last + 1
    return table


class _Panels(NamedTuple):
    """Nodes of the panels, the length of the plateau left out, and a relative error bound."""

    nodes: _Nodes
    plateau: float
    error: float


def _panels(shift: float, width: float, order: int) -> _Panels | None:
    """Return Gauss-Legendre panels between the outermost kinks, None if there are too many.

    Within d of the real line f changes by a share of at most w(d), so the integrand by at most
    ((1 + w) / (1 - w))^k; an ellipse of parameter 10 around a panel of half-length d / 4.95 stays
    within d, and n + 1 nodes then err by 10^(-2n) of that (Trefethen 2013, Theorem 19.3).
    """
    steepness = 1 / -math.expm1(-width)
    d = min(0.5 / math.sqrt(order), 0.3 / math.sqrt(steepness))
    half = d / 4.95
    cut = width > 2 * _EDGE_DECAY + shift
    kinks = np.unique([0.0, min(shift, width), max(shift, width), width + shift])
    if cut:
        kinks = np.array([0.0, shift, shift + _EDGE_DECAY])
    edges = _split(kinks, 2 * half)
    if edges.size * _LEGENDRE_NODES.size > _MOST_MOMENT_NODES:
        return None
    left, log_weights = _legendre(edges)
    from_left, from_right = left, width - left
    if cut:
        right, more = _legendre(_split(np.array([-_EDGE_DECAY, 0.0, shift]), 2 * half))
        from_left = np.concatenate([from_left, right + width])
        from_right = np.concatenate([from_right, -right])
        log_weights = np.concatenate([log_weights, more])
    w = math.sinh(d) + 2 * (math.cosh(d) - 1) * steepness
    growth = order * math.log((1 + w) / (1 - w)) + 4 * order * half
    error = 2.2 * math.exp(growth - 2 * (_LEGENDRE_NODES.size - 1) * math.log(10))
    plateau = (width - shift - 2 * _EDGE_DECAY) / width if cut else 0.0
    unshifted, shifted = (
        _laplace_window(from_left - v, from_right + v, width) for v in (0.0, shift)
    )
    rounding = RELATIVE_ERROR * (2 + np.abs(shifted) + np.abs(unshifted))
    return _Panels(
        _Nodes(shifted, unshifted, rounding, log_weights - math.log(width)), plateau, error
    )


# On panels a tenth as large as their ellipse of analyticity they err by 1e-46 of the growth, which
# `_panels` bounds and adds.
_LEGENDRE_NODES, _LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(24)


def _split(kinks: Vector, longest: float) -> Vector:
    """Return the kinks with points between them, at most ``longest`` apart."""
    counts = np.ceil(np.diff(kinks) / longest).astype(np.int64)
    parts = [
        np.linspace(a, b, n + 1)[:-1] for a, b, n in zip(kinks, kinks[1:], counts, strict=False)
    ]
    return np.append(np.concatenate(parts), kinks[-1])


def _legendre(edges: Vector) -> tuple[Vector, Vector]:
    """Return the nodes of all panels between ``edges``, and logarithms of their weights."""
    half = np.diff(edges)[:, None] / 2
    nodes = edges[:-1, None] + half * (1 + _LEGENDRE_NODES)
    return nodes.ravel(), np.log(half * _LEGENDRE_WEIGHTS).ravel()


def _laplace_window(from_left: Vector, from_right: Vector, width: float) -> Vector:
    """Return log(width f) at points given by their distance to both edges, negative outside."""
    outside = -np.minimum(from_left, from_right)
    inside = -(np.expm1(-np.maximum(from_left, 0.0)) + np.expm1(-np.maximum(from_right, 0.0))) / 2
    beyond = math.log(-math.expm1(-width) / 2) - outside
    with np.errstate(divide="ignore"):
        return np.where(outside > 0, beyond, np.log(inside))


def _outside(orders: Vector, shift: float, width: float, plateau: float) -> Vector:
    """Return log of what lies beyond the outermost kinks, in closed form, plus the plateau."""
    tail = math.log(-math.expm1(-width) / (2 * width))
    ends = tail + np.logaddexp((orders - 1) * shift, -orders * shift)
    if plateau == 0:
        return ends
    # On the plateau f differs from 1 / width by a share of exp(-40) at most.
    return np.logaddexp(ends, math.log(plateau) + 2 * orders * math.exp(-_EDGE_DECAY))
