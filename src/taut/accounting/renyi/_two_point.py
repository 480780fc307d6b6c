"""The most that one Renyi order can prove: the worst pair of two-point distributions.

Merging all outputs on which p > t q, and all others, keeps the hockey stick and lowers every
Renyi divergence. So the worst pair within D_a <= rho has two outcomes, (p, 1-p) against (q, 1-q).
The pairs within form a convex set; its upper boundary p(q) is concave and rises from 0 to 1, where
it stays from q = exp(-rho) on. Both gains below have derivatives that change sign once along it,
and a bracket of the change bounds the gain, because p and q increase along the boundary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from taut._base.floats import RELATIVE_ERROR, UP

__all__ = ["optimal_epsilon", "optimal_log_delta"]

_BOUNDARY_BISECTIONS = 46  # to 1e-14 of the bracket, both ends of which bound the gain soundly
# Relative; the smallest that the root finder accepts. `_boundary` adds twice as much to log p.
_ROOT_ERROR = 4 * 2.0**-52


class _Point(NamedTuple):
    """A point of the boundary: log p (rounded up), log q, and the slope dp/dq as a logarithm."""

    log_p: float
    log_q: float
    log_slope: float


def optimal_log_delta(order: float, rdp: float, epsilon: float) -> float:
    """Return the log of the largest p - exp(epsilon) q over all pairs within a Renyi divergence.

    (Asoodeh, Liao, Calmon, Kosut and Sankar 2021, Theorem 2; docs/theory/renyi.md.)
    """
    if rdp == 0:
        return -math.inf
    if not math.isfinite(rdp):
        return 0.0
    low, high = _bracket(order, rdp, lambda point: point.log_slope > epsilon)
    share = -math.expm1(min(epsilon + low.log_q - high.log_p, 0.0))
    return min(high.log_p + math.log(share + RELATIVE_ERROR * (1 + epsilon + abs(low.log_q))), 0.0)


def optimal_epsilon(order: float, rdp: float, delta: float) -> float:
    """Return the largest log((p - delta) / q) over all pairs within a Renyi divergence."""
    if rdp == 0:
        return 0.0
    if not math.isfinite(rdp):
        return math.inf

    def rises(point: _Point) -> bool:
        # d/dq of (p - delta)/q has the sign of q dp/dq - p + delta
        return math.exp(point.log_slope + point.log_q) > math.exp(point.log_p) - delta

    low, high = _bracket(order, rdp, rises)
    top = math.exp(high.log_p) * UP - delta
    if top <= 0:
        return 0.0
    value = math.log(top) - low.log_q
    return max(value + RELATIVE_ERROR * (1 + abs(low.log_q)), 0.0)


def _bracket(order: float, rdp: float, rises: Callable[[_Point], bool]) -> tuple[_Point, _Point]:
    """Return two points of the boundary between which a gain stops rising."""
    high = _Point(0.0, -rdp, rdp + math.log1p(-1 / order))
    if rises(high):
        return high, high
    step = 1.0
    low = _boundary(order, rdp, -rdp - step)
    while not rises(low):
        high, step = low, 2 * step
        low = _boundary(order, rdp, low.log_q - step)
    for _ in range(_BOUNDARY_BISECTIONS):
        middle = _boundary(order, rdp, (low.log_q + high.log_q) / 2)
        low, high = (middle, high) if rises(middle) else (low, middle)
    return low, high


def _boundary(order: float, rdp: float, log_q: float) -> _Point:
    """Return the point with the largest p that p^a q^(1-a) + (1-p)^a (1-q)^(1-a) allows."""
    rest_q = _log_rest(log_q)
    # What the moment's own rounding might hide counts as allowed.
    bound = (order - 1) * rdp + RELATIVE_ERROR * (1 + 2 * order * (abs(log_q) + abs(rest_q)))

    def excess(log_p: float) -> float:
        first = order * log_p + (1 - order) * log_q
        if log_p == 0:
            return first - bound
        second = order * _log_rest(log_p) + (1 - order) * rest_q
        return max(first, second) + math.log1p(math.exp(-abs(first - second))) - bound

    # The first term alone must be within the bound, so p is at most this.
    ceiling = min((bound - (1 - order) * log_q) / order, 0.0)
    log_p = ceiling
    if excess(ceiling) > 0:
        from scipy.optimize import brentq  # slow to load, and nothing else needs it

        # The relative accuracy decides, however small the root.
        log_p = brentq(excess, log_q, ceiling, xtol=1e-300, rtol=_ROOT_ERROR)
    log_p = min(log_p + RELATIVE_ERROR * (abs(log_q) + rdp), 0.0)
    return _Point(log_p, log_q, _log_slope(order, log_p, log_q, rest_q))


def _log_rest(log_x: float) -> float:
    """Return log(1 - x)."""
    return math.log1p(-math.exp(log_x)) if log_x < -0.7 else math.log(-math.expm1(log_x))


def _log_slope(order: float, log_p: float, log_q: float, rest_q: float) -> float:
    """Return the log of dp/dq = (1 - 1/a) R (1 - (S/R)^a) / (1 - (S/R)^(a-1)).

    R = p/q and S = (1-p)/(1-q) are the likelihood ratios of the two outcomes.
    """
    ratio = log_p - log_q
    if log_p == 0:
        return math.log1p(-1 / order) + ratio
    gap = _log_rest(log_p) - rest_q - ratio
    share = math.expm1(order * gap) / math.expm1((order - 1) * gap)
    return math.log1p(-1 / order) + ratio + math.log(share)
