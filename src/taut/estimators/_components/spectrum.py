"""Directions and their variances, from a symmetric matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Matrix, Vector

__all__ = ["Spectrum", "leading", "with_signs"]


@dataclass(frozen=True)
class Spectrum:
    """The first principal components.

    Attributes:
        components: unit vectors, one per row, the one of largest variance first.
        variances: variance along each, at least zero.
        total: sum of all variances, at least that of the components; None if it is not known.
        mean: centre of the data.
    """

    components: Matrix
    variances: Vector
    total: float | None
    mean: Vector


def leading(covariance: Matrix, mean: Vector, kept: int) -> Spectrum:
    """Return the leading eigenvectors of a covariance, of which noise may have any eigenvalues."""
    values, vectors = np.linalg.eigh(covariance)
    components = with_signs(vectors[:, ::-1][:, :kept].T)
    variances = np.maximum(values[::-1][:kept], 0.0)
    total = max(float(np.trace(covariance)), float(variances.sum()))
    return Spectrum(components, variances, total, mean)


def with_signs(components: Matrix) -> Matrix:
    """Return rows whose entry of largest magnitude is positive: eigenvectors have no sign."""
    largest = np.abs(components).argmax(axis=1)[:, None]
    result: Matrix = components * np.where(np.take_along_axis(components, largest, 1) < 0, -1, 1)
    return result
