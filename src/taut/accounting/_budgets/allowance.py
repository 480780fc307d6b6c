"""Budgets for adaptive composition: what (epsilon, delta) allows to be spent."""

from __future__ import annotations

import math

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting._pairs.gaussian import GaussianPair, mills_ratio, normal_density
from taut.errors import (
    InfeasibleBudget,
)

__all__ = [
    "BUDGET_FACTOR",
    "best_order",
    "budget_for",
    "gaussian_mu",
    "positive_delta",
    "renyi_budgets",
]

BUDGET_FACTOR = 1 - 1e-13
"""Rounds a budget down, or a cost up by division: 450 units, for squares and a bisection."""
# Relative, of a density times 1 - a m(a): it is at least 1/1500 up to `_NORMAL_END`, so that it
# magnifies the few units by which m(a) is off to 1e-12.
_FAINT_ERROR = 1e-9
_FAINT_MU = 1e-6  # below it the two terms of a profile agree to ten digits; a derivative keeps all
_NORMAL_END = 38.6  # deviations: exp(-38.6^2 / 2) = 5e-324 is the smallest float
_LARGEST_BUDGETED = 1e100  # its mu is about 1e50, whose square is a double
METHODS = ("gdp", "improved", "classic")


def budget_for(epsilon: float, delta: float, *, method: str = "gdp") -> float:
    """Return how much mu^2 / 2 Gaussian steps may use up in total within (epsilon, delta).

    One release with l2-sensitivity s and noise sigma costs (s / sigma)^2 / 2, which is also its
    Renyi divergence over the order.

    Args:
        epsilon: at least 0.
        delta: probability delta of the guarantee, in (0, 1).
        method: ``"gdp"``, exact for Gaussian steps; ``"improved"`` and ``"classic"``, through Renyi
            divergences at all orders, for steps that only satisfy divergence <= order * cost
            (discrete Gaussian noise, say).

    **Guarantee**: steps chosen adaptively with total cost at most the budget are (epsilon,
    delta)-DP: Smith and Thakurta (2022) for ``"gdp"``, Feldman and Zrnic (2021) for the others.

    Raises:
        InfeasibleBudget: if no Renyi order proves anything at this epsilon.

    Example:
        >>> from taut.accounting import budget_for
        >>> round(budget_for(epsilon=1.0, delta=1e-5), 6)
        0.035926
    """
    at, level = _checked(epsilon), positive_delta(delta=delta)
    if method == "gdp":
        return gaussian_mu(at, level) ** 2 / 2 * BUDGET_FACTOR
    if method == "classic":
        log = -math.log(level)
        return (at / (math.sqrt(log + at) + math.sqrt(log))) ** 2 * BUDGET_FACTOR
    if method != "improved":
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got method={method!r}")
    order = best_order(at, level)
    return float(renyi_budgets(at, level, np.array([order]))[0]) / order * BUDGET_FACTOR


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu, rounded down, whose Gaussian loss is within (epsilon, delta).

    A release with l2-sensitivity s and Gaussian noise sigma has mu = s / sigma; k of them together
    have mu times sqrt(k).

    Args:
        epsilon: the epsilon of the guarantee, at least 0.
        delta: the delta of the guarantee, in (0, 1).

    **Guarantee**: Gaussian noise with s / sigma <= mu is (epsilon, delta)-DP, by the exact profile
    of Balle and Wang (2018, Theorem 8).

    Example:
        >>> from taut.accounting import gaussian_mu
        >>> round(gaussian_mu(epsilon=1.0, delta=1e-5), 6)
        0.268051
    """
    epsilon, delta = _checked(epsilon), positive_delta(delta=delta)
    low, high = 0.0, 1.0
    while _gaussian_delta(high, epsilon) <= delta:
        low, high = high, 2 * high
    for _ in range(1200):  # enough to reach any float
        middle = (low + high) / 2
        if not low < middle < high:
            break
        inside = _gaussian_delta(middle, epsilon) <= delta
        low, high = (middle, high) if inside else (low, middle)
    return low


def _gaussian_delta(mu: float, epsilon: float) -> float:
    """Return an upper bound on the Gaussian delta that keeps its digits for tiny mu."""
    if mu > _FAINT_MU:
        pair = GaussianPair(mu)
        return float(pair.profile(np.array([epsilon]))[0]) * (1 + pair.profile_error)
    # phi(a) (m(a) - m(a + mu)) with Mills' ratio m, which is convex: m' = a m - 1.
    near = np.array([epsilon / mu - mu / 2])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        value = float((normal_density(near) * mu * (1 - near * mills_ratio(near)))[0])
    return value * (1 + _FAINT_ERROR) if near[0] < _NORMAL_END else 0.0


def renyi_budgets(epsilon: float, delta: float, orders: Vector) -> Vector:
    """Return the divergence at each order that (epsilon, delta) allows.

    The conversion of Canonne, Kamath and Steinke (2020, Proposition 12), solved for the divergence.
    """
    value = epsilon - np.log1p(-1 / orders) + (math.log(delta) + np.log(orders)) / (orders - 1)
    budgets: Vector = value * np.where(value > 0, BUDGET_FACTOR, 1.0)
    return budgets


def best_order(epsilon: float, delta: float) -> float:
    """Return the order that leaves most room for Gaussian steps; any order would be sound."""
    above_one = np.geomspace(1e-3, 1e9, 601)  # made finer around the best, four times
    for _ in range(4):
        room = renyi_budgets(epsilon, delta, 1 + above_one) / (1 + above_one)
        best = int(np.argmax(room))
        ends = above_one[max(best - 1, 0)], above_one[min(best + 1, above_one.size - 1)]
        order, most = 1 + float(above_one[best]), float(room[best])
        above_one = np.geomspace(*ends, 41)
    if not most > 0:
        raise InfeasibleBudget(
            f"no Renyi order proves epsilon={epsilon!r} at delta={delta!r}; raise either, or use "
            "the Gaussian ('gdp') form if all releases are Gaussian"
        )
    return order


def _checked(epsilon: float) -> float:
    at = validate.non_negative(epsilon=epsilon)
    if at > _LARGEST_BUDGETED:
        raise ValueError(
            f"epsilon must be at most 1e100 for a budget, got epsilon={epsilon!r}; it promises "
            "nothing long before"
        )
    return at


def positive_delta(*, delta: float) -> float:
    level = validate.below_one(delta=delta)
    if level == 0:
        raise ValueError("delta must be greater than 0 for adaptive composition, got delta=0")
    return level
