"""Whole noise for counts: discrete Laplace numbers, drawn and accounted for exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base.arrays import Vector
from taut.accounting import PrivacyLoss, discrete_laplace, pure
from taut.noise._exact.grid_values import GridValue
from taut.noise._exact.release import ExactRelease
from taut.noise._fitting.objectives import coordinate_weights
from taut.noise._mechanisms.float_range import within_floats
from taut.noise._mechanisms.mechanism import Certificate, NoiseMechanism
from taut.noise._optimal.laplace import optimal_laplace
from taut.noise._random.discrete import discrete_laplace_noise
from taut.noise._random.sources import RandomSource, default_generator
from taut.noise._sets.histogram import Histogram
from taut.noise._sets.sets import SensitivitySet

__all__ = ["IntegerLaplaceNoise", "integer_laplace"]

_MOST_SUMMED = 500.0  # scale above which sums are integrals, up to 1e-6 of them for usual powers
_TAIL = 745.0  # scales after which exp vanishes in doubles
_SUMMED = 1 + 1e-12  # covers the rounding of a sum of ratios; counts have none
_MOST_SCALE = 2.0**50  # what can be drawn within 64 bits


@dataclass(frozen=True, eq=False)
class IntegerLaplaceNoise(NoiseMechanism):
    """Independent integers with mass in proportion to exp(-|x| / scale), for counts.

    Attributes:
        sensitivity: the histogram that it hides.
        objective: the quantity that was minimised.
        certificate: what is proven about it; its radius is the largest sum of 1 / scale over the
            counts that one record moves.
        scales: the scale of every cell.

    **Guarantee**: epsilon-DP with the radius of the certificate, for the adjacency of the
    histogram. `loss` is exact if all scales are equal. Released counts are whole numbers, drawn
    without rounding error; a value that is not whole is rounded first, halves up, which moves
    neighbours by no more than a record does.
    """

    scales: Vector = field(repr=False)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        adjacency = self.sensitivity.adjacency
        scale = float(self.scales[0])
        if not (self.scales == scale).all():
            return pure(self.certificate.radius * _SUMMED, adjacency=adjacency)
        moved = _histogram(self.sensitivity).moved
        return moved * discrete_laplace(scale, 1, adjacency=adjacency)

    @property
    def total_variance(self) -> float:
        """The expected squared length of the noise."""
        return float(self.coordinate_errors().sum())

    def coordinate_errors(self, power: float = 2.0) -> Vector:
        """Return E|noise_i|^power for every cell."""
        sizes, places = np.unique(self.scales, return_inverse=True)
        return np.array([_moment(float(scale), power) for scale in sizes])[places]

    def sample(self, generator: RandomSource | None = None) -> Vector:
        """Draw the noise of one release, from the secure generator unless another is given."""
        source = default_generator() if generator is None else generator
        return _draw(self.scales, source).astype(np.float64)

    @cached_property
    def _rounded(self) -> ExactRelease:
        return _WholeRelease(self.scales)

    def _hidden(self, vector: Vector) -> Vector:
        return vector


class _WholeRelease(ExactRelease):
    """Whole values plus whole noise: the grid is 1."""

    @cached_property
    def exponents(self) -> NDArray[np.intc]:
        return np.zeros(self.scales.size, dtype=np.intc)

    def _steps(self, value: GridValue, source: RandomSource) -> Vector:
        # Compared, not added up: 0.5 plus the number below it rounds to one.
        up, down = value.rest >= 0.5, value.rest < -0.5
        steps = value.whole + up.astype(np.int64) - down.astype(np.int64)
        return (steps + _draw(self.scales, source)).astype(np.float64)


@within_floats
def integer_laplace(
    sensitivity: SensitivitySet,
    *,
    epsilon: float,
    objective: str = "total",
    weights: ArrayLike | None = None,
    power: float = 2.0,
) -> IntegerLaplaceNoise:
    """Return whole noise for a histogram with a pure promise.

    Args:
        sensitivity: a `Histogram`.
        epsilon: the promise to keep, above 0.
        objective: what is made small, as for `optimal_laplace`.
        weights: positive importance of every cell in it.
        power: exponent of the error, for ``"total"``.

    **Guarantee**: epsilon-DP for the adjacency of the histogram, with the scales of
    `optimal_laplace`. One count alone has less error than with any other pure noise, for most users
    and losses (Ghosh, Roughgarden and Sundararajan 2012); nothing is claimed about many together.

    Raises:
        ValueError: for other sets, whose values are not whole numbers, and parameters out of range.

    Example:
        >>> from taut.noise import Histogram, integer_laplace, optimal_laplace
        >>> ages = Histogram(50)
        >>> round(integer_laplace(ages, epsilon=1.0).error, 2)
        92.07
        >>> round(optimal_laplace(ages, epsilon=1.0).error, 2)
        100.0
    """
    histogram = _histogram(sensitivity)
    real = optimal_laplace(
        histogram, epsilon=epsilon, objective=objective, weights=weights, power=power
    )
    if float(real.scales.max()) > _MOST_SCALE:
        raise ValueError(
            f"epsilon must leave scales of at most 2^50, got {float(real.scales.max()):.3g}; "
            "use optimal_laplace"
        )
    noise = IntegerLaplaceNoise(histogram, objective, real.certificate, real.scales)
    errors = noise.coordinate_errors(power) * coordinate_weights(weights, histogram.cells)
    error = float(errors.max() if objective == "worst" else errors.sum())
    statement = "the scales of Laplace noise; nothing is claimed about how small they could be"
    proof = Certificate(real.certificate.radius, error, 0.0, statement)
    return IntegerLaplaceNoise(histogram, objective, proof, real.scales)


def _histogram(sensitivity: SensitivitySet) -> Histogram:
    if isinstance(sensitivity, Histogram):
        return sensitivity
    raise ValueError(
        f"sensitivity must be a Histogram, whose counts are whole numbers, got a set of the kind "
        f"{type(sensitivity).__name__}; use optimal_laplace"
    )


def _draw(scales: Vector, source: RandomSource) -> NDArray[np.int64]:
    noise = np.empty(scales.size, dtype=np.int64)
    for scale in np.unique(scales):
        here = scales == scale
        count = int(np.count_nonzero(here))
        noise[here] = discrete_laplace_noise(float(scale), size=count, generator=source)
    return noise


def _moment(scale: float, power: float) -> float:
    """Return E|x|^power: 2 (1 - q) / (1 + q) times the sum of x^power q^x, q = exp(-1 / scale)."""
    q, below = math.exp(-1 / scale), -math.expm1(-1 / scale)
    if power == 2:
        return 2 * q / (below * below)
    if scale > _MOST_SUMMED:
        return math.gamma(power + 1) * float(scale**power)
    x = np.arange(1.0, math.ceil(_TAIL * scale) + 2)
    return 2 * below / (1 + q) * float((x**power * np.exp(-x / scale)).sum())
