"""Gaussian noise with a covariance that is given: what it hides of a set."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from taut.errors import UnsoundConfiguration
from taut.noise._balls import L1Ball, L2Ball
from taut.noise._clipping import Matrix, Vector
from taut.noise._finite_sets import FiniteSet, Polytope
from taut.noise._gaussian_noise import GaussianNoise
from taut.noise._levelling import ROOM
from taut.noise._magnitudes import within_floats
from taut.noise._mechanism import Certificate
from taut.noise._sets import SensitivitySet

__all__ = ["gaussian_with_covariance"]

_ROUNDING = 1e-14  # of a length: how far a product with an axis can be off


@within_floats
def gaussian_with_covariance(sensitivity: SensitivitySet, covariance: ArrayLike) -> GaussianNoise:
    """Return the mechanism with the given covariance, a dense matrix.

    Args:
        sensitivity: what one record can change.
        covariance: symmetric and positive definite, one row per coordinate.

    **Guarantee**: the multiplier is 1 / sup √(sᵀ C⁻¹ s) over the set, for the axes and scales that
    noise is drawn with: exact for finite sets, polytopes, l1 and l2 balls; for other sets the
    smaller of two upper bounds, from the l2 norm and from what coordinates reach. Noise along axes
    is added in floating point, as with any basis.

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
    if not float(variances[0]) > matrix.shape[0] * 1e-15 * float(variances[-1]):
        raise UnsoundConfiguration(
            "covariance must be positive definite, got eigenvalues from "
            f"{float(variances[0])!r} to {float(variances[-1])!r}; add noise in the flat directions"
        )
    scales = np.sqrt(variances)
    radius, exact = _whitened(sensitivity, axes, scales)
    how = "exact" if exact else "an upper bound"
    proof = Certificate(
        radius,
        float(variances.sum()),
        0.0,
        f"covariance as given, its whitened length is {how}; nothing is claimed about less noise",
    )
    scales.setflags(write=False)
    axes.setflags(write=False)
    return GaussianNoise(sensitivity, "given", proof, 1 / (radius * ROOM), scales, axes)


def _symmetric(covariance: ArrayLike, dimension: int) -> Matrix:
    matrix = np.asarray(covariance, dtype=np.float64)
    if matrix.shape != (dimension, dimension):
        raise ValueError(
            f"covariance must be a matrix of {dimension} rows and columns, got shape {matrix.shape}"
        )
    if not np.isfinite(matrix).all():
        raise ValueError("covariance must be finite, got NaN or infinity in it")
    if float(np.abs(matrix - matrix.T).max()) > 1e-9 * float(np.abs(matrix).max()):
        raise ValueError("covariance must be symmetric; use (covariance + covariance.T) / 2")
    return (matrix + matrix.T) / 2


def _whitened(sensitivity: SensitivitySet, axes: Matrix, scales: Vector) -> tuple[float, bool]:
    """Return the largest length of a member over the scales, and whether a member has it."""
    flattest = float(scales.min())
    if isinstance(sensitivity, L2Ball):
        return sensitivity.radius / flattest * ROOM, True
    if isinstance(sensitivity, FiniteSet | Polytope | L1Ball):
        corners = (
            sensitivity.radius * np.eye(sensitivity.dimension)
            if isinstance(sensitivity, L1Ball)
            else sensitivity.vectors
        )
        lengths = np.sqrt(np.square((corners @ axes) / scales).sum(axis=1))
        return float(lengths.max()) + _ROUNDING * sensitivity.max_l2 / flattest, True
    reach = sensitivity.reach()
    precision = np.abs((axes / scales**2) @ axes.T)
    rounding = (_ROUNDING * float(np.linalg.norm(reach)) / flattest) * (
        float(np.linalg.norm(reach)) / flattest
    )
    corner = math.sqrt(float(reach @ precision @ reach) + rounding)
    return min(corner, sensitivity.max_l2 / flattest) * ROOM, False
