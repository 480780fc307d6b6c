"""Gaussian differential privacy: the mu that a loss has, and how well it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._answers.answer import delta_curve, epsilon_bounds
from taut.accounting._answers.of_pairs import Curve
from taut.accounting._engines.bounds import Bounds
from taut.accounting._engines.half_sum import HalfSum
from taut.accounting._pairs.gaussian import GaussianPair

__all__ = ["GaussianFit", "fit_gaussian"]

_FIT_NODES = (
    257  # of epsilon: corners lie above the curve by a share of one over their number squared
)
_FIT_ANCHORS = 5  # epsilons at which a curve must be sharp; each serves its neighbourhood
_FIT_TOLERANCE = 1e-3  # of delta there: mu goes with its logarithm, and is known to some 1e-4
_FARTHEST_FIT = 300.0  # at which a mu, of some twenty-five or more, says that nothing is private
_FIT_ERROR = 1e-9  # relative, of quantiles and of a root: far more than their rounding
_MU_HALVINGS = 60  # of an interval for mu: to the last digit


@dataclass(frozen=True)
class GaussianFit:
    """A loss in terms of Gaussian differential privacy.

    Attributes:
        mu: certified bounds on the smallest mu such that delta(epsilon) exceeds that of one
            Gaussian release with ratio mu by at most ``delta``, at every epsilon.
        delta: the probability left out of the comparison.
        regret: certified upper bound on the regret of reporting ``mu.upper``: errors of an attacker
            of both kinds, shifted by so much, are no smaller than the Gaussian's.
    """

    mu: Bounds
    delta: float
    regret: float


def fit_gaussian(sums: Sequence[HalfSum], delta: float) -> GaussianFit:
    """Return the Gaussian that covers all ``sums`` but for ``delta``."""
    parts = list(dict.fromkeys(sums))
    mus = {_gaussian_mu(part) for part in parts}
    if delta == 0 and len(mus) == 1 and None not in mus:
        (known,) = mus
        assert known is not None
        return GaussianFit(_around(known), 0.0, 0.0)
    reach = epsilon_bounds(parts, delta, _FIT_TOLERANCE).bounds.upper
    if reach > _FARTHEST_FIT:
        return GaussianFit(Bounds(0.0, math.inf), delta, 1.0)
    if reach == 0:
        return GaussianFit(Bounds(0.0, 0.0), delta, 0.0)
    epsilons = np.linspace(0.0, reach, _FIT_NODES)
    lower, upper = _envelope(parts, epsilons, delta)
    upper[-1] = min(upper[-1], delta) if delta else 0.0  # that is what `reach` was certified for
    above = _covering(epsilons, np.maximum(upper - delta, 0.0))
    below = max(map(_least_mu, epsilons.tolist(), (lower - delta).tolist()))
    below = min(below * (1 - _FIT_ERROR), above)
    if math.isinf(above):
        return GaussianFit(Bounds(below, above), delta, 1.0)
    return GaussianFit(Bounds(below, above), delta, _regret(epsilons, lower, upper, above))


def _gaussian_mu(part: HalfSum) -> float | None:
    """Return the mu of a sum that is Gaussian, or None."""
    if not part.terms and not part.curves:
        return 0.0
    return part.single.gaussian_mu or None if part.single is not None else None


def _around(mu: float) -> Bounds:
    return Bounds(mu * (1 - _FIT_ERROR), mu * (1 + _FIT_ERROR))


def _envelope(parts: Sequence[HalfSum], epsilons: Vector, delta: float) -> tuple[Vector, Vector]:
    """Return bounds on the larger delta of all halves; what lies below ``delta`` may be rough."""
    below, above = np.zeros(epsilons.size), np.zeros(epsilons.size)
    for part in parts:
        found = _curves(part, epsilons, delta)
        for i, epsilon in enumerate(epsilons.tolist()):
            bounds = [curve(epsilon) for curve in found]
            below[i] = max(below[i], *(each.lower for each in bounds))
            above[i] = max(above[i], min(each.upper for each in bounds))
    # Deltas fall, whatever a curve says far from where it is sharp.
    return np.maximum.accumulate(below[::-1])[::-1], np.minimum.accumulate(above)


def _curves(part: HalfSum, epsilons: Vector, delta: float) -> list[Curve]:
    """Return curves of which one is sharp at every anchor: often one is at all."""
    found: list[Curve] = []
    for at in np.linspace(epsilons[-1], epsilons[0], _FIT_ANCHORS).tolist():
        known = [curve(at) for curve in found]
        wanted = _FIT_TOLERANCE * max(min((each.upper for each in known), default=0.0), delta)
        if not any(each.gap <= wanted for each in known):
            found.append(delta_curve(part, at, _FIT_TOLERANCE))
    return found


def _covering(epsilons: Vector, deltas: Vector) -> float:
    """Return the largest mu that a corner of the trade-off through all points asks for.

    Every point says that misses are at least 1 - delta - exp(epsilon) x at false alarms x. The
    maximum of these lines is linear between corners, and Gaussian curves are convex.
    """
    slopes = np.exp(epsilons)
    with np.errstate(invalid="ignore", divide="ignore"):
        alarms = np.maximum(deltas[:-1] - deltas[1:], 0.0) / np.diff(slopes)
        # One minus the misses, which keeps its digits where they are nearly certain.
        found = np.minimum(deltas[:-1] + slopes[:-1] * alarms, 1.0)
        asked = np.where(alarms > 0, ndtri(found) - ndtri(alarms), 0.0)
    # Where two points coincide there is no corner; a corner without false alarms needs no finds.
    asked = np.where((alarms == 0) & (found > 0), math.inf, asked)
    return max(float(asked.max()), 0.0) * (1 + _FIT_ERROR)


def _least_mu(epsilon: float, delta: float) -> float:
    """Return the mu of a Gaussian whose delta at ``epsilon`` is the given one."""
    if delta <= 0:
        return 0.0
    if delta >= 1:
        return math.inf
    return _root(lambda mu: _delta(mu, epsilon) >= delta)


def _root(reached: Callable[[float], bool]) -> float:
    high = 1.0
    while not reached(high):
        high *= 2
    low = 0.0
    for _ in range(_MU_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return low


def _delta(mu: float, epsilon: float) -> float:
    return float(GaussianPair(mu).profile(np.array([epsilon]))[0]) if mu else 0.0


def _regret(epsilons: Vector, lower: Vector, upper: Vector, mu: float) -> float:
    """Return the largest (delta_mu - delta) / (1 + exp(epsilon)).

    In the threshold t both deltas are convex. Between two nodes the Gaussian's lies below its
    chord, and the other above the lines that continue it from the cells on either side. Their
    difference is a concave pair of lines, so that its quotient with 1 + t is largest at an end or
    where they meet.
    """
    if mu == 0:
        return 0.0
    gaussian = GaussianPair(mu)
    own = gaussian.profile(epsilons) * (1 + gaussian.profile_error)
    t = np.exp(epsilons)
    width = np.diff(t)
    falls = np.append(-1.0, (lower[1:-1] - upper[:-2]) / width[:-1])
    rises = np.append((upper[2:] - lower[1:-1]) / width[1:], 0.0)
    # Where the line from the left, lower + falls (s - t), meets that from the right.
    gap = lower[1:] - rises * width - lower[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = np.where(falls < rises, gap / (falls - rises), 0.0)
    meet = np.clip(meet, 0.0, width)
    inside = np.maximum(lower[:-1] + falls * meet, lower[1:] + rises * (meet - width))
    chord = own[:-1] + (own[1:] - own[:-1]) * meet / width
    worst = max(
        float(((own - lower) / (1 + t)).max()),
        float(((chord - inside) / (1 + t[:-1] + meet)).max()),
        float(own[-1] / (1 + t[-1])),
    )
    return min(max(worst, 0.0) * (1 + _FIT_ERROR) + RELATIVE_ERROR, 1.0)
