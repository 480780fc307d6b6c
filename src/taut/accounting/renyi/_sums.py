"""Binomial sums of Renyi moments: what Poisson sampling does to a Renyi curve.

Everything here works on *cumulants* K(a) = (a - 1) eps(a), the logarithm of the a-th moment of the
likelihood ratio: they add up under composition, are convex in the order, and vanish at 0 and 1.
Arrays of cumulants are indexed by the integer order: shape (..., n + 1) for orders 0 to n.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from taut.accounting._pair import Vector

__all__ = ["PROVEN_ORDER", "at_real_orders", "log_binomials", "log_expm1", "poisson_cumulants"]

PROVEN_ORDER = 389
"""Largest order up to which the exact sum has an integer-polynomial certificate."""

_BLOCK = 2**21  # entries of a table of terms worked on at a time


def log_expm1(x: Vector) -> Vector:
    """Return log(exp(x) - 1) for x >= 0 without overflow or cancellation."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(x > 30.0, x + np.log1p(-np.exp(-x)), np.log(np.expm1(np.minimum(x, 31.0))))


def log_binomials(largest: int) -> Vector:
    """Return log C(a, l) for 0 <= l, a <= ``largest``, minus infinity above the diagonal."""
    a = np.arange(largest + 1)
    logs = gammaln(a[:, None] + 1.0) - gammaln(a + 1.0)
    with np.errstate(invalid="ignore"):
        return np.where(a <= a[:, None], logs - gammaln(np.abs(a[:, None] - a) + 1.0), -math.inf)


def poisson_cumulants(rate: ArrayLike, base: Vector) -> Vector:
    """Return the cumulants after Poisson sampling: log1p(sum_{l>=2} B(l) (exp K(l) - 1)).

    Args:
        rate: sampling rates in [0, 1], shape (...).
        base: cumulants of the base release at orders 0, 1, ..., n, shape (..., n + 1), valid for
            both orders of the pair.

    Returns:
        Cumulants of the sampled release at the same orders, shape (..., n + 1).

    **Guarantee**: add/remove or zero-out, Poisson sampling. An upper bound for every mechanism at
    integer orders up to ``PROVEN_ORDER`` (docs/theory/renyi.md), attained when one pair attains
    the base curve at all orders (Zhu and Wang 2019, Theorem 5 and Proposition 10). Written with
    binomial weights that sum to one, so that no term is negative and no digit is lost.
    """
    rates = np.asarray(rate, dtype=float)
    shape = np.broadcast_shapes(rates.shape, base.shape[:-1])
    n = base.shape[-1] - 1
    flat_rates = np.broadcast_to(rates, shape).reshape(-1)
    flat_base = np.broadcast_to(base, (*shape, n + 1)).reshape(-1, n + 1)
    out = np.zeros_like(flat_base)
    logs = log_binomials(n)[2:, 2:]
    rows = max(1, _BLOCK // max(logs.size, 1))
    for start in range(0, flat_base.shape[0], rows):
        part = slice(start, start + rows)
        out[part, 2:] = _sampled(flat_rates[part], flat_base[part], logs)
    return out.reshape(*shape, n + 1)


def _sampled(rates: Vector, base: Vector, logs: Vector) -> Vector:
    """Return cumulants at orders 2 to n for rates (m,), base (m, n + 1), logs (n - 1, n - 1)."""
    order = np.arange(2, base.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        stay, go = np.log1p(-rates)[:, None], np.log(rates)[:, None]
        # l log(q) - l log(1 - q) + log expm1(K(l)); what is left depends on the order alone.
        moments = order * (go - stay) + log_expm1(base[:, 2:])
        terms = logs + moments[:, None, :]
        peak = terms.max(axis=2)
        total = np.log(np.exp(terms - peak[..., None]).sum(axis=2)) + peak + order * stay
        value = np.logaddexp(0.0, total)
    value = np.where(rates[:, None] > 0, value, 0.0)
    value = np.where(rates[:, None] < 1, value, base[:, 2:])
    infinite = np.maximum.accumulate(np.isinf(base[:, 2:]), axis=1) & (rates[:, None] > 0)
    return np.where(infinite, math.inf, np.nan_to_num(value, nan=0.0, posinf=math.inf))


def at_real_orders(cumulants: Callable[[int], Vector], orders: Vector) -> Vector:
    """Return upper bounds on cumulants at real orders > 1 from those at integer orders.

    Args:
        cumulants: maps n to the cumulants at orders 0, 1, ..., n, shape (n + 1,).
        orders: real orders above one, shape (m,).

    Cumulants are convex in the order, so chords bound them.
    """
    orders = np.asarray(orders, dtype=float)
    largest = math.ceil(float(np.max(orders, initial=2.0)))
    table = cumulants(largest)
    below = np.floor(orders).astype(np.int64)
    share = orders - below
    above = np.minimum(below + 1, largest)
    with np.errstate(invalid="ignore"):
        chord = (1 - share) * table[below] + share * table[above]
    return np.where(share == 0, table[below], chord)
