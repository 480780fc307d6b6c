"""From Renyi divergences to (epsilon, delta), three ways, with an order search that extends."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut._base.floats import UP
from taut.accounting.renyi._curves import Curve, checked
from taut.accounting.renyi._sums import rounded_up
from taut.accounting.renyi._two_point import optimal_epsilon, optimal_log_delta

__all__ = ["Converted", "delta_from_rdp", "epsilon_from_rdp"]

Objective = Callable[[Vector], Vector]

# Every order proves its value, so that the search decides about tightness alone. These cover
# epsilons in common use; the search extends them at either end.
_FIRST_ORDERS = np.unique(np.concatenate([1 + np.geomspace(1e-3, 1, 24), np.arange(2.0, 65.0)]))
_ORDER_REFINEMENTS = 3  # by 16 cells around the best each: to 1/4096 of the first spacing
_LARGEST_REAL_ORDER = 2.0**40  # where log(1/delta) / order is lost in rounding of any epsilon
_LEAST_EXCESS = 1e-12  # of an order over one: less would have few digits left
_EPSILON_CUT = 1e100  # at which a delta is asked for: times usual orders it is a double
_LEAST_LOG = -1e308  # of a delta that is not zero
_LEAST_FLOAT = math.ulp(0.0)  # bounds what underflows
_SEARCH_REACHES = (1.5, 0.4, 0.1)  # of log(order - 1), around the best order so far, seven each
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
        delta: probability delta of the guarantee, in (0, 1).
        conversion: ``"classic"``, eps(a) + log(1/delta)/(a-1) (Mironov 2017, Proposition 3);
            ``"improved"``, eps(a) + log(1-1/a) - log(a delta)/(a-1) (Canonne, Kamath and Steinke
            2020, Proposition 12), never worse; ``"optimal"``, the best that one order can prove
            (Asoodeh et al. 2021), some ten times slower.
        orders: the only orders to try. By default the search extends until the best is inside.

    Raises:
        ValueError: for a delta outside (0, 1), an unknown conversion, orders that are not finite
            numbers above 1, or a curve with values that are negative or not a number.

    Warns:
        UserWarning: if the best of the given ``orders`` is the last one.

    **Guarantee**: the adjacency, sampler and conditions are those of ``rdp``. Every order proves
    its value, so the search decides about tightness alone; values are rounded up. The form
    printed in Zhu (2023), eps(a-1) for eps(a), is unsound (docs/errata.md).

    Example:
        >>> from taut.accounting import renyi
        >>> value, order = renyi.epsilon_from_rdp(renyi.gaussian(sigma=1.0), delta=1e-5)
        >>> round(value, 4), round(order, 2)
        (4.7284, 5.43)
    """
    level = _open_probability(delta=delta)
    _known(conversion)

    def closed(at: Vector, values: Vector, by: str) -> Vector:
        return _epsilons(at, values, level, by)

    def optimal(at: float, value: float) -> float:
        return optimal_epsilon(at, value, level)

    order, value = _best_of(rdp, conversion, orders, closed, optimal)
    return Converted(max(value, 0.0), order)


def delta_from_rdp(
    rdp: Curve,
    epsilon: float,
    *,
    conversion: str = "improved",
    orders: Sequence[float] | None = None,
) -> Converted:
    """Return the smallest delta at ``epsilon`` that one order of a Renyi curve proves.

    Arguments, errors, warnings and guarantee are those of :func:`epsilon_from_rdp`; ``epsilon`` is
    finite and at least 0.
    """
    at_epsilon = min(validate.non_negative(epsilon=epsilon), _EPSILON_CUT)
    _known(conversion)

    def closed(at: Vector, values: Vector, by: str) -> Vector:
        return _log_deltas(at, values, at_epsilon, by)

    def optimal(at: float, value: float) -> float:
        log = optimal_log_delta(at, value, at_epsilon)
        return float(rounded_up(np.array(log), np.array(abs(log))))

    order, value = _best_of(rdp, conversion, orders, closed, optimal)
    if value == -math.inf:
        return Converted(0.0, order)
    return Converted(min(max(math.exp(min(value, 0.0)) * UP, _LEAST_FLOAT), 1.0), order)


