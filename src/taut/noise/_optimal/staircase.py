"""Staircase noise for one or two coordinates: a density of steps in the l1 norm."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import PrivacyLoss, pure
from taut.errors import UnsoundConfiguration
from taut.noise._exact.release import GridRelease
from taut.noise._exact.staircase import RoundedStaircase, draw_ball
from taut.noise._fitting.l1_radius import l1_radius
from taut.noise._fitting.objectives import checked_power, coordinate_weights
from taut.noise._fitting.water_filling import PURE_FACTOR
from taut.noise._mechanisms.float_range import within_floats
from taut.noise._mechanisms.mechanism import Certificate, NoiseMechanism
from taut.noise._optimal.laplace import laplace_shape
from taut.noise._random.sources import RandomSource, default_generator
from taut.noise._sets.sets import SensitivitySet

__all__ = ["StaircaseNoise", "radial_moment", "staircase"]

_LEAST_EPSILON = 1e-3  # below, steps are so many that the density is that of Laplace noise
_DENSITY_FALL = 60.0  # nats: sums for moments end where the density has fallen by exp(-60) = 9e-27
_LEAST_NOISE = 2.0**-16  # of a unit: the grid is made for noise of at least this size
_GOLDEN = (math.sqrt(5) - 1) / 2  # of a search by golden sections: shares that can be used again


@dataclass(frozen=True, eq=False)
class StaircaseNoise(NoiseMechanism):
    """Noise whose density is a staircase in the sum of |x_i| / scale_i.

    Attributes:
        sensitivity: the set that it hides.
        objective: the quantity that was minimised.
        certificate: what is proven about it; its radius is the largest log-ratio of densities.
        epsilon: factor, as a logarithm, by which the density falls over a length of one.
        gamma: the part of a unit over which the density stays, before it falls.
        scales: the unit of length along every coordinate.
        power: exponent of the error.

    **Guarantee**: epsilon-DP for the adjacency of the set: the density falls with the norm, and
    over a length of one by exp(epsilon) exactly, without end. `release` rounds to a public grid,
    exactly, so that no low bits tell more. The grid is as fine as the noise, up to 2^-27 units
    (above an epsilon of about 22 the noise is smaller), so that values of 2^25 units are not cut.
    `sample` draws in floating point: what it is added to is for experiments.
    """

    epsilon: float
    gamma: float
    scales: Vector = field(repr=False)
    power: float

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release: it is pure."""
        return pure(self.epsilon, adjacency=self.sensitivity.adjacency)

    @property
    def total_variance(self) -> float:
        """The expected squared length of the noise."""
        n = self.scales.size
        return _entry_moment(self.epsilon, self.gamma, n, 2.0) * float(self.scales @ self.scales)

    def coordinate_errors(self, power: float = 2.0) -> Vector:
        """Return E|noise_i|^power for every coordinate."""
        moment = _entry_moment(self.epsilon, self.gamma, self.scales.size, power)
        errors: Vector = moment * self.scales**power
        return errors

    def sample(self, generator: RandomSource | None = None) -> Vector:
        """Draw the noise of one release, from the secure generator unless another is given."""
        generator = default_generator() if generator is None else generator
        n = self.scales.size
        radius = draw_ball(self.epsilon, self.gamma, n, generator) + self.gamma
        sides = 2 * generator.uniform(n) - 1
        # In two dimensions the l1 ball is a turned square.
        point = sides if n == 1 else np.array([sides[0] + sides[1], sides[0] - sides[1]]) / 2
        noise: Vector = self.scales * (radius * point)
        return noise

    def density(self, points: Vector) -> Vector:
        """Return the density at every row of a table of points."""
        n = self.scales.size
        lengths = np.abs(np.atleast_2d(points) / self.scales).sum(axis=1)
        falls = np.floor(lengths - self.gamma) + 1
        _, weights = _balls(self.epsilon, self.gamma, n)
        ball = (2.0**n / math.factorial(n)) * float(np.prod(self.scales))
        heights: Vector = np.exp(-falls * self.epsilon)
        return heights / (ball * -math.expm1(-self.epsilon) * float(weights.sum()))

    @cached_property
    def _rounded(self) -> GridRelease:
        sizes = np.maximum(self.coordinate_errors(1.0), _LEAST_NOISE * self.scales)
        return RoundedStaircase(sizes, self.scales, self.epsilon, self.gamma)

    def _hidden(self, vector: Vector) -> Vector:
        return np.where(self.scales > 0, vector, 0.0)


