"""The least Gaussian noise for every sensitivity set, for several notions of error."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut.accounting import gaussian_mu
from taut.errors import InfeasibleBudget, UnsoundConfiguration
from taut.noise._exact_sums import fine_axes, fixed_point, in_chunks
from taut.noise._fitting.objectives import (
    checked_power,
    coordinate_weights,
    relative_weights,
    weighed_outline,
)
from taut.noise._fitting.water_filling import (
    PURE_FACTOR,
    largest_cost,
    product,
    total_cost,
    unit_scales,
    whitened_radius,
)
from taut.noise._mechanisms.float_range import within_floats
from taut.noise._mechanisms.gaussian import GaussianNoise, normal_moment
from taut.noise._mechanisms.mechanism import Certificate
from taut.noise._optimal.along_basis import least_along_basis, turns
from taut.noise._optimal.finite_solver import Solution, least_trace, least_worst, span_of
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.boxes import Box
from taut.noise._sets.finite import FiniteSet, Polytope
from taut.noise._sets.projections import row_norms
from taut.noise._sets.sets import Outline, SensitivitySet, frozen_vector

__all__ = ["gaussian_along_axes", "gaussian_with_scales", "optimal_gaussian"]


@within_floats
def optimal_gaussian(
    sensitivity: SensitivitySet,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    multiplier: float | None = None,
    objective: str = "total",
    weights: ArrayLike | None = None,
    power: float = 2.0,
) -> GaussianNoise:
    """Return the least Gaussian noise that hides a set, with its certificate.

    Args:
        sensitivity: what one record can change; for replace-one, a set of `differences`.
        epsilon: epsilon of the guarantee, with ``delta``, the promise to keep.
        delta: probability delta of the guarantee, in (0, 1).
        multiplier: instead of both, the noise per unit of sensitivity that an accountant asks for.
        objective: ``"total"``, the sum of E|noise_i|^power; ``"worst"``, the largest variance of a
            coordinate; ``"relative"``, the sum over coordinates (blocks, if there is no basis) of
            the expected squared noise over the squared sensitivity.
        weights: positive importance of every coordinate (or block) in the objective. They never
            touch the privacy constraint.
        power: exponent of the error, for ``"total"``; above 0, at most 200.

    **Guarantee**: the loss is that of scalar Gaussian noise with the multiplier, for the adjacency
    of the set. The noise is of least error among all Gaussian noise for ``power=2``, and among
    noise independent along the axes otherwise, where `Certificate` has a gap of zero: Xiao, Wan and
    Devadas (2023, Theorems 4.3, 4.5, 4.6); Muthukrishnan and Kalyani (2025, Theorem 4 and equation
    9). Levelling under a cap, and weights, are derived in docs/theory/gaussian-noise.md.

    With a basis, noise lies along its axes, and total variance (plain, or with weights of whole
    blocks) is least as above. Any other error is made by coordinates, in which the axes mix: then
    the certificate compares with noise along the axes of the basis alone, and for powers other
    than 2 it claims nothing.

    Raises:
        ValueError: for no target or two, and for weights of the wrong shape.
        InfeasibleBudget: if no noise within floating point keeps the promise.
        UnsoundConfiguration: if the scales fail their check.

    Example:
        >>> from taut.noise import Box, optimal_gaussian
        >>> noise = optimal_gaussian(Box([1, 2, 3, 4]), epsilon=0.5, delta=1e-6)
        >>> noise.scales.round(3)
        array([25.48 , 36.035, 44.133, 50.961])
        >>> noise.loss.epsilon(delta=1e-6) <= 0.5
        True
    """
    p = checked_power(objective, power)
    z = _multiplier(epsilon, delta, multiplier)
    if isinstance(sensitivity, FiniteSet | Polytope):
        return _numerical(sensitivity, z, objective, weights, p)
    if isinstance(sensitivity, Box | Blocks) and turns(sensitivity, objective, weights, p):
        return _turned(sensitivity, z, objective, weights, p)
    return _closed_form(sensitivity, z, objective, weights, p)


@within_floats
def gaussian_along_axes(
    sensitivity: SensitivitySet, *, epsilon: float, delta: float, objective: str
) -> GaussianNoise:
    """Return the noise of least error along the axes of the set: those of its basis, if any."""
    z = _multiplier(epsilon, delta, None)
    if isinstance(sensitivity, FiniteSet | Polytope):
        return _numerical(sensitivity, z, objective, None, 2.0)
    return _closed_form(sensitivity, z, objective, None, 2.0)


@within_floats
def gaussian_with_scales(sensitivity: SensitivitySet, scales: ArrayLike) -> GaussianNoise:
    """Return the mechanism with the given standard deviation in every coordinate (or block).

    **Guarantee**: its multiplier follows from the largest whitened length in the set.

    Example:
        >>> from taut.noise import Box, gaussian_with_scales
        >>> round(gaussian_with_scales(Box([1, 3]), [2, 4]).loss.delta(epsilon=0.5), 9)
        0.199150021
    """
    vector = frozen_vector(scales, "scales", allow_zero=True)
    outline = sensitivity.outline()
    if vector.size != outline.radii.size:
        outline = sensitivity.outline(by_axis=True)
    if vector.size != outline.radii.size:
        raise ValueError(f"scales must hold {outline.radii.size} numbers, got {vector.size}")
    radius = whitened_radius(outline, vector) + _left_outside(sensitivity, vector)
    if not radius < math.inf:
        raise UnsoundConfiguration(
            "scales must be greater than 0 wherever the set is not zero: a coordinate without "
            "noise hides nothing"
        )
    error = float(outline.ranks @ vector**2)
    statement = "scales as given; nothing is claimed about how small they could be"
    proof = Certificate(radius, error, 0.0, statement)
    return _mechanism(sensitivity, outline, vector, 1 / (radius * PURE_FACTOR), "given", proof)


def _multiplier(epsilon: float | None, delta: float | None, multiplier: float | None) -> float:
    """Return 1 / mu for the target, rounded up."""
    if multiplier is not None and epsilon is None and delta is None:
        return validate.positive(multiplier=multiplier)
    if multiplier is not None or epsilon is None or delta is None:
        raise ValueError(
            "give either epsilon and delta, or multiplier, got "
            f"epsilon={epsilon!r}, delta={delta!r}, multiplier={multiplier!r}"
        )
    mu = gaussian_mu(epsilon, delta)
    if not mu > 1e-300:  # 1 / mu is a float then
        raise InfeasibleBudget(
            f"no Gaussian noise within floating point keeps epsilon={epsilon!r} at "
            f"delta={delta!r}; raise either"
        )
    return 1 / mu * (1 + 1e-10)  # what an accountant rounds up must still be within the promise


def _closed_form(
    sensitivity: SensitivitySet, z: float, objective: str, weights: ArrayLike | None, p: float
) -> GaussianNoise:
    outline, costs = weighed_outline(
        sensitivity, lambda by_axis: sensitivity.outline(by_axis=by_axis), objective, weights
    )
    scales, bound, radius = unit_scales(outline, costs, objective, p)
    room = 1 + _left_outside(sensitivity, scales)
    scales *= z * room
    radius = (radius - 1 + room) / (z * room)
    error, factor = _error(outline, costs, scales, objective, p)
    proof = Certificate(radius, error, bound * factor * z**p * outline.exact, _why(outline, p))
    return _mechanism(sensitivity, outline, scales, z, objective, proof)


def _turned(
    sensitivity: Box | Blocks, z: float, objective: str, weights: ArrayLike | None, p: float
) -> GaussianNoise:
    """Return noise along the axes of a basis for an error that coordinates make."""
    found = least_along_basis(sensitivity, objective, weights, p)
    factor = 1.0 if p == 2 else normal_moment(p)
    room = 1 + _left_outside(sensitivity, found.scales)
    proof = Certificate(
        (found.radius - 1 + room) / (z * room),
        found.error * factor * (z * room) ** p,
        found.lower_bound * factor * z**p,
        found.statement,
    )
    scales = found.scales * (z * room)
    return _mechanism(sensitivity, found.outline, scales, z, objective, proof)


def _left_outside(sensitivity: SensitivitySet, scales: Vector) -> float:
    """Return the length, over scales, of what clipping in a basis leaves outside."""
    rounding = sensitivity.rounding
    return rounding / float(scales[scales > 0].min()) if rounding > 0 else 0.0


def _error(
    outline: Outline, costs: Vector, scales: Vector, objective: str, p: float
) -> tuple[float, float]:
    """Return the objective, and the p-th absolute moment of a standard normal number."""
    if objective == "worst":
        return largest_cost(costs, scales), 1.0
    factor = 1.0 if p == 2 else normal_moment(p)
    return factor * total_cost(product(outline.ranks, costs), scales, p), factor


def _why(outline: Outline, p: float) -> str:
    if not outline.exact:
        return "scales for a set around this one: private for it, but less noise might do"
    among = "all Gaussian noise" if p == 2 else "noise that is independent along the axes"
    return f"closed form, least among {among}"


def _mechanism(
    sensitivity: SensitivitySet,
    outline: Outline,
    scales: Vector,
    z: float,
    objective: str,
    proof: Certificate,
) -> GaussianNoise:
    """Spread the scales of blocks over their directions."""
    allowed = 1 / z
    if not proof.radius <= allowed * (1 + 1e-15):  # 1 / z is rounded
        raise UnsoundConfiguration(
            f"a whitened length of {proof.radius!r} is above the allowed {allowed!r}"
        )
    basis = sensitivity.basis if isinstance(sensitivity, Box | Blocks) else None
    rest = 0.0
    axes = (
        scales
        if scales.size == sensitivity.dimension
        else np.repeat(scales, outline.ranks.astype(np.int64))
    )
    if basis is not None and basis.shape[1] < sensitivity.dimension:
        axes, rest = axes[: basis.shape[1]], float(scales[-1])
    axes.setflags(write=False)
    return GaussianNoise(sensitivity, objective, proof, z, axes, basis, rest)


def _numerical(
    sensitivity: FiniteSet | Polytope,
    z: float,
    objective: str,
    weights: ArrayLike | None,
    p: float,
) -> GaussianNoise:
    if p != 2:
        raise ValueError(f"power must be 2 for a finite set, got power={p!r}")
    if weights is None:
        span, found = _searched_once(sensitivity, objective)
    else:
        span, found = _searched(sensitivity, objective, weights)
    sizes, turn = np.linalg.eigh(found.covariance)
    return _from_axes(sensitivity, span @ turn, sizes, z, objective, found.value, found.lower_bound)


def _searched(
    sensitivity: FiniteSet | Polytope, objective: str, weights: ArrayLike | None
) -> tuple[Matrix, Solution]:
    """Return the span of the vectors, and the least noise in it for a multiplier of one."""
    vectors = sensitivity.vectors
    costs = coordinate_weights(weights, sensitivity.dimension)
    if objective == "relative":
        costs = relative_weights(costs, np.abs(vectors).max(axis=0))
    span = span_of(vectors)
    inside = vectors @ span
    if objective == "worst":
        return span, least_worst(inside, span, costs)
    return span, least_trace(inside, (span * costs[:, None]).T @ span)


@lru_cache(maxsize=4)
def _searched_once(sensitivity: FiniteSet | Polytope, objective: str) -> tuple[Matrix, Solution]:
    """Remember the search: a comparison of mechanisms asks for the same noise by several names."""
    return _searched(sensitivity, objective, None)


def _from_axes(
    sensitivity: FiniteSet | Polytope,
    axes: Matrix,
    variances: Vector,
    z: float,
    objective: str,
    value: float,
    bound: float,
) -> GaussianNoise:
    """Check the axes and variances that are returned, not those that were searched."""
    if not float(variances.min()) > 0:
        raise UnsoundConfiguration(
            "the vectors are too far apart in size for floating point; scale the coordinates"
        )
    axes = fine_axes(axes)
    inside = fixed_point(sensitivity.vectors).times(in_chunks(axes)).doubles()
    unit = _longest(sensitivity, inside, np.sqrt(variances))
    scales = np.sqrt(variances) * (z * unit * PURE_FACTOR)
    radius = _longest(sensitivity, inside, scales)
    proof = Certificate(
        radius,
        value * (z * unit * PURE_FACTOR) ** 2,
        bound * z**2,
        "solved numerically, proof by duality",
    )
    if not radius <= (1 / z) * (1 + 1e-15):  # 1 / z is rounded
        raise UnsoundConfiguration(f"a whitened length of {radius!r} is above 1 / {z!r}")
    scales.setflags(write=False)
    return GaussianNoise(sensitivity, objective, proof, z, scales, axes)


def _longest(sensitivity: FiniteSet | Polytope, inside: Matrix, scales: Vector) -> float:
    """Return the largest length over the scales, and what rounding of a change can add to it."""
    longest = float(row_norms(inside / scales, 2.0).max())
    return longest + 2 * sensitivity.rounding / float(scales.min())
