"""Gaussian noise as a mechanism: what it releases, what it costs, why it is enough."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from taut.accounting import PrivacyLoss, gaussian
from taut.noise._clipping import Matrix, Vector
from taut.noise._secure import default_generator
from taut.noise._sets import SensitivitySet

__all__ = ["Certificate", "GaussianNoise", "NormalSource"]


class NormalSource(Protocol):
    """Where noise comes from: anything that draws independent standard normal numbers."""

    def standard_normal(self, size: int) -> Vector:
        """Return that many draws."""


@dataclass(frozen=True)
class Certificate:
    """What is proven about the noise of a mechanism.

    Attributes:
        radius: the largest length of a member of the set after whitening, recomputed from the
            scales that are returned; privacy needs at most 1 / multiplier.
        error: the objective that the noise reaches.
        lower_bound: what no Gaussian noise can go below at the same loss; 0 if nothing is known.
        statement: the argument in words.
    """

    radius: float
    error: float
    lower_bound: float
    statement: str

    @property
    def gap(self) -> float:
        """By how much the error can be above the least, relative to it."""
        return self.error / self.lower_bound - 1 if self.lower_bound > 0 else math.inf


@dataclass(frozen=True, eq=False)
class GaussianNoise:
    """Gaussian noise fitted to a sensitivity set: what it costs, what it does, why it is enough.

    Attributes:
        sensitivity: the set that it hides.
        multiplier: 1 / mu; every member of the set has length at most mu after whitening, so that
            all accountants see scalar noise of this size for sensitivity one.
        scales: standard deviations along the axes: coordinates, or columns of `basis`.
        basis: orthonormal axes, or None for coordinates.
        complement_scale: the standard deviation in every direction outside of the basis.
        objective: what was made small.
        certificate: what is proven about it.

    **Guarantee**: `loss` is exact if the set is (Balle and Wang 2018, Theorem 8, after whitening),
    for the adjacency of the set, for values whose neighbours differ by a member of it. Noise is
    added in floating point: whoever must fear that digits are read uses a rounded release.
    """

    sensitivity: SensitivitySet
    multiplier: float
    scales: Vector = field(repr=False)
    basis: Matrix | None = field(repr=False)
    complement_scale: float
    objective: str
    certificate: Certificate

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        return gaussian(self.multiplier, adjacency=self.sensitivity.adjacency)

    @property
    def error(self) -> float:
        """The predicted value of the objective."""
        return self.certificate.error

    @property
    def total_variance(self) -> float:
        """The expected squared length of the noise."""
        outside = self.sensitivity.dimension - self.scales.size
        return float(np.dot(self.scales, self.scales)) + outside * self.complement_scale**2

    def covariance(self) -> Matrix:
        """Return the covariance as a dense matrix."""
        if self.basis is None:
            return np.diag(self.scales**2)
        inside = (self.basis * (self.scales**2 - self.complement_scale**2)) @ self.basis.T
        return inside + self.complement_scale**2 * np.eye(len(self.basis))

    def sample(self, generator: NormalSource | None = None) -> Vector:
        """Draw the noise of one release, from the secure generator unless another is given."""
        generator = default_generator() if generator is None else generator
        if self.basis is None:
            return self.scales * generator.standard_normal(self.scales.size)
        noise: Vector = self.basis @ (self.scales * generator.standard_normal(self.scales.size))
        if self.complement_scale > 0:
            free = generator.standard_normal(len(self.basis))
            noise = noise + self.complement_scale * (free - self.basis @ (self.basis.T @ free))
        return noise

    def release(
        self,
        value: ArrayLike,
        generator: NormalSource | None = None,
        *,
        public: ArrayLike | None = None,
    ) -> Vector:
        """Return the value with noise in floating point; its low bits are not protected.

        Args:
            value: the vector to release.
            generator: where the noise comes from, by default the secure generator. Anything else,
                such as ``SeededForExperiments``, is for experiments that release nothing.
            public: what is released, instead of the value, in directions that no record can change
                and that get no noise; zero if left out.

        Raises:
            ValueError: if the shape is wrong or an entry is not finite. Sums of clipped rows are
                always finite, see `release_sum`.
        """
        vector = self._checked(value, "value")
        constant = np.zeros_like(vector) if public is None else self._checked(public, "public")
        return self._hidden(vector) + (constant - self._hidden(constant)) + self.sample(generator)

    def release_sum(
        self,
        rows: ArrayLike,
        generator: NormalSource | None = None,
        *,
        non_finite: str = "zero",
    ) -> Vector:
        """Clip one row per record to the set, and release their sum: nothing is left to trust."""
        clipped = np.atleast_2d(self.sensitivity.clip(rows, non_finite))
        return self.release(clipped.astype(np.float64).sum(axis=0), generator)

    def _hidden(self, vector: Vector) -> Vector:
        """Return the part of a vector in the directions that have noise."""
        noisy = self.scales > 0
        if self.basis is None:
            return np.where(noisy, vector, 0.0)
        if self.complement_scale > 0:
            return vector - self.basis @ np.where(noisy, 0.0, self.basis.T @ vector)
        part: Vector = self.basis @ np.where(noisy, self.basis.T @ vector, 0.0)
        return part

    def _checked(self, value: ArrayLike, name: str) -> Vector:
        vector = np.asarray(value, dtype=np.float64)
        if vector.shape != (self.sensitivity.dimension,):
            raise ValueError(
                f"{name} must be a vector of {self.sensitivity.dimension} numbers, "
                f"got shape {vector.shape}"
            )
        if not np.isfinite(vector).all():
            raise ValueError(
                f"{name} must be finite, got NaN or infinity; clip every record first, as "
                "release_sum does"
            )
        return vector
