"""Confidence intervals of coefficients: from released numbers and public scales of noise alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from taut._base.arrays import Matrix, Vector
from taut.estimators._regression.moments import Measurement, NoisyMoments

__all__ = ["Estimate", "unpenalised"]

_CLEAR = 2.0  # how far eigenvalues must be above the edge of noise, for errors to be small ones


@dataclass(frozen=True, eq=False)
class Estimate:
    """Coefficients of least squares with their covariance, in units of a problem.

    Args:
        coefficients: nearly unbiased estimates, without any penalty.
        covariance: their covariance, of sampling and of all noise; infinite where X'X is not
            clearly above its noise.
    """

    coefficients: Vector
    covariance: Matrix

    def intervals(self, slopes: Matrix, level: float) -> Matrix:
        """Return lower and upper ends for linear functions of coefficients.

        Args:
            slopes: one row per function.
            level: probability with which each of the intervals covers, nearly.
        """
        centres = slopes @ self.coefficients
        if not np.isfinite(self.covariance).all():
            return np.tile([-math.inf, math.inf], (len(slopes), 1))
        variances = np.einsum("ij,jk,ik->i", slopes, self.covariance, slopes)
        reach = float(ndtri((1 + level) / 2)) * np.sqrt(np.maximum(variances, 0.0))
        return np.column_stack([centres - reach, centres + reach])


def unpenalised(moments: NoisyMoments, seen: tuple[Measurement, ...], records: float) -> Estimate:
    """Return the estimate that follows from all that was released.

    Args:
        moments: released moments.
        seen: released targets and residuals; the more precise count more.
        records: number of records, public or released.

    A step of Newton's method from the mean of all points at which residuals were released; see
    docs/theory/regression.md for the covariance.
    """
    matrix, size = moments.design, moments.cross.size
    weights = _weights(seen)
    start = sum((w * one.at for w, one in zip(weights, seen, strict=True)), np.zeros(size))
    cross = sum((w * one.cross for w, one in zip(weights, seen, strict=True)), np.zeros(size))
    if not _is_clear(moments):
        return Estimate(start, np.full((size, size), math.inf))
    inverse: Matrix = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    found = start + inverse @ cross
    noise = _of_matrix(moments.design_variances, found - start)
    for weight, one in zip(weights, seen, strict=True):
        noise += weight**2 * np.diag(one.variances)
    noise += _square(inverse, seen[-1]) / max(records - size, 1.0) * matrix
    covariance: Matrix = inverse @ noise @ inverse
    return Estimate(found, covariance)


def _weights(seen: tuple[Measurement, ...]) -> Vector:
    """Return how much measurements count: as the inverse of their variances."""
    precision = np.array([1 / float(np.mean(one.variances)) for one in seen])
    whole: Vector = precision / precision.sum()
    return whole


def _is_clear(moments: NoisyMoments) -> bool:
    """Return whether the smallest eigenvalue is far above where noise alone has them.

    Rows and columns are brought to the same size of noise first; symmetric noise with standard
    deviation s beside the diagonal has eigenvalues up to 2 s √d.
    """
    variances = moments.design_variances
    scales = np.diag(variances) ** -0.25
    even = moments.design * np.outer(scales, scales)
    left = float((variances * np.outer(scales, scales) ** 2).sum(axis=1).max())
    return bool(np.linalg.eigvalsh(even)[0] > _CLEAR * 2 * math.sqrt(left))


def _of_matrix(variances: Matrix, step: Vector) -> Matrix:
    """Return the covariance of E step, for symmetric noise E with these variances."""
    whole = variances * np.outer(step, step)
    np.fill_diagonal(whole, variances @ step**2)
    return whole


def _square(inverse: Matrix, last: Measurement) -> float:
    """Return the sum of squared residuals of least squares, by what was released last.

    The square at the minimum is lower by b'(X'X)⁻¹b; that of the noise in b is added again.
    """
    lower = last.cross @ inverse @ last.cross
    noise = np.diag(inverse) @ last.variances
    return max(float(last.square - lower + noise), 0.0)
