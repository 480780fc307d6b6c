"""Binomial sums of Renyi moments: what Poisson sampling does to a Renyi curve.

Everything here works on *cumulants* K(a) = (a - 1) eps(a), the logarithm of the a-th moment of the
likelihood ratio: they add up under composition, are convex in the order, and vanish at 0 and 1.
Arrays of cumulants are indexed by the integer order: shape (..., n + 1) for orders 0 to n.
All results are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from taut._base.arrays import Vector
from taut._base.floats import DOWN, RELATIVE_ERROR, UP, log_expm1

__all__ = [
    "LARGEST_ORDER",
    "LARGEST_TABLE",
    "LARGEST_TABULATED",
    "Orders",
    "divergences",
    "interpolated",
    "log1p_exp",
    "log_mean",
    "log_sums",
    "poisson_cumulants",
    "rounded_up",
]

Orders = NDArray[np.int64]

LARGEST_ORDER = 2**17
"""Largest order at which binomial sums are evaluated; beyond it the answer is infinite.

A sum has as many terms as its order: some milliseconds each. Infinity is sound, and other orders
prove something.
"""

LARGEST_TABLE = 2**12
"""The same where sums at all orders up to the largest are needed: work grows with the square."""

LARGEST_TABULATED = 2048
"""The same for tables of moments: larger ones matter for epsilons below 0.003 only."""

_CACHED_TERMS = 2**17  # worked on at a time: about what a cache holds
_LARGEST_KEPT = 2050  # largest order whose binomials are kept: some 17 MB
_ORDER_STRIP = 32  # orders worked on at a time, so that half of the square table is never touched


def log1p_exp(log_excess: Vector) -> Vector:
    """Return log(1 + exp(log_excess)), rounded up, never zero for what is only small."""
    value = np.logaddexp(0.0, log_excess) * UP
    return np.where(log_excess > -math.inf, np.maximum(value, np.finfo(float).tiny), 0.0)


def rounded_up(value: Vector, size: Vector) -> Vector:
    """Return a sum whose terms have total ``size``, rounded up; infinities stay as they are."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(value), value + RELATIVE_ERROR * size, value)


def _log_binomials(orders: Orders, j: Orders) -> Vector:
    a = orders[:, None]
    whole, part, rest = gammaln(a + 1.0), gammaln(j + 1.0), gammaln(np.maximum(a - j, 0) + 1.0)
    logs = np.where(j <= a, whole - part - rest, -math.inf)
    return rounded_up(logs, whole + part + rest)


@lru_cache(maxsize=65)
def _binomials_in_a_row(first: int, last: int) -> Vector:
    """Return `_log_binomials` of consecutive orders, kept: tables ask for them again and again."""
    return _log_binomials(np.arange(first, last + 1), np.arange(2, last + 1))


def poisson_cumulants(rate: ArrayLike, base: Vector) -> Vector:
    """Return the cumulants after Poisson sampling: log1p(sum_{j>=2} B(j) (exp K(j) - 1)).

    Args:
        rate: sampling rates in [0, 1], shape (...).
        base: cumulants of the base release at orders 0, 1, ..., n, shape (..., n + 1), valid for
            both orders of the pair.

    Returns:
        Cumulants of the sampled release at the same orders, shape (..., n + 1).

    **Guarantee**: add/remove or zero-out, Poisson sampling. An upper bound for every mechanism
    (docs/theory/renyi.md), attained when one pair attains the base curve at all orders (Zhu and
    Wang 2019; Zhu 2023, Theorem 2.3.2). Written with binomial weights that sum to one, so that
    no term is negative and no digit is lost.
    """
    rates = np.asarray(rate, dtype=float)
    shape = np.broadcast_shapes(rates.shape, base.shape[:-1])
    n = base.shape[-1] - 1
    rates = np.broadcast_to(rates, shape).reshape(-1)
    table = np.broadcast_to(base, (*shape, n + 1)).reshape(-1, n + 1)
    out = np.zeros_like(table)
    if n >= 2:
        logs = log_mean(rates, log_expm1(table[:, 2:]), np.arange(2, n + 1))
        out[:, 2:] = log1p_exp(logs)
        out[rates == 1] = table[rates == 1]
        out[:, :2] = 0.0
    return out.reshape(*shape, n + 1)


def log_mean(rates: Vector, values: Vector, orders: Orders) -> Vector:
    """Return log sum_{j=2}^a B(j) exp(values(j)) with B the Binomial(a, rate) probabilities.

    Args:
        rates: sampling rates, in [0, 1], shape (m,). At rate 0 the sum is empty; at rate 1 use the
            base instead.
        values: logarithms of the summands at j = 2, 3, ..., n, shape (m, n - 1).
        orders: increasing integers a from 2 to n, shape (k,).

    Returns:
        The logarithms, rounded up, shape (m, k).
    """
    rates = np.where((rates > 0) & (rates < 1), rates, np.where(rates > 0, 0.5, 0.0))
    with np.errstate(divide="ignore"):
        go, stay = np.log(rates)[:, None], np.log1p(-rates)[:, None]
    j = np.arange(2, values.shape[1] + 2)
    values = np.where(rates[:, None] > 0, values, 0.0)  # infinite ones have no part in it either
    # j log(q) - j log(1 - q) + value; what is left depends on the order alone.
    moments = rounded_up(j * (go - stay) + values, j * np.abs(go - stay) + np.abs(values))
    return log_sums(moments, orders) + orders * stay * DOWN


