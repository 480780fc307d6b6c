"""Laplace scales for a promise with delta above zero, by the certified accountant.

With delta = 0 the sum of ratios counts; with many coordinates and delta > 0, by the central limit
theorem, the sum of their squares. The shapes that are best for the one and for the other are the
ends of a family between which the best is searched, by a bound that is quick, and then calibrated
by the accountant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Vector
from taut.noise._mechanisms.laplace_loss import loss_of_ratios, worst_ratios
from taut.noise._sets.sets import SensitivitySet

__all__ = ["calibrated", "one_coordinate_budget"]

_BLENDS = np.linspace(0.0, 1.0, 7)  # of two shapes, the best of which is taken; all are calibrated
_RENYI_ORDERS = 1 + np.geomspace(1e-2, 1e4, 240)  # for a start alone; neighbours differ by 6%
_SCALE_ACCURACY = 1e-4  # relative, of the scales, which end on the safe side
# Relative gaps of epsilon. Upper ends are used, so any is sound; with many releases that end is
# much closer to the truth.
_FINE_BRACKET, _ROUGH_BRACKET = 1e-3, 1e-2
_FEW_RATIOS = 40  # for which a fine bracket takes a moment
_ROOT_STEPS = 40  # secants or halvings: the point within the budget is kept throughout


def one_coordinate_budget(epsilon: float, delta: float) -> float:
    """Return the largest ratio, rounded down, of one Laplace release within (epsilon, delta).

    The profile is 1 - exp((epsilon - ratio) / 2), from which the ratio follows. Releases with
    several coordinates whose ratios sum to it are within the promise too, since one coordinate
    majorises them (docs/theory/laplace-noise.md).
    """
    # By far more than an accountant rounds, and less than a promise is printed with.
    return (epsilon - 2 * math.log1p(-delta)) * (1 - 1e-9)


def calibrated(
    sensitivity: SensitivitySet,
    epsilon: float,
    delta: float,
    pure: Vector,
    many: Vector,
    error: Callable[[Vector], float],
) -> Vector:
    """Return the scales of least error that were found to keep (epsilon, delta).

    Args:
        sensitivity: the set.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise, above zero.
        pure: scales of least error for a promise with delta zero, which are within this one.
        many: scales of least error for many coordinates, up to a factor.
        error: what is made small.
    """
    promise = _Promise(sensitivity, epsilon, delta)
    found = [_fitted(promise, shape) for shape in _best_shapes(promise, pure, many, error)]
    better = sorted((scales for scales in found if error(scales) < error(pure)), key=error)
    # Asked once more, of the scales that leave.
    kept = (scales for scales in better if promise.is_kept_by(scales))
    best = next(kept, pure)
    best.setflags(write=False)
    return best


@dataclass(frozen=True)
class _Promise:
    """What scales have to keep, for every member of a set."""

    sensitivity: SensitivitySet
    epsilon: float
    delta: float

    def ratios(self, scales: Vector) -> Vector:
        """Return ratios of moves to scales that majorise those of every member, largest first."""
        return worst_ratios(self.sensitivity, scales)

    def upper_epsilon(self, ratios: Vector) -> float:
        """Return a certified upper bound on epsilon at delta."""
        loss = loss_of_ratios(ratios, self.sensitivity.adjacency)
        gap = _FINE_BRACKET if ratios.size <= _FEW_RATIOS else _ROUGH_BRACKET
        return loss.epsilon_bounds(self.delta, gap).upper

    def is_kept_by(self, scales: Vector) -> bool:
        """Return whether the accountant certifies these scales."""
        return self.upper_epsilon(self.ratios(scales)) <= self.epsilon


def _blended(pure: Vector, many: Vector, blend: float) -> Vector:
    moved = pure > 0
    result = np.zeros_like(pure)
    result[moved] = np.exp((1 - blend) * np.log(pure[moved]) + blend * np.log(many[moved]))
    return result


def _fitted(promise: _Promise, shape: Vector) -> Vector:
    """Return the smallest multiple of the shape that the accountant certifies."""
    ratios, epsilon = promise.ratios(shape), promise.epsilon
    alone = one_coordinate_budget(epsilon, promise.delta)

    def excess(log_factor: float) -> float:
        upper = promise.upper_epsilon(ratios * math.exp(-log_factor))
        return math.log(max(upper, 1e-300) / epsilon)  # a loss of zero is far within

    # All coordinates together never need more than one with the sum of the ratios, and one never
    # less than it needs alone.
    whole, first = float(ratios.sum()), float(ratios[0])
    high = math.log(min(whole / alone, _renyi_factor(ratios, promise)))
    if (under := excess(high)) > 0:
        high = math.log(whole / epsilon) + 1e-9  # beyond rounding, where pure privacy holds
        under = excess(high)
    return shape * math.exp(_root(excess, math.log(first / alone), high, under))


def _root(excess: Callable[[float], float], low: float, high: float, under: float) -> float:
    """Return a point within the budget, close to where a falling function crosses zero.

    Secant steps from the point within: with slope -1 at first, then with that of the last step,
    and a halving if they lead out of the bracket.
    """
    slope = 1.0
    for _ in range(_ROOT_STEPS):
        if under > -_SCALE_ACCURACY or high - low < _SCALE_ACCURACY / 4:
            break
        # A little to the safe side, where the answer has to be.
        at = high + (under + _SCALE_ACCURACY / 2) / slope
        if not low < at < high:
            at = (low + high) / 2
        value = excess(at)
        slope = min(max((value - under) / (high - at), 0.2), 5.0)
        if value > 0:
            low = at
        else:
            high, under = at, value
    return high


def _best_shapes(
    promise: _Promise, pure: Vector, many: Vector, error: Callable[[Vector], float]
) -> list[Vector]:
    """Return the shape whose error is least when Renyi divergences decide the factor.

    The pure shape comes along unless it is clearly worse: near it those divergences are loose.
    """
    moved = pure > 0
    relative = pure[moved] / many[moved]
    if float(relative.max()) <= float(relative.min()) * (1 + 1e-9):  # the same shape
        return [pure]
    shapes = [_blended(pure, many, float(blend)) for blend in _BLENDS]
    factors = [_renyi_factor(promise.ratios(shape), promise) for shape in shapes]
    errors = [error(shape * factor) for shape, factor in zip(shapes, factors, strict=True)]
    best = int(np.argmin(errors))
    if best == 0:
        return [pure]
    return [shapes[best]] if errors[0] > 1.1 * errors[best] else [pure, shapes[best]]


def _renyi_factor(ratios: Vector, promise: _Promise) -> float:
    """Estimate by how much to enlarge scales, from the conversion of Renyi divergences."""
    epsilon, delta = promise.epsilon, promise.delta
    values, counts = np.unique(np.round(ratios / ratios[0], 4), return_counts=True)
    kept = values > 0
    values, sizes = values[kept] * float(ratios[0]), counts[kept].astype(np.float64)
    low, high = float(ratios[0]) / (epsilon + 2 * delta), float(ratios.sum()) / epsilon
    low = min(low, high)
    for _ in range(30):
        middle = math.sqrt(low * high)
        inside = _renyi_epsilon(values / middle, sizes, delta) <= epsilon
        low, high = (low, middle) if inside else (middle, high)
    return high


def _renyi_epsilon(values: Vector, counts: Vector, delta: float) -> float:
    a = _RENYI_ORDERS[:, None]
    # Divergence of a Laplace release: log of a/(2a-1) e^((a-1) v) + (a-1)/(2a-1) e^(-a v).
    cumulants = (a - 1) * values + np.log(
        a / (2 * a - 1) + (a - 1) / (2 * a - 1) * np.exp(-(2 * a - 1) * values)
    )
    divergences = (cumulants @ counts) / (_RENYI_ORDERS - 1)
    slack = np.log1p(-1 / _RENYI_ORDERS) - (math.log(delta) + np.log(_RENYI_ORDERS)) / (
        _RENYI_ORDERS - 1
    )
    return float(np.min(divergences + slack))
