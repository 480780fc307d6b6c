"""Laplace noise as a mechanism: what it releases, what it costs, why it is enough."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from taut._base.arrays import Vector
from taut.accounting import PrivacyLoss
from taut.errors import UnsoundConfiguration
from taut.noise._exact.release import STANDARD_LAPLACE, GridRelease, RoundedNoise
from taut.noise._fitting.l1_radius import l1_radius
from taut.noise._mechanisms.float_range import within_floats
from taut.noise._mechanisms.laplace_loss import loss_of_ratios, worst_ratios
from taut.noise._mechanisms.mechanism import Certificate, NoiseMechanism
from taut.noise._random.sources import RandomSource, default_generator
from taut.noise._sets.sets import SensitivitySet, frozen_vector, refuse_basis

__all__ = ["LaplaceNoise", "laplace_with_scales"]


@dataclass(frozen=True, eq=False)
class LaplaceNoise(NoiseMechanism):
    """Independent Laplace noise fitted to a sensitivity set.

    Beside what every `NoiseMechanism` has, with the largest sum of |s_i| / scale_i as the radius of
    its certificate:

    Attributes:
        scales: the b of the density exp(-|x| / b) / (2 b), for every coordinate.

    **Guarantee**: a release is epsilon-DP with the radius of the certificate as epsilon. `loss` is
    that of the worst member, exact for boxes without bounds on norms (and with at most 32
    different ratios of width and scale), l1 balls and l_inf balls, and an upper bound for others,
    for the adjacency of the set (docs/theory/laplace-noise.md).
    `release` rounds to a public grid, exactly, so that no low bits tell more.
    """

    scales: Vector = field(repr=False)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        ratios = worst_ratios(self.sensitivity, self.scales)
        return loss_of_ratios(ratios, self.sensitivity.adjacency)

    @property
    def total_variance(self) -> float:
        """The expected squared length of the noise."""
        return 2 * float(np.dot(self.scales, self.scales))

    def coordinate_errors(self, power: float = 2.0) -> Vector:
        """Return E|noise_i|^power for every coordinate."""
        errors: Vector = math.gamma(power + 1) * self.scales**power
        return errors

    def sample(self, generator: RandomSource | None = None) -> Vector:
        """Draw the noise of one release, from the secure generator unless another is given."""
        generator = default_generator() if generator is None else generator
        return self.scales * generator.standard_laplace(self.scales.size)

    @cached_property
    def _rounded(self) -> GridRelease:
        return RoundedNoise(self.scales, STANDARD_LAPLACE)

    def _hidden(self, vector: Vector) -> Vector:
        return np.where(self.scales > 0, vector, 0.0)


@within_floats
def laplace_with_scales(sensitivity: SensitivitySet, scales: ArrayLike) -> LaplaceNoise:
    """Return the mechanism with the given Laplace scale in every coordinate (or block).

    **Guarantee**: epsilon-DP for the largest sum of |s_i| / scale_i in the set, and its `loss` is
    that of the worst member, see `LaplaceNoise`.

    Raises:
        ValueError: if there are neither as many scales as coordinates nor as blocks.
        UnsoundConfiguration: if a coordinate that a record can change has no noise.

    Example:
        >>> from taut.noise import Box, laplace_with_scales
        >>> noise = laplace_with_scales(Box([0.3, 0.9]), [1, 1])
        >>> round(noise.certificate.radius, 9), round(noise.loss.delta(0.8, 1e-6), 6)
        (1.2, 0.099396)
    """
    refuse_basis(sensitivity)
    vector = frozen_vector(scales, "scales", allow_zero=True)
    if vector.size != sensitivity.dimension:
        outline = sensitivity.l1_outline()
        if vector.size != outline.radii.size:
            raise ValueError(f"scales must hold {sensitivity.dimension} numbers, got {vector.size}")
        vector = np.repeat(vector, outline.ranks.astype(np.int64))
        vector.setflags(write=False)
    radius = l1_radius(sensitivity, vector)
    if not np.isfinite(radius):
        raise UnsoundConfiguration(
            "scales must be greater than 0 wherever the set is not zero: a coordinate without "
            "noise hides nothing"
        )
    error = 2 * float(np.dot(vector, vector))
    statement = "scales as given; nothing is claimed about how small they could be"
    return LaplaceNoise(
        sensitivity, "given", Certificate(radius, error, 0.0, statement), scales=vector
    )