def log_sums(moments: Vector, orders: Orders) -> Vector:
    """Return log sum_{j=2}^a C(a, j) exp(moments(j)), rounded up.

    Args:
        moments: at j = 2, 3, ..., n, shape (m, n - 1).
        orders: increasing integers a from 2 to n, shape (k,).

    Returns:
        The logarithms, shape (m, k).
    """
    infinite = moments == math.inf
    moments = np.where(infinite, -math.inf, moments)
    out = np.empty((moments.shape[0], orders.size))
    for start in range(0, orders.size, _ORDER_STRIP):
        strip = orders[start : start + _ORDER_STRIP]
        top = int(strip[-1]) - 1
        first, last = int(strip[0]), int(strip[-1])
        if last - first == strip.size - 1 and last <= _LARGEST_KEPT:
            logs = _binomials_in_a_row(first, last)
        else:
            logs = _log_binomials(strip, np.arange(2, top + 2))
        rows = max(1, _CACHED_TERMS // logs.size)
        for first in range(0, moments.shape[0], rows):
            terms = logs + moments[first : first + rows, None, :top]
            out[first : first + rows, start : start + _ORDER_STRIP] = _log_sum_exp(terms)
    return np.where(np.maximum.accumulate(infinite, axis=1)[:, orders - 2], math.inf, out)


def _log_sum_exp(terms: Vector) -> Vector:
    """Return the log of the sum over the last axis, rounded up; destroys ``terms``."""
    peak = terms.max(axis=-1)
    shift = np.where(np.isfinite(peak), peak, 0.0)
    terms -= shift[..., None]
    with np.errstate(divide="ignore", over="ignore"):
        total = np.log(np.exp(terms, out=terms).sum(axis=-1)) + shift
    return rounded_up(total, 1 + np.abs(total))


def interpolated(
    orders: Vector,
    cumulants: Callable[[Orders], Vector],
    *,
    both: bool,
    largest: int = LARGEST_ORDER,
) -> Vector:
    """Return upper bounds on cumulants at real orders > 1 from those at integer orders.

    Two functions of the order are convex and so lie below their chords: the cumulant K, which
    vanishes at order one, and log((exp K - 1) / (a (a - 1))), which is sharper where K is small.
    Orders below one are those of the reversed pair, which closes the gap between 1 and 2 if the
    bounds hold for it too (docs/theory/renyi.md).

    Args:
        orders: finite real orders above one, shape (m,).
        cumulants: maps increasing integers from 2 on, shape (k,), to bounds on the cumulants.
        both: whether the bounds hold for both orders of the pair.
        largest: the largest order to ask for.

    Returns:
        The bounds, infinite beyond ``largest``, shape (m,).
    """
    known = orders <= largest
    a = np.where(known, orders, 2.0)
    below, above = np.floor(a).astype(np.int64), np.ceil(a).astype(np.int64)
    needed = np.union1d(below, above)
    values = np.zeros(needed.size)
    values[needed >= 2] = cumulants(needed[needed >= 2])
    low, high = values[np.searchsorted(needed, below)], values[np.searchsorted(needed, above)]
    share = a - below
    with np.errstate(invalid="ignore"):
        chord = ((1 - share) * low + share * high) * UP
        start = np.where(below >= 2, _log_power(low, below), _log_power(high, above))
        line = (1 - share) * start + share * _log_power(high, above) + np.log(a * (a - 1))
        size = np.abs(start) + np.abs(line) + 3 * np.log(a + 1)
        sharper = log1p_exp(rounded_up(line, size))
    allowed = (below >= 2) | both
    chord = np.where(allowed & ~np.isnan(sharper), np.minimum(chord, sharper), chord)
    return np.where(known, np.where(share == 0, low, chord), math.inf)


def divergences(orders: Vector, cumulants: Callable[[Orders], Vector]) -> Vector:
    """Return K(a) / (a - 1) at real orders from two-sided bounds on K at integers.

    Shape of ``orders``; infinite orders are beyond the largest.
    """
    flat = np.where(np.isfinite(orders), orders, 2.0 * LARGEST_ORDER).reshape(-1)
    if not (flat <= LARGEST_ORDER).any():
        return np.full(orders.shape, math.inf)
    values: Vector = interpolated(flat, cumulants, both=True) / (flat - 1) * UP
    return values.reshape(orders.shape)


def _log_power(cumulant: Vector, order: Orders) -> Vector:
    """Return log((exp K - 1) / (a (a - 1))), the log of a Cressie-Read power divergence."""
    return log_expm1(cumulant) - np.log(np.maximum(order * (order - 1.0), 1.0))
