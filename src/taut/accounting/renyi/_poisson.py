"""Poisson sampling of Renyi curves."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut._base.floats import UP, log_expm1
from taut.accounting.renyi._curves import Curve, as_orders, checked
from taut.accounting.renyi._sums import (
    LARGEST_TABLE,
    Orders,
    divergences,
    log1p_exp,
    log_mean,
    poisson_cumulants,
)

__all__ = ["poisson", "sampled_gaussian"]

_METHODS = ("exact", "general", "tau")


def poisson(curve: Curve, rate: float, *, method: str = "exact", tau: int | None = None) -> Curve:
    """Return the Renyi curve of a release that sees a Poisson sample.

    Args:
        curve: maps an array of orders above one to divergences of the base release, for **both**
            orders of a pair of neighbours; a one-sided curve is not enough.
        rate: the probability with which every record takes part, independently of the others.
        method: ``"exact"``, the binomial sum (Zhu 2023, Theorem 2.3.4); ``"general"``, the same
            with weight 3 on the terms from the third on (ibid., Theorem 2.3.1); ``"tau"``, with all
            but ``tau`` terms at either end taking the divergence of one order (ibid., Theorem
            2.3.7).
        tau: how many terms keep their own divergence; needed by ``"tau"``, where the sum is exact
            if 2 tau is at least the order, and allowed with ``"general"``, where terms beyond
            ``tau`` take the divergence of the order itself (Zhu 2023, Theorem 2.5.8).

    Returns:
        A curve for real orders above one, infinity included. It asks ``curve`` at integer orders
        only, once per query: up to the largest order for ``"exact"``, at about 2 ``tau`` orders
        for ``"tau"``. Infinite at finite orders beyond 131,072.

    Raises:
        ValueError: for a rate outside [0, 1], an unknown method, a ``tau`` that is missing,
            below 1 or without meaning, or, when asked, orders not above 1 and divergences that
            are negative or not a number.

    **Guarantee**: add/remove or zero-out, Poisson sampling, every mechanism, both directions, all
    orders. At integer orders the exact sum needs no condition on the mechanism
    (docs/theory/renyi.md), and it is attained if one pair attains ``curve`` at all integer orders
    (Zhu 2023, Theorem 2.3.2): for Gaussian and Laplace noise and randomized response. Between
    integers two chords of convex functions are used (docs/theory/renyi.md). The other methods are
    never smaller; they are baselines, and a shortcut for curves that are slow to evaluate.

    Example:
        >>> from taut.accounting import renyi
        >>> step = renyi.poisson(renyi.gaussian(sigma=1.0), rate=0.01)
        >>> round(renyi.epsilon_from_rdp(lambda orders: 1_000 * step(orders), 1e-5).value, 4)
        2.1077
    """
    q = validate.probability(rate=rate)
    cumulants = _cumulants(curve, q, method, _checked_tau(method, tau))

    def sampled(orders: Vector) -> Vector:
        a = as_orders(orders)
        if q in (0.0, 1.0):
            return checked(curve, a) if q else np.zeros_like(a)
        values = divergences(a, cumulants)
        infinite = np.isinf(a)
        return np.where(infinite, _largest_loss(curve, q), values) if infinite.any() else values

    return sampled


def sampled_gaussian(rates: ArrayLike, sigmas: ArrayLike, largest_order: int) -> Vector:
    """Return the divergences of Poisson-sampled Gaussians at all orders 2, 3, ..., largest.

    Args:
        rates: sampling rates, in [0, 1].
        sigmas: noise multipliers (standard deviation over l2-sensitivity); broadcast with rates.
        largest_order: an integer from 2 to 4,096.

    Returns:
        Divergences of shape (..., largest_order - 1), rounded up.

    Raises:
        ValueError: if a rate, a sigma or the order is outside its range.
        TypeError: if ``largest_order`` is not an integer.

    **Guarantee**: as :func:`poisson`; attained, because removal is the larger direction.

    Example:
        >>> from taut.accounting import renyi
        >>> curves = renyi.sampled_gaussian([0.01, 0.02], [[1.0], [2.0], [4.0]], 256)
        >>> curves.shape, round(float(curves[0, 0, 14]), 6)
        ((3, 2, 255), 3.087851)
    """
    n = validate.positive_integer(largest_order=largest_order)
    if not 2 <= n <= LARGEST_TABLE:
        raise ValueError(
            f"largest_order must be from 2 to {LARGEST_TABLE}, got largest_order={n}; "
            "for larger orders use poisson(gaussian(sigma), rate)"
        )
    q, sigma = real_numbers(rates, "rates"), real_numbers(sigmas, "sigmas")
    if not ((q >= 0) & (q <= 1)).all():
        raise ValueError(f"rates must be probabilities in [0, 1], got rates={rates!r}")
    if not ((sigma > 0) & np.isfinite(sigma)).all():
        raise ValueError(f"sigmas must be finite and greater than 0, got sigmas={sigmas!r}")
    try:
        np.broadcast_shapes(q.shape, sigma.shape)
    except ValueError:
        raise ValueError(
            f"rates and sigmas must broadcast, got shapes {q.shape} and {sigma.shape}"
        ) from None
    a = np.arange(n + 1)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        base = np.where(a > 1, a * (a - 1.0) / 2 / sigma[..., None] / sigma[..., None], 0.0)
    return poisson_cumulants(q, base)[..., 2:] / (a[2:] - 1.0) * UP


def _cumulants(
    curve: Curve, rate: float, method: str, tau: int | None
) -> Callable[[Orders], Vector]:
    """Return the function from increasing integer orders to cumulants of the sampled release."""
    rates = np.array([rate])

    def full(orders: Orders) -> Vector:
        j = np.arange(2, orders[-1] + 1)
        values = _log_summands((j - 1) * checked(curve, j.astype(float)), method)
        return log1p_exp(log_mean(rates, values[None, :], orders)[0])

    def shortened(orders: Orders, tau: int) -> Vector:
        plans = [_asked(a, tau, method) for a in orders.tolist()]
        asked = np.unique(np.concatenate(plans))
        divergences = checked(curve, asked.astype(float))
        logs = np.empty(orders.size)
        for i, plan in enumerate(plans):
            base = np.arange(1, plan.size + 1) * divergences[np.searchsorted(asked, plan)]
            values = _log_summands(base, method)
            logs[i] = log_mean(rates, values[None, :], orders[i : i + 1])[0, 0]
        return log1p_exp(logs)

    return full if tau is None else partial(shortened, tau=tau)


def _log_summands(cumulants: Vector, method: str) -> Vector:
    """Return log(e^K - 1) for j = 2, 3, ..., or log(3 e^K - 1) from the third on."""
    values = log_expm1(cumulants)
    if method == "general":
        k = cumulants[1:]
        values[1:] = k + np.log(3 - np.exp(-k))
    return values


def _asked(order: int, tau: int, method: str) -> Orders:
    """Return the order whose divergence serves the j-th moment, for j = 2, ..., ``order``.

    Divergences grow with the order, so a larger one is safe. Writing the middle terms out costs
    no evaluation of the curve and, unlike closing their sum, no subtraction.
    """
    j = np.arange(2, order + 1)
    if method == "general":
        return np.where(j <= max(tau, 2), j, order)
    if 2 * tau > order - 1:
        return j
    return np.where((j > tau) & (j <= order - tau), order - tau, j)


def _largest_loss(curve: Curve, rate: float) -> float:
    """Return the divergence of infinite order: log(1 + rate (e^loss - 1)), that of removal."""
    loss = checked(curve, np.array([math.inf]))
    return float(log1p_exp(math.log(rate) + log_expm1(loss))[0])


def _checked_tau(method: str, tau: int | None) -> int | None:
    if method not in _METHODS:
        names = ", ".join(map(repr, _METHODS))
        raise ValueError(f"method must be one of {names}, got method={method!r}")
    if tau is None:
        if method == "tau":
            raise ValueError('method="tau" needs tau, the number of terms to keep; try tau=50')
        return None
    if method == "exact":
        raise ValueError(f'method="exact" has no tau, got tau={tau!r}; use method="tau"')
    return validate.positive_integer(tau=tau)
