"""Earlier bounds, to compare with: fixed-size batches in Renyi form, moments, boxes composed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR, UP, log_expm1
from taut.accounting.renyi._curves import Curve, as_orders, checked
from taut.accounting.renyi._sums import (
    LARGEST_ORDER,
    Orders,
    divergences,
    log1p_exp,
    log_sums,
    rounded_up,
)

__all__ = ["abadi_moments", "advanced_composition", "fixed_size", "optimal_composition"]

_MOST_BOXES = 10**7  # one number is kept per box: 80 megabytes
_LARGEST_BOX = 1e6  # as for single releases: a larger epsilon hides nothing


def fixed_size(curve: Curve, rate: float, pure_epsilon: float = math.inf) -> Curve:
    """Return a Renyi curve of a release that sees a uniform sample of fixed size.

    Args:
        curve: divergences of the base release under **replace-one**, for both orders of a pair. A
            sum clipped at C moves by up to 2 C.
        rate: sample size over population.
        pure_epsilon: a bound on the base release's privacy loss, if there is one.

    Returns:
        A curve for real orders above one, never above ``curve``; infinite beyond 131,072 where
        ``curve`` is.

    Raises:
        ValueError: for a rate outside [0, 1], a negative ``pure_epsilon``, or what ``curve``
            returns.

    **Guarantee**: replace-one, subsets drawn without replacement, every mechanism (Wang, Balle and
    Kasiviswanathan 2019, Theorem 9, with the smaller of its two bounds on every term). Between
    integer orders as :func:`poisson`. Loose: with a dominating pair at hand,
    ``taut.PrivacyLoss.fixed_size`` proves more.

    Example:
        >>> from taut.accounting import renyi
        >>> step = renyi.fixed_size(renyi.gaussian(sigma=4.0, sensitivity=2.0), rate=0.01)
        >>> tuple(round(float(x), 6) for x in step([2.0, 16.0]))
        (0.000114, 0.00107)
    """
    q = validate.probability(rate=rate)
    loss = (
        pure_epsilon
        if pure_epsilon == math.inf
        else validate.non_negative(pure_epsilon=pure_epsilon)
    )

    def cumulants(orders: Orders) -> Vector:
        j = np.arange(2, orders[-1] + 1)
        base = (j - 1) * checked(curve, j.astype(float))
        values = base + np.minimum(math.log(2), j * log_expm1(np.array(loss)))
        values[0] = min(values[0], math.log(4) + log_expm1(base[:1])[0])
        moments = rounded_up(values + j * math.log(q), np.abs(values) - j * math.log(q))
        return log1p_exp(log_sums(moments[None, :], orders)[0])

    def sampled(orders: Vector) -> Vector:
        a = as_orders(orders)
        base = checked(curve, a)
        return np.minimum(divergences(a, cumulants), base) if q > 0 else np.zeros_like(base)

    return sampled


def abadi_moments(rate: float, sigma: float, order: int) -> float:
    """Return the bound of the first moments accountant on a sampled Gaussian's divergence.

    Args:
        rate: the Poisson sampling rate, below 1 / (16 sigma).
        sigma: the noise multiplier, at least 1.
        order: an integer from 2 on, at most 1 + sigma^2 log(1 / (rate sigma)).

    Raises:
        ValueError: outside that domain, where nothing is proven.

    **Guarantee**: add/remove, Poisson sampling, sensitivity 1 (Abadi et al. 2016, proof of
    Lemma 3). A baseline: :func:`poisson` is exact, smaller, and valid everywhere.

    Example:
        >>> from taut.accounting import renyi
        >>> round(renyi.abadi_moments(rate=0.001, sigma=4.0, order=8) * 1e6, 4)
        0.503
    """
    q, s = validate.positive(rate=rate), validate.positive(sigma=sigma)
    a = validate.positive_integer(order=order)
    _within_abadi(q, s, a)
    t = np.arange(2.0, a + 1)
    stay, log_s = math.log1p(-q), math.log(s)
    double = _log_double_factorial(t - 1)
    tail = np.logaddexp(t * log_s + double, t * np.log(t)) + (t * t - t) / (2 * s * s)
    parts = (
        t * math.log(2 * q) + double - math.log(2) - (t - 1) * stay - t * log_s,
        t * (math.log(q) - stay - 2 * log_s),
        t * math.log(2 * q) + tail - math.log(2) - (t - 1) * stay - 2 * t * log_s,
    )
    moments = np.logaddexp(np.logaddexp(parts[0], parts[1]), parts[2])
    moments[0] = (
        math.log(2) + 2 * math.log(q) - stay - 2 * log_s
    )  # the second moment, bounded apart
    size = np.abs(t) * (10 + abs(math.log(q)) + 3 * log_s + np.log(t)) + np.abs(tail)
    logs = log_sums(rounded_up(moments, size)[None, :], np.array([a]))
    return float(log1p_exp(logs[0])[0]) / (a - 1) * UP


def _within_abadi(rate: float, sigma: float, order: int) -> None:
    if order > LARGEST_ORDER:
        raise ValueError(f"order must be at most {LARGEST_ORDER}, got order={order!r}")
    limit = 1 + sigma**2 * math.log(1 / (rate * sigma)) if rate * sigma < 1 else -math.inf
    if not (sigma >= 1 and rate < 1 / (16 * sigma) and 2 <= order <= limit):
        raise ValueError(
            "the bound is proven for sigma >= 1, rate < 1 / (16 sigma) and 2 <= order <= "
            f"1 + sigma^2 log(1 / (rate sigma)), got rate={rate!r}, sigma={sigma!r}, "
            f"order={order!r}; use poisson(gaussian(sigma), rate), which holds everywhere"
        )


def _log_double_factorial(n: Vector) -> Vector:
    odd = np.where(n % 2 == 1, 0.5 * math.log(2 / math.pi), 0.0)
    return np.asarray(n / 2 * math.log(2) + gammaln(n / 2 + 1) + odd)


def optimal_composition(epsilon: float, delta: float, count: int) -> Callable[[float], float]:
    """Return delta as a function of epsilon for ``count`` (``epsilon``, ``delta``)-DP releases.

    **Guarantee**: adaptive composition of releases of which nothing else is known, any adjacency;
    no smaller delta holds for all of them (Kairouz, Oh and Viswanath 2015, Theorem 3.3). Rounded
    up. For boxes that differ, add :func:`taut.approximate` losses.

    Raises:
        ValueError: for an epsilon outside [0, 10^6], a delta outside [0, 1), a count outside
            [0, 10^7].
        TypeError: if ``count`` is not an integer.

    Example:
        >>> from taut.accounting import renyi
        >>> total = renyi.optimal_composition(epsilon=0.1, delta=1e-8, count=100)
        >>> round(total(4.0) * 1e5, 4)
        3.5223
    """
    single, box = validate.non_negative(epsilon=epsilon), validate.below_one(delta=delta)
    if single > _LARGEST_BOX:
        raise ValueError(f"epsilon must be at most {_LARGEST_BOX:g}, got epsilon={epsilon!r}")
    k = validate.integer(count=count)
    if k > _MOST_BOXES:
        raise ValueError(
            f"count must be at most {_MOST_BOXES:,}, got count={k}; for more, "
            "use count * taut.approximate(epsilon, delta)"
        )
    j = np.arange(k + 1)
    true, false = -math.log1p(math.exp(-single)), -single - math.log1p(math.exp(-single))
    ways = gammaln(k + 1.0) - gammaln(j + 1.0) - gammaln(k - j + 1.0)
    size = 3 * gammaln(k + 1.0) + k * (1 + abs(false))
    masses = np.exp(np.minimum(rounded_up(ways + j * true + (k - j) * false, size), 0.0))
    survive = k * math.log1p(-box)

    def profile(epsilon: float) -> float:
        at = validate.non_negative(epsilon=epsilon)
        surplus = (2.0 * j - k) * single - at + RELATIVE_ERROR * (k * single + at)
        total = float(masses @ -np.expm1(-np.maximum(surplus, 0.0)))
        value = -math.expm1(survive) + math.exp(survive) * total
        return min(value * (1 + RELATIVE_ERROR * (1 + k)), 1.0)

    return profile


def advanced_composition(
    epsilon: float, delta: float, count: int, slack: float
) -> tuple[float, float]:
    """Return an (epsilon, delta) of ``count`` (``epsilon``, ``delta``)-DP releases.

    Args:
        epsilon: epsilon of one release.
        delta: probability delta of one release.
        count: how many.
        slack: what is added to ``count`` times ``delta``, in (0, 1).

    Returns:
        The smaller of epsilon sqrt(2 k log(1/slack)) + k epsilon (e^epsilon - 1) and k epsilon,
        and k delta + slack, at most 1.

    **Guarantee**: adaptive composition, any adjacency (Dwork, Rothblum and Vadhan 2010, Theorem
    III.3; basic composition). A baseline: :func:`optimal_composition` is never larger.

    Example:
        >>> from taut.accounting import renyi
        >>> round(renyi.advanced_composition(0.1, 0.0, 100, slack=1e-5)[0], 4)
        5.8502
    """
    single, box = validate.non_negative(epsilon=epsilon), validate.below_one(delta=delta)
    k, share = validate.integer(count=count), validate.below_one(slack=slack)
    if share == 0:
        raise ValueError("slack must be greater than 0, got slack=0; k epsilon needs no slack")
    spread = single * math.sqrt(2 * k * -math.log(share))
    drift = k * single * math.expm1(min(single, 700.0)) if single < 700 else math.inf
    return (
        min(spread + drift, k * single) * UP,
        min((k * box + share) * UP, 1.0),
    )
