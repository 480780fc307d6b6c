"""Laplace scales for a promise with delta above zero, by the certified accountant.

With delta = 0 the sum of ratios counts; with many coordinates and delta > 0, by the central limit
theorem, the sum of their squares. The shapes that are best for the one and for the other are the
ends of a family between which the best is searched, by a bound that is quick, and then calibrated
by the accountant.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from taut.noise._clipping import Vector
from taut.noise._laplace_loss import loss_of_ratios, worst_ratios
from taut.noise._sets import SensitivitySet

__all__ = ["calibrated", "one_coordinate_budget"]

_BLENDS = np.linspace(0.0, 1.0, 11)
_ORDERS = 1 + np.geomspace(1e-2, 1e4, 240)
_ACCURACY = 1e-4  # relative, of the scales
_ROUGH = 1e-2  # of the bracket; its upper end is much closer to the truth
_ROUNDS = 40


def one_coordinate_budget(epsilon: float, delta: float) -> float:
    """Return the largest ratio, rounded down, of one Laplace release within (epsilon, delta).

    The profile is 1 - exp((epsilon - ratio) / 2), from which the ratio follows. Releases with
    several coordinates whose ratios sum to it are within the promise too, since one coordinate
    majorises them (docs/theory/laplace-noise.md).
    """
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
        epsilon: of the promise.
        delta: of the promise, above zero.
        pure: scales of least error for a promise with delta zero, which are within this one.
        many: scales of least error for many coordinates, up to a factor.
        error: what is made small.
    """
    shapes = [pure]
    if (blend := _best_blend(sensitivity, epsilon, delta, pure, many, error)) > 0:
        shapes.append(_blended(pure, many, blend))
    found = [_fitted(sensitivity, epsilon, delta, shape) for shape in shapes]
    best = min([pure, *found], key=error)
    best.setflags(write=False)
    return best


def _blended(pure: Vector, many: Vector, blend: float) -> Vector:
    moved = pure > 0
    result = np.zeros_like(pure)
    result[moved] = np.exp((1 - blend) * np.log(pure[moved]) + blend * np.log(many[moved]))
    return result


def _fitted(sensitivity: SensitivitySet, epsilon: float, delta: float, shape: Vector) -> Vector:
    """Return the smallest multiple of the shape that the accountant certifies."""
    ratios = worst_ratios(sensitivity, shape)
    alone = one_coordinate_budget(epsilon, delta)

    def excess(log_factor: float) -> float:
        scaled = ratios * math.exp(-log_factor)
        bounds = loss_of_ratios(scaled, sensitivity.adjacency).epsilon_bounds(delta, _ROUGH)
        return math.log(max(bounds.upper, 1e-300) / epsilon)

    # One coordinate alone needs the low factor, and all of them together never more than the high.
    low, high = (math.log(float(size) / alone) for size in (ratios[0], ratios.sum()))
    over, under = math.log(alone / epsilon) + 1e-6, excess(high)
    if under > 0:
        high += math.log(alone / epsilon) + 1e-9
        under = -1e-9
    high = _root(excess, (low, over), (high, under))
    return shape * math.exp(high)


def _root(
    excess: Callable[[float], float], beyond: tuple[float, float], within: tuple[float, float]
) -> float:
    """Return a point within the budget, close to where a falling function crosses zero.

    The secant rule of two ends; an end that stays counts half (Illinois), so that it moves soon.
    """
    (low, over), (high, under) = beyond, within
    stuck = 1.0
    for _ in range(_ROUNDS):
        if under > -_ACCURACY / 2 or high - low < _ACCURACY / 4:
            break
        share = over / (over - under * stuck)
        # A little to the safe side, where the answer has to be.
        at = low + (high - low) * min(max(share + 1e-3, 0.05), 0.97)
        value = excess(at)
        if value > 0:
            low, over = at, value
            stuck /= 2
        else:
            high, under = at, value
            stuck = 1.0
            over /= 2
    return high


def _best_blend(
    sensitivity: SensitivitySet,
    epsilon: float,
    delta: float,
    pure: Vector,
    many: Vector,
    error: Callable[[Vector], float],
) -> float:
    """Return the blend whose error is least when Renyi divergences decide the factor."""
    moved = pure > 0
    relative = pure[moved] / many[moved]
    if float(relative.max()) <= float(relative.min()) * (1 + 1e-9):
        return 0.0
    errors = []
    for blend in _BLENDS:
        shape = _blended(pure, many, float(blend))
        ratios = worst_ratios(sensitivity, shape)
        errors.append(error(shape * _renyi_factor(ratios, epsilon, delta)))
    return float(_BLENDS[int(np.argmin(errors))])


def _renyi_factor(ratios: Vector, epsilon: float, delta: float) -> float:
    """Estimate by how much to enlarge scales, from the conversion of Renyi divergences."""
    values, counts = np.unique(np.round(ratios / ratios[0], 4), return_counts=True)
    kept = values > 0
    values, counts = values[kept] * float(ratios[0]), counts[kept]
    low, high = float(ratios[0]) / (epsilon + 2 * delta), float(ratios.sum()) / epsilon
    low = min(low, high)
    for _ in range(30):
        middle = math.sqrt(low * high)
        inside = _renyi_epsilon(values / middle, counts, delta) <= epsilon
        low, high = (low, middle) if inside else (middle, high)
    return high


def _renyi_epsilon(values: Vector, counts: Vector, delta: float) -> float:
    a = _ORDERS[:, None]
    # Divergence of a Laplace release: log of a/(2a-1) e^((a-1) v) + (a-1)/(2a-1) e^(-a v).
    cumulants = (a - 1) * values + np.log(
        a / (2 * a - 1) + (a - 1) / (2 * a - 1) * np.exp(-(2 * a - 1) * values)
    )
    divergences = (cumulants @ counts) / (_ORDERS - 1)
    slack = np.log1p(-1 / _ORDERS) - (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1)
    return float(np.min(divergences + slack))
