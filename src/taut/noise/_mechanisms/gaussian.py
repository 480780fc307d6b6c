"""Gaussian noise as a mechanism: what it releases, what it costs, why it is enough."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.accounting import PrivacyLoss, gaussian
from taut.noise._exact.axes import AxesRelease
from taut.noise._exact.release import STANDARD_NORMAL, GridRelease, RoundedNoise
from taut.noise._mechanisms.mechanism import NoiseMechanism
from taut.noise._random.sources import RandomSource, default_generator

__all__ = ["GaussianNoise", "normal_moment"]


@dataclass(frozen=True, eq=False)
class GaussianNoise(NoiseMechanism):
    """Gaussian noise fitted to a sensitivity set: what it costs, what it does, why it is enough.

    Beside what every `NoiseMechanism` has:

    Attributes:
        multiplier: 1 / mu; every member of the set has length at most mu after whitening, so that
            all accountants see scalar noise of this size for sensitivity one.
        scales: standard deviations along the axes: coordinates, or columns of `basis`.
        basis: orthonormal axes, or None for coordinates.
        complement_scale: the standard deviation in every direction outside of the basis.

    **Guarantee**: `loss` is exact if the set is (Balle and Wang 2018, Theorem 8, after whitening),
    for the adjacency of the set, for values whose neighbours differ by a member of it. That
    includes every digit: `release` rounds the ideal release to a public `grid`, along the axes of
    the basis if there is one.

    `sample` draws in floating point: what it is added to is for experiments.
    """

    multiplier: float
    scales: Vector = field(repr=False)
    basis: Matrix | None = field(default=None, repr=False)
    complement_scale: float = 0.0

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        return gaussian(self.multiplier, adjacency=self.sensitivity.adjacency)

    @property
    def total_variance(self) -> float:
        """The expected squared length of the noise."""
        outside = self.sensitivity.dimension - self.scales.size
        return float(np.dot(self.scales, self.scales)) + outside * self.complement_scale**2

    def coordinate_errors(self, power: float = 2.0) -> Vector:
        """Return E|noise_i|^power for every coordinate; each is normal, whatever the basis."""
        variances = self.scales**2
        if self.basis is not None:
            squares = self.basis**2
            outside = np.maximum(1.0 - squares.sum(axis=1), 0.0)
            variances = squares @ variances + outside * self.complement_scale**2
        if power == 2:
            return variances
        errors: Vector = normal_moment(power) * variances ** (power / 2)
        return errors

    def covariance(self) -> Matrix:
        """Return the covariance as a dense matrix."""
        if self.basis is None:
            return np.diag(self.scales**2)
        inside = (self.basis * (self.scales**2 - self.complement_scale**2)) @ self.basis.T
        return inside + self.complement_scale**2 * np.eye(len(self.basis))

    def sample(self, generator: RandomSource | None = None) -> Vector:
        """Draw the noise of one release, from the secure generator unless another is given."""
        generator = default_generator() if generator is None else generator
        if self.basis is None:
            return self.scales * generator.standard_normal(self.scales.size)
        noise: Vector = self.basis @ (self.scales * generator.standard_normal(self.scales.size))
        if self.complement_scale > 0:
            free = generator.standard_normal(len(self.basis))
            noise = noise + self.complement_scale * (free - self.basis @ (self.basis.T @ free))
        return noise

    @cached_property
    def _rounded(self) -> GridRelease:
        if self.basis is None:
            return RoundedNoise(self.scales, STANDARD_NORMAL)
        return AxesRelease(self.basis, self.scales, self.complement_scale)

    def _hidden(self, vector: Vector) -> Vector:
        noisy = self.scales > 0
        if self.basis is None:
            return np.where(noisy, vector, 0.0)
        if self.complement_scale > 0:
            return vector - self.basis @ np.where(noisy, 0.0, self.basis.T @ vector)
        part: Vector = self.basis @ np.where(noisy, self.basis.T @ vector, 0.0)
        return part


def normal_moment(power: float) -> float:
    """Return E|Z|^power of a standard normal number."""
    return math.sqrt(2**power / math.pi) * math.gamma((power + 1) / 2)
