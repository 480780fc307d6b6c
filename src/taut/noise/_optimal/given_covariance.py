"""Gaussian noise with a covariance that is given: what it hides of a set."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from taut._base.arrays import Matrix, Vector, real_numbers
from taut.errors import UnsoundConfiguration
from taut.noise._exact_sums import fine_axes, fixed_point, in_chunks
from taut.noise._fitting.water_filling import PURE_FACTOR
from taut.noise._mechanisms.float_range import within_floats
from taut.noise._mechanisms.gaussian import GaussianNoise
from taut.noise._mechanisms.mechanism import Certificate
from taut.noise._sets.balls import L1Ball, L2Ball
from taut.noise._sets.finite import FiniteSet, Polytope
from taut.noise._sets.projections import row_norms
from taut.noise._sets.sets import SensitivitySet

__all__ = ["gaussian_with_covariance"]

_UNIT_ROUNDOFF = 2.0**-53  # of one product or sum of doubles


@within_floats
def gaussian_with_covariance(sensitivity: SensitivitySet, covariance: ArrayLike) -> GaussianNoise:
    """Return the mechanism with the given covariance, a dense matrix.

    Args:
        sensitivity: what one record can change.
        covariance: symmetric and positive definite, one row per coordinate.

    **Guarantee**: the multiplier is 1 / sup √(sᵀ C⁻¹ s) over the set, for the axes and scales that
    noise is drawn with, whose last digits are not quite orthonormal: exact for finite sets,
    polytopes, l1 and l2 balls, up to rounding; for other sets the smaller of two upper bounds, from
    the l2 norm and from what coordinates reach. Releases are on a grid along the axes.

    Raises:
        ValueError: for another shape, and for a matrix that is not symmetric and finite.
        UnsoundConfiguration: if it is not positive definite within rounding.

    Example:
        >>> from taut.noise import FiniteSet, gaussian_with_covariance
        >>> steps = FiniteSet([[1.0, 1.0], [1.0, -1.0]])
        >>> noise = gaussian_with_covariance(steps, [[2.0, 1.0], [1.0, 2.0]])
        >>> round(1 / noise.multiplier**2, 6)
        2.0
    """
    matrix = _symmetric(covariance, sensitivity.dimension)
    variances, axes = np.linalg.eigh(matrix)
    # Smaller eigenvalues are lost in the rounding of the decomposition.
    if not float(variances[0]) > matrix.shape[0] * 1e-15 * float(variances[-1]):
        raise UnsoundConfiguration(
            "covariance must be positive definite, got eigenvalues from "
            f"{float(variances[0])!r} to {float(variances[-1])!r}; add noise in the flat directions"
        )
    axes, scales = fine_axes(axes), np.sqrt(variances)
    radius, exact = _whitened(sensitivity, axes, scales)
    how = "exact" if exact else "an upper bound"
    proof = Certificate(
        radius,
        float(variances.sum()),
        0.0,
        f"covariance as given, its whitened length is {how}; nothing is claimed about less noise",
    )
    scales.setflags(write=False)
    return GaussianNoise(sensitivity, "given", proof, 1 / (radius * PURE_FACTOR), scales, axes)


def _symmetric(covariance: ArrayLike, dimension: int) -> Matrix:
    matrix = real_numbers(covariance, "covariance")
    if matrix.shape != (dimension, dimension):
        raise ValueError(
            f"covariance must be a matrix of {dimension} rows and columns, got shape {matrix.shape}"
        )
    if not np.isfinite(matrix).all():
        raise ValueError("covariance must be finite, got NaN or infinity in it")
    # Products in floats differ from their transposes by far less.
    if float(np.abs(matrix - matrix.T).max()) > 1e-9 * float(np.abs(matrix).max()):
        raise ValueError("covariance must be symmetric; use (covariance + covariance.T) / 2")
    return (matrix + matrix.T) / 2


def _whitened(sensitivity: SensitivitySet, axes: Matrix, scales: Vector) -> tuple[float, bool]:
    """Return the largest length of a member over the scales, and whether a member has it."""
    flattest = float(scales.min())
    stretch = _stretch(axes) * PURE_FACTOR
    if isinstance(sensitivity, L2Ball):
        return sensitivity.radius / flattest * stretch, True
    if isinstance(sensitivity, L1Ball):
        return sensitivity.radius * float(row_norms(axes / scales, 2.0).max()) * PURE_FACTOR, True
    outside = (sensitivity.rounding + _skew(sensitivity)) * stretch / flattest
    if isinstance(sensitivity, FiniteSet | Polytope):
        inside = fixed_point(sensitivity.vectors).times(in_chunks(axes)).doubles()
        return float(row_norms(inside / scales, 2.0).max()) * PURE_FACTOR + outside, True
    whitened, reach = axes / scales, sensitivity.reach()
    # Every product is rounded, and every sum of as many: what that adds to the square of a length.
    rounding = 4 * len(axes) * _UNIT_ROUNDOFF * float(np.square(np.abs(whitened).T @ reach).sum())
    corner = math.sqrt(float(reach @ np.abs(whitened @ whitened.T) @ reach) + rounding)
    return min(corner, sensitivity.max_l2 / flattest) * stretch + outside, False


def _skew(sensitivity: SensitivitySet) -> float:
    """Return how far a vector can be from what its coefficients in the basis of the set make.

    A basis that counts as orthonormal has a defect of 1e-14 in every entry, or less.
    """
    if getattr(sensitivity, "basis", None) is None:
        return 0.0
    # Twice that defect, for every axis.
    return 2e-14 * sensitivity.dimension * sensitivity.max_l2


def _stretch(axes: Matrix) -> float:
    """Return a bound on how much longer coefficients along axes are than a vector.

    The square is the largest eigenvalue of BᵀB, within the Frobenius norm of BᵀB - I from one; a
    product of unit vectors is rounded by at most their size times 2^-53.
    """
    size = len(axes)
    defect = float(np.linalg.norm(axes.T @ axes - np.eye(size)))
    return math.sqrt(1 + defect + 2 * size * size * _UNIT_ROUNDOFF)