@within_floats
def staircase(
    sensitivity: SensitivitySet,
    *,
    epsilon: float,
    power: float = 1.0,
    weights: ArrayLike | None = None,
) -> StaircaseNoise:
    """Return staircase noise for a set in one or two dimensions.

    Args:
        sensitivity: a set without a basis, of dimension 1 or 2.
        epsilon: the promise to keep, from 0.001 to 100.
        power: the error is the sum of E|noise_i|^power.
        weights: positive importance of every coordinate in it.

    **Guarantee**: epsilon-DP. In one dimension it is of least error among all noise with a pure
    promise, for powers of 1 and 2 (Geng and Viswanath 2016). In two
    dimensions the width of the steps is the best one, and so are the scales of the coordinates,
    which are those of `optimal_laplace`; nothing is claimed about other noise.

    Raises:
        ValueError: for other dimensions, and parameters out of range.

    Example:
        >>> from taut.noise import Box, L1Ball, staircase
        >>> round(staircase(L1Ball(2, 1.0), epsilon=0.5).error, 4)
        3.9962
        >>> round(staircase(Box([0.85, 0.15]), epsilon=0.5).error, 4)
        3.4251
    """
    target, p = validate.positive(epsilon=epsilon), checked_power("total", power)
    if not _LEAST_EPSILON <= target <= 100:
        raise ValueError(
            f"epsilon must lie between {_LEAST_EPSILON} and 100, got epsilon={epsilon!r}; "
            "use optimal_laplace"
        )
    if sensitivity.dimension > 2:
        raise ValueError(
            f"sensitivity must have one or two dimensions, got {sensitivity.dimension}; "
            "use grouped_linf or optimal_laplace"
        )
    scales = laplace_shape(sensitivity, "total", weights, p).pure * PURE_FACTOR
    if not (scales > 0).all():
        raise ValueError("sensitivity must not have widths of zero; leave those coordinates out")
    radius = l1_radius(sensitivity, scales)
    if not radius <= 1:
        raise UnsoundConfiguration(f"the scales leave a length of {radius!r} where 1 is allowed")
    scales.setflags(write=False)
    n = sensitivity.dimension
    gamma = _best_gamma(target, n, p)
    loads = coordinate_weights(weights, n)
    error = _entry_moment(target, gamma, n, p) * float(loads @ scales**p)
    optimal = n == 1 and p in (1.0, 2.0)
    proof = Certificate(
        radius * target,
        error,
        error / PURE_FACTOR**p if optimal else 0.0,
        "least among all noise with a pure promise" if optimal else "the best width of steps",
    )
    return StaircaseNoise(sensitivity, "total", proof, target, gamma, scales, p)


def radial_moment(epsilon: float, gamma: float, dimension: int, power: float) -> float:
    """Return the expected power of the l1 norm of staircase noise with scales of one.

    The noise is uniform in a random ball, and in one of radius r the moment is n / (n + p) r^p.
    """
    radii, weights = _balls(epsilon, gamma, dimension)
    moment = float((weights * radii**power).sum() / weights.sum())
    return dimension / (dimension + power) * moment


def _entry_moment(epsilon: float, gamma: float, n: int, p: float) -> float:
    """Return E|x_i|^p: on the l1 sphere of radius r in the plane, |x_i| is uniform on [0, r]."""
    return radial_moment(epsilon, gamma, n, p) / (1.0 if n == 1 else p + 1)


def _balls(epsilon: float, gamma: float, n: int) -> tuple[Vector, Vector]:
    """Return the radii of the balls of which the noise is a mixture, and their relative weights."""
    falls = np.arange(math.ceil(_DENSITY_FALL / epsilon) + 2.0)
    radii: Vector = falls + gamma
    return radii, radii**n * np.exp(-epsilon * falls)


def _best_gamma(epsilon: float, n: int, p: float) -> float:
    """Return the part of a step with the least error: a grid, then the golden section of its log.

    It falls like exp(-epsilon / 2) and faster for high powers, never below exp(-epsilon).
    """
    grid = np.linspace(0.0, 1.0, 65)[1:-1]
    if epsilon > 4:
        grid = np.concatenate([np.geomspace(math.exp(-epsilon), grid[0], 192)[:-1], grid])
    best = int(np.argmin([radial_moment(epsilon, float(g), n, p) for g in grid]))
    low = math.log(grid[best - 1] if best else grid[0] / 2)
    high = math.log(grid[best + 1] if best + 1 < grid.size else 1.0)
    for _ in range(40):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        one, two = (radial_moment(epsilon, math.exp(g), n, p) for g in (left, right))
        low, high = (low, right) if one < two else (left, high)
    return math.exp((low + high) / 2)
