"""The least Laplace noise for every sensitivity set, for several notions of error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector
from taut.errors import UnsoundConfiguration
from taut.noise._fitting.l1_radius import l1_radius, rooted
from taut.noise._fitting.objectives import (
    checked_power,
    coordinate_weights,
    relative_weights,
    weighed_outline,
)
from taut.noise._fitting.water_filling import (
    PURE_FACTOR,
    largest_cost,
    level_l1,
    level_worst,
    levelled,
    product,
    total_cost,
)
from taut.noise._mechanisms.float_range import within_floats
from taut.noise._mechanisms.laplace import LaplaceNoise
from taut.noise._mechanisms.mechanism import Certificate
from taut.noise._optimal.laplace_calibration import calibrated
from taut.noise._optimal.laplace_solver import least_laplace
from taut.noise._sets.finite import FiniteSet, Polytope
from taut.noise._sets.sets import Outline, SensitivitySet

__all__ = ["ACCOUNTINGS", "Shape", "laplace_shape", "optimal_laplace"]

ACCOUNTINGS = ("exact", "corollary6", "pure")
"""How a positive delta is used."""


@dataclass(frozen=True)
class Shape:
    """Scales for a pure budget of one, and what they are for.

    Attributes:
        pure: the scales of least error among those with a radius of one, by coordinate.
        many: returns scales of least error for many coordinates, where only the sum of squared
            ratios counts; the same as `pure` if there is nothing to choose.
        loads: the weight of every coordinate in the error.
        power: exponent of the error.
        worst: whether the error is the largest term, not the sum.
        bound: what no Laplace noise with a radius of one goes below; 0 if nothing is known.
        statement: why.
    """

    pure: Vector
    many: Callable[[], Vector]
    loads: Vector
    power: float
    worst: bool
    bound: float
    statement: str

    def error(self, scales: Vector) -> float:
        """Return the error, E|noise|^p of a Laplace number being Gamma(p + 1) scale^p."""
        if self.worst:
            return 2 * largest_cost(self.loads, scales)
        return math.gamma(self.power + 1) * total_cost(self.loads, scales, self.power)


@within_floats
def optimal_laplace(
    sensitivity: SensitivitySet,
    *,
    epsilon: float,
    delta: float = 0.0,
    objective: str = "total",
    weights: ArrayLike | None = None,
    power: float = 2.0,
    accounting: str = "exact",
) -> LaplaceNoise:
    """Return the least independent Laplace noise that hides a set, with its certificate.

    Args:
        sensitivity: what one record can change, without a basis; for replace-one, a set of
            `differences`.
        epsilon: the promise to keep, above 0.
        delta: probability delta of the guarantee, in [0, 1); with 0 the promise is pure.
        objective: ``"total"``, the sum of E|noise_i|^power; ``"worst"``, the largest variance of a
            coordinate; ``"relative"``, the sum over coordinates (blocks) of the expected squared
            noise over the squared sensitivity.
        weights: positive importance of every coordinate (or block) in the objective. They never
            touch the privacy constraint.
        power: exponent of the error, for ``"total"``; any number above 0.
        accounting: what a positive delta buys. ``"exact"``: the certified accountant is asked.
            ``"corollary6"``: a pure budget of epsilon - log(1 - delta). ``"pure"``: nothing.

    **Guarantee**: (epsilon, delta)-DP for the adjacency of the set. For ``delta=0`` the error is
    least among independent Laplace noise where `Certificate` has a gap of zero (Muthukrishnan and
    Kalyani 2025, Theorem 5 and equation (12), corrected for weights; levelling under a bound on l1
    and all else in docs/theory/laplace-noise.md). For ``delta > 0`` the certified epsilon of the
    returned loss is within the promise, and the error is never above that for ``delta=0``.

    Raises:
        ValueError: for parameters out of range and for weights of the wrong shape.
        UnsoundConfiguration: for a set with a basis, and if the scales fail their check.

    Example:
        >>> from taut.noise import Box, optimal_laplace
        >>> noise = optimal_laplace(Box([1, 2, 3, 4]), epsilon=0.5)
        >>> noise.scales.round(3)
        array([14.375, 18.111, 20.732, 22.818])
        >>> noise.certificate.radius <= 0.5
        True
    """
    p = checked_power(objective, power)
    if accounting not in ACCOUNTINGS:
        raise ValueError(f"accounting must be one of {ACCOUNTINGS}, got accounting={accounting!r}")
    target, level = validate.positive(epsilon=epsilon), validate.below_one(delta=delta)
    shape = laplace_shape(sensitivity, objective, weights, p)
    budget = target - math.log1p(-level) * (accounting == "corollary6")
    pure = _pure(sensitivity, objective, shape, budget)
    if level == 0 or accounting != "exact":
        return pure
    scales = calibrated(sensitivity, target, level, pure.scales, shape.many(), shape.error)
    statement = "calibrated by the certified accountant; nothing is claimed about the least noise"
    radius = l1_radius(sensitivity, scales)
    return LaplaceNoise(
        sensitivity, objective, Certificate(radius, shape.error(scales), 0.0, statement), scales
    )


def _pure(sensitivity: SensitivitySet, objective: str, shape: Shape, budget: float) -> LaplaceNoise:
    scales = shape.pure * (PURE_FACTOR / budget)
    radius = l1_radius(sensitivity, scales, budget)
    if not radius <= budget:
        scales = scales * (radius / budget * PURE_FACTOR)
        radius = l1_radius(sensitivity, scales, budget)
    if not radius <= budget:
        raise UnsoundConfiguration(
            f"the scales leave a sum of ratios of {radius!r} where {budget!r} is allowed; the "
            "bounds of the set are too far apart for floating point"
        )
    scales.setflags(write=False)
    bound = shape.bound * math.gamma(shape.power + 1) / budget**shape.power
    proof = Certificate(radius, shape.error(scales), bound, shape.statement)
    return LaplaceNoise(sensitivity, objective, proof, scales)


def laplace_shape(
    sensitivity: SensitivitySet, objective: str, weights: ArrayLike | None, p: float
) -> Shape:
    if isinstance(sensitivity, FiniteSet | Polytope):
        return _numerical(sensitivity, objective, weights, p)
    outline, costs = weighed_outline(
        sensitivity,
        lambda by_axis: sensitivity.l1_outline(by_axis=by_axis),
        objective,
        weights,
    )
    loads = product(outline.ranks, costs)
    if objective == "worst":
        found, least, _ = level_worst(rooted(outline), np.sqrt(costs))
        pure, bound = found**2, least**2
    else:
        pure, bound = level_l1(outline, loads, p)

    def many() -> Vector:
        if objective == "worst":
            return _by_axis(outline, pure)
        # Per direction a length of l1 / rank; a sum of squared ratios is what Gaussian noise has.
        lengths = levelled(rooted(outline), loads)
        return _by_axis(outline, (lengths**2 / outline.ranks / loads) ** (1 / (p + 2)))

    exact = outline.exact
    statement = (
        "closed form, least among independent Laplace noise"
        if exact
        else "scales for a set around this one: private for it, but less noise might do"
    )
    return Shape(
        _by_axis(outline, pure),
        many,
        _by_axis(outline, costs),
        p,
        objective == "worst",
        bound * exact,
        statement,
    )


def _by_axis(outline: Outline, values: Vector) -> Vector:
    if values.size == outline.ranks.sum():
        return values
    return np.repeat(values, outline.ranks.astype(np.int64))


def _numerical(
    sensitivity: FiniteSet | Polytope, objective: str, weights: ArrayLike | None, p: float
) -> Shape:
    lengths = np.abs(sensitivity.vectors)
    widths = lengths.max(axis=0)
    moved = widths > 0
    costs = coordinate_weights(weights, sensitivity.dimension)
    if objective == "relative":
        costs = relative_weights(costs, widths)
    scales = np.zeros(sensitivity.dimension)
    if objective == "worst":
        largest = float((lengths @ np.sqrt(costs)).max())
        scales[moved] = largest / np.sqrt(costs[moved])
        bound, statement = largest**2, "closed form, least among independent Laplace noise"
    else:
        found = least_laplace(lengths[:, moved], costs[moved], p)
        scales[moved], bound = found[0], found[2]
        statement = "solved numerically, proof by duality"
    return Shape(scales, lambda: scales, costs, p, objective == "worst", bound, statement)