def _epsilons(orders: Vector, rdp: Vector, delta: float, conversion: str) -> Vector:
    """Return the epsilon that each order proves, in closed form."""
    excess = -math.log(delta) / (orders - 1)
    value, size = rdp + excess, rdp + excess
    if conversion != "classic":
        saved = np.log(orders) / (orders - 1) - np.log1p(-1 / orders)
        value, size = value - saved, size + saved
    # Equal distributions prove everything.
    return np.where(rdp > 0, rounded_up(value, size), -math.inf)


def _log_deltas(orders: Vector, rdp: Vector, epsilon: float, conversion: str) -> Vector:
    """Return the log delta that each order proves, in closed form."""
    with np.errstate(over="ignore"):
        value, size = (orders - 1) * (rdp - epsilon), (orders - 1) * (rdp + epsilon)
        if conversion != "classic":
            saved = -orders * np.log1p(-1 / orders), np.log(orders - 1)
            value, size = value - saved[0] - saved[1], size + saved[0] + np.abs(saved[1])
        proven = np.maximum(rounded_up(value, size), _LEAST_LOG)
    # Equal distributions prove everything.
    return np.where(rdp > 0, proven, -math.inf)


def _best_of(
    rdp: Curve,
    conversion: str,
    orders: Sequence[float] | None,
    closed: Callable[[Vector, Vector, str], Vector],
    optimal: Callable[[float, float], float],
) -> tuple[float, float]:
    """Return the best order and the value there, of a conversion in closed form or the optimal."""

    def in_closed_form(at: Vector) -> Vector:
        return closed(at, checked(rdp, at), conversion)

    def at_best(at: Vector) -> Vector:
        values = checked(rdp, at)
        found = [optimal(a, r) for a, r in zip(at.tolist(), values.tolist(), strict=True)]
        return np.minimum(found, closed(at, values, "improved"))

    return _best(in_closed_form, at_best if conversion == "optimal" else None, orders)


def _best(
    closed: Objective, optimal: Objective | None, orders: Sequence[float] | None
) -> tuple[float, float]:
    """Return the best order and the value there.

    An optimal conversion is costly, so it is tried around the best order of the closed form.
    """
    if orders is not None:
        return _search_list(optimal or closed, orders)
    order, value = _search(closed)
    if optimal is None or not math.isfinite(value):
        return order, value
    for reach in _SEARCH_REACHES:
        factors = np.exp(np.linspace(-reach, reach, 7))
        at = np.unique(1 + (order - 1) * factors)
        values = optimal(at[at > 1])
        best = int(np.argmin(values))
        order, value = float(at[at > 1][best]), float(values[best])
    return order, value


def _search(objective: Objective) -> tuple[float, float]:
    """Return the best order and the value there, extending the orders at either end."""
    at, values = _extended(objective)
    best = int(np.argmin(values))
    for _ in range(_ORDER_REFINEMENTS):
        low, high = at[max(best - 1, 0)], at[min(best + 1, at.size - 1)]
        at = np.union1d(np.linspace(low, high, 17), at[best : best + 1])
        values = objective(at)
        best = int(np.argmin(values))
    return float(at[best]), float(values[best])


def _extended(objective: Objective) -> tuple[Vector, Vector]:
    """Return orders and values such that the smallest is not at an end, if that can be had."""
    at, values = _FIRST_ORDERS, objective(_FIRST_ORDERS)
    while np.argmin(values) == at.size - 1 and at[-1] < _LARGEST_REAL_ORDER:
        more = np.round(at[-1] * np.linspace(1.0, 4.0, 49)[1:])
        at, values = _joined(objective, at[-2:], more)
    while np.argmin(values) == 0 and at[0] - 1 > _LEAST_EXCESS:
        more = 1 + (at[0] - 1) * np.geomspace(1e-2, 1.0, 16)
        at, values = _joined(objective, more, at[:2])
    return at, values


def _joined(objective: Objective, first: Vector, second: Vector) -> tuple[Vector, Vector]:
    at = np.union1d(first, second)
    return at, objective(at)


def _search_list(objective: Objective, orders: Sequence[float]) -> tuple[float, float]:
    at = real_numbers(orders, "orders")
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


def _known(conversion: str) -> None:
    if conversion not in CONVERSIONS:
        names = ", ".join(map(repr, CONVERSIONS))
        raise ValueError(f"conversion must be one of {names}, got conversion={conversion!r}")


def _open_probability(*, delta: float) -> float:
    level = validate.below_one(delta=delta)
    if level == 0:
        raise ValueError("delta must be greater than 0: Renyi orders are finite, got delta=0")
    return level
