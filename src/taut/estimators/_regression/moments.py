"""Second moments of a regression with noise: one Gaussian release, of which all else is made."""

from __future__ import annotations

from dataclasses import dataclass

from taut._base.arrays import Matrix, Vector
from taut.accounting import PrivacyLoss
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import GaussianMoments, RandomSource, gaussian_moments

__all__ = ["MomentRelease", "NoisyMoments", "moment_release"]

# Shares of the budget, in the order of groups: features, the ones, the target. The error of
# coefficients comes from the first row above all; how many records there are, and the sum of
# squared targets, are large numbers that need little. Any shares are sound.
_WITH_ONES = ((0.35, 0.10, 0.35), (0.10, 0.04, 0.10), (0.35, 0.10, 0.06))
_WITHOUT = ((0.47, 0.47), (0.47, 0.06))


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """Released moments of the design (features and ones) and the target, with public variances.

    Args:
        matrix: sums of products of columns with noise, symmetric; the target is the last column.
        variances: variances of the noise, entry by entry.
    """

    matrix: Matrix
    variances: Matrix

    @property
    def design(self) -> Matrix:
        """X'X with noise."""
        return self.matrix[:-1, :-1]

    @property
    def cross(self) -> Vector:
        """X'y with noise."""
        return self.matrix[:-1, -1]

    @property
    def square(self) -> float:
        """The sum of squared targets, with noise."""
        return float(self.matrix[-1, -1])

    @property
    def design_variances(self) -> Matrix:
        """Variances of the noise in `design`."""
        return self.variances[:-1, :-1]

    @property
    def cross_variances(self) -> Vector:
        """Variances of the noise in `cross`."""
        return self.variances[:-1, -1]

    @property
    def square_variance(self) -> float:
        """Variance of the noise in `square`."""
        return float(self.variances[-1, -1])


@dataclass(frozen=True, eq=False)
class MomentRelease:
    """The release of moments: how it is made, and what it costs.

    Args:
        mechanism: second moments in groups of columns, in the order of `Problem.blocks`.
    """

    mechanism: GaussianMoments

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        return self.mechanism.loss

    def release(self, problem: Problem, generator: RandomSource | None) -> NoisyMoments:
        """Return moments of a problem with noise.

        Args:
            problem: private rows.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: `loss`, whatever the rows are: they are clipped once more.
        """
        matrix = self.mechanism.release_blocks(problem.blocks(), generator)
        return NoisyMoments(matrix, self.mechanism.entry_scales**2)


def moment_release(setting: Setting, epsilon: float, delta: float) -> MomentRelease:
    """Return the release of moments that keeps a promise."""
    sizes = (setting.features, 1, 1) if setting.intercept else (setting.features, 1)
    mechanism = gaussian_moments(
        sizes,
        (1.0,) * len(sizes),
        epsilon=epsilon,
        delta=delta,
        shares=_WITH_ONES if setting.intercept else _WITHOUT,
        adjacency=setting.adjacency,
    )
    return MomentRelease(mechanism)
