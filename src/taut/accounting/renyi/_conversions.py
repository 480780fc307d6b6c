"""From Renyi divergences to (epsilon, delta), three ways, with an order search that extends."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from taut import _validate
from taut.accounting._pair import Vector

__all__ = ["Converted", "delta_from_rdp", "epsilon_from_rdp"]

Curve = Callable[[Vector], Vector]
"""Renyi divergences at an array of orders above one; infinite where nothing is known."""

_FIRST = np.unique(np.concatenate([1 + np.geomspace(1e-3, 1, 24), np.arange(2.0, 65.0)]))
_REFINEMENTS = 3
_LARGEST_ORDER = 2.0**40
_ZOOMS = 5
_BISECTIONS = 60
_SLACK = 1e-9  # relative; the last zoom is far below it
CONVERSIONS = ("improved", "classic", "optimal")


class Converted(NamedTuple):
    """What a conversion found.

    Attributes:
        value: the epsilon or the delta.
        order: the order that gave it.
    """

    value: float
    order: float


def epsilon_from_rdp(
    rdp: Curve, delta: float, *, conversion: str = "improved", orders: Sequence[float] | None = None
) -> Converted:
    """Return the smallest epsilon at ``delta`` that one order of a Renyi curve proves.

    Args:
        rdp: maps an array of orders above one to divergences that hold for both directions.
        delta: in (0, 1).
        conversion: ``"classic"``, eps(a) + log(1/delta)/(a-1) (Mironov 2017, Proposition 3);
            ``"improved"``, eps(a) + log(1-1/a) - log(a delta)/(a-1) (Canonne, Kamath and Steinke
            2020, Proposition 12), never worse; ``"optimal"``, the best that one order can prove
            (Asoodeh et al. 2021), slower.
        orders: the only orders to try. By default the search extends until the best is inside.

    Warns:
        UserWarning: if the best of the given ``orders`` is the last one.

    The printed form of the thesis, eps(a-1) for eps(a), is unsound; see docs/errata.md.
    """
    level = _open_probability(delta=delta)
    _known(conversion)

    def objective(at: Vector) -> Vector:
        return _epsilons(at, _checked(rdp, at), level, conversion)

    order, value = _search(objective, orders)
    return Converted(max(value, 0.0), order)


def delta_from_rdp(
    rdp: Curve,
    epsilon: float,
    *,
    conversion: str = "improved",
    orders: Sequence[float] | None = None,
) -> Converted:
    """Return the smallest delta at ``epsilon`` that one order of a Renyi curve proves.

    Arguments as for :func:`epsilon_from_rdp`.
    """
    at_epsilon = _validate.non_negative(epsilon=epsilon)
    _known(conversion)

    def objective(at: Vector) -> Vector:
        return _log_deltas(at, _checked(rdp, at), at_epsilon, conversion)

    order, value = _search(objective, orders)
    return Converted(min(math.exp(min(value, 0.0)), 1.0), order)


def _epsilons(orders: Vector, rdp: Vector, delta: float, conversion: str) -> Vector:
    """Return the epsilon that each order proves."""
    if conversion == "optimal":
        pairs = zip(orders.tolist(), rdp.tolist(), strict=True)
        return np.array([_optimal_epsilon(a, r, delta) for a, r in pairs])
    value = rdp - math.log(delta) / (orders - 1)
    if conversion == "improved":
        value = value + np.log1p(-1 / orders) - np.log(orders) / (orders - 1)
    return value


def _log_deltas(orders: Vector, rdp: Vector, epsilon: float, conversion: str) -> Vector:
    """Return the log delta that each order proves."""
    if conversion == "optimal":
        pairs = zip(orders.tolist(), rdp.tolist(), strict=True)
        with np.errstate(divide="ignore"):
            return np.log([_optimal_delta(a, r, epsilon) for a, r in pairs])
    value = (orders - 1) * (rdp - epsilon)
    if conversion == "improved":
        value = value + orders * np.log1p(-1 / orders) - np.log(orders - 1)
    return value


def _optimal_epsilon(order: float, rdp: float, delta: float) -> float:
    """Return the largest log((p - delta)/q) over two-point pairs within a Renyi divergence."""
    if not math.isfinite(rdp):
        return math.inf
    ceiling = float(_epsilons(np.array([order]), np.array([rdp]), delta, "improved")[0])

    def gain(log_p: Vector, log_q: Vector) -> Vector:
        with np.errstate(divide="ignore"):
            value = np.log(np.maximum(np.exp(log_p) - delta, 0.0)) - log_q
        return np.where(np.exp(log_p) > delta, value, -math.inf)

    return min(_largest_gain(order, rdp, ceiling, gain) * (1 + _SLACK) + _SLACK, ceiling)


def _optimal_delta(order: float, rdp: float, epsilon: float) -> float:
    """Return the largest p - exp(epsilon) q over two-point pairs within a Renyi divergence."""
    if not math.isfinite(rdp):
        return 1.0

    def gain(log_p: Vector, log_q: Vector) -> Vector:
        return np.exp(log_p) - np.exp(np.minimum(epsilon + log_q, 50.0))

    ceiling = math.exp(
        min(float(_log_deltas(np.array([order]), np.array([rdp]), epsilon, "improved")[0]), 0.0)
    )
    return min(max(_largest_gain(order, rdp, epsilon, gain) * (1 + _SLACK), 0.0), ceiling)


def _largest_gain(
    order: float, rdp: float, epsilon: float, gain: Callable[[Vector, Vector], Vector]
) -> float:
    """Return the maximum of a unimodal ``gain`` along the boundary of what the divergence allows.

    Two outcomes suffice: merging all outputs above the threshold, and all below, keeps the
    hockey stick and lowers the Renyi divergence. For every q the largest p is found by bisection;
    the set of pairs is convex, so both gains are unimodal in q.
    """
    # If only the first term of the moment counted, the gain would peak above log q = -a epsilon.
    low = -order * abs(epsilon) - rdp - 60.0
    log_q = np.linspace(low, -1e-12, 257)
    for _ in range(_ZOOMS):
        values = gain(_boundary(order, (order - 1) * rdp, log_q), log_q)
        best = int(np.argmax(values))
        log_q = np.linspace(
            log_q[max(best - 1, 0)], log_q[min(best + 1, log_q.size - 1)], log_q.size
        )
    return float(values.max())


def _boundary(order: float, bound: float, log_q: Vector) -> Vector:
    """Return the largest log p with log(p^a q^(1-a) + (1-p)^a (1-q)^(1-a)) <= ``bound``."""
    low, high = log_q.copy(), np.zeros_like(log_q)
    rest_q = (1 - order) * np.log(-np.expm1(log_q))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        with np.errstate(divide="ignore"):
            rest = order * np.log(-np.expm1(middle)) + rest_q
        inside = np.logaddexp(order * middle + (1 - order) * log_q, rest) <= bound
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high


def _search(
    objective: Callable[[Vector], Vector], orders: Sequence[float] | None
) -> tuple[float, float]:
    """Return the best order and the value there."""
    if orders is not None:
        return _search_list(objective, orders)
    at = _FIRST
    values = objective(at)
    while np.argmin(values) == at.size - 1 and at[-1] < _LARGEST_ORDER:
        at = np.round(at[-1] * np.linspace(1.0, 4.0, 49))
        extended = objective(at)
        if extended.min() >= values[-1]:
            break
        values = extended
    best = int(np.argmin(values))
    for _ in range(_REFINEMENTS):
        low, high = at[max(best - 1, 0)], at[min(best + 1, at.size - 1)]
        at = np.union1d(np.linspace(low, high, 17), at[best : best + 1])
        values = objective(at)
        best = int(np.argmin(values))
    return float(at[best]), float(values[best])


def _search_list(
    objective: Callable[[Vector], Vector], orders: Sequence[float]
) -> tuple[float, float]:
    at = np.asarray(orders, dtype=float)
    if at.ndim != 1 or at.size == 0 or not (at > 1).all() or not np.isfinite(at).all():
        raise ValueError(f"orders must be finite numbers above 1, at least one, got {orders!r}")
    at = np.unique(at)
    values = objective(at)
    best = int(np.argmin(values))
    if best == at.size - 1 and at.size > 1:
        warnings.warn(
            f"the best order is the last one given, {at[-1]:g}; larger orders may prove more",
            UserWarning,
            stacklevel=4,
        )
    return float(at[best]), float(values[best])


def _checked(rdp: Curve, orders: Vector) -> Vector:
    """Return the curve's values, or say what is wrong with them."""
    values = np.asarray(rdp(orders), dtype=float)
    if values.shape != orders.shape:
        raise ValueError(
            f"rdp must return one value per order, got shape {values.shape} for {orders.shape}; "
            "write it with NumPy functions, or wrap it in numpy.vectorize"
        )
    if np.isnan(values).any() or (values < 0).any():
        raise ValueError("rdp must return divergences that are at least 0, and inf where unknown")
    return values


def _known(conversion: str) -> None:
    if conversion not in CONVERSIONS:
        names = ", ".join(map(repr, CONVERSIONS))
        raise ValueError(f"conversion must be one of {names}, got conversion={conversion!r}")


def _open_probability(*, delta: float) -> float:
    level = _validate.below_one(delta=delta)
    if level == 0:
        raise ValueError("delta must be greater than 0: Renyi orders are finite, got delta=0")
    return level
