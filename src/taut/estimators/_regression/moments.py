"""Second moments of a regression with noise: one Gaussian release, of which all else is made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.accounting import PrivacyLoss
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import GaussianMoments, RandomSource, gaussian_moments

__all__ = ["Measurement", "MomentRelease", "NoisyMoments", "ResidualRelease", "moment_release"]

# Shares of the budget, in the order of groups: features, the ones, the target. The error of
# coefficients comes from the first row above all; how many records there are, and the sum of
# squared targets, are large numbers that need little. Any shares are sound.
_WITH_ONES = ((0.35, 0.10, 0.35), (0.10, 0.04, 0.10), (0.35, 0.10, 0.06))
_WITHOUT = ((0.47, 0.47), (0.47, 0.06))
_RESIDUALS_WITH_ONES = ((0.0, 0.0, 0.85), (0.0, 0.0, 0.08), (0.85, 0.08, 0.07))
_RESIDUALS = ((0.0, 0.93), (0.93, 0.07))


@dataclass(frozen=True, eq=False)
class Measurement:
    """A released sum of rows times residuals, X'(y - X at), and its noise.

    Args:
        at: coefficients whose residuals these are.
        cross: the sum with noise.
        variances: variances of its noise, entry by entry.
        square: sum of squared residuals, with noise.
        square_variance: variance of that noise.
        bound: size at which residuals were cut.
    """

    at: Vector
    cross: Vector
    variances: Vector
    square: float
    square_variance: float
    bound: float = 1.0


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
    def measurement(self) -> Measurement:
        """What it says of targets, which are the residuals of coefficients of zero."""
        *variances, square_variance = self.variances[:, -1]
        zeros = np.zeros(self.cross.size)
        square = float(self.matrix[-1, -1])
        return Measurement(zeros, self.cross, np.array(variances), square, float(square_variance))

    @property
    def design_variances(self) -> Matrix:
        """Variances of the noise in `design`."""
        return self.variances[:-1, :-1]


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


@dataclass(frozen=True, eq=False)
class ResidualRelease:
    """Releases of rows times residuals: how they are made, and what one costs.

    Args:
        setting: what is public about the regression.
        epsilon: epsilon of the promise of which it is a part.
        delta: probability delta of that promise.
        portion: portion of the budget of one release.
    """

    setting: Setting
    epsilon: float
    delta: float
    portion: float

    @property
    def mu(self) -> float:
        """The mu of one release, the same for all bounds."""
        return self._mechanism(1.0).mu

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        return self._mechanism(1.0).loss

    def release(
        self, problem: Problem, at: Vector, bound: float, generator: RandomSource | None
    ) -> Measurement:
        """Return rows times residuals of coefficients, with noise.

        Args:
            problem: private rows.
            at: released coefficients.
            bound: size at which residuals are cut, chosen by what was released.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: `loss`, whatever the bound is, given all that was released before.
        """
        mechanism = self._mechanism(bound)
        residuals = (_with_residuals(block, at) for block in problem.blocks())
        matrix = mechanism.release_blocks(residuals, generator)
        *variances, square_variance = mechanism.entry_scales[:, -1] ** 2
        return Measurement(
            at,
            matrix[:-1, -1],
            np.array(variances),
            float(matrix[-1, -1]),
            float(square_variance),
            bound,
        )

    def _mechanism(self, bound: float) -> GaussianMoments:
        sizes = (
            (self.setting.features, 1, 1) if self.setting.intercept else (self.setting.features, 1)
        )
        return gaussian_moments(
            sizes,
            (*[1.0] * (len(sizes) - 1), bound),
            epsilon=self.epsilon,
            delta=self.delta,
            shares=_RESIDUALS_WITH_ONES if self.setting.intercept else _RESIDUALS,
            portion=self.portion,
            adjacency=self.setting.adjacency,
        )


def _with_residuals(block: Matrix, at: Vector) -> Matrix:
    """Put residuals into the place of the targets of a block; zero for rows of zeros.

    Column by column, since a matrix product may round a row by its place among the others, and then
    one record would change what others add.
    """
    with np.errstate(all="ignore"):
        for column, slope in enumerate(at.tolist()):
            block[:, -1] -= block[:, column] * slope
    return block


def moment_release(
    setting: Setting, epsilon: float, delta: float, *, portion: float = 1.0
) -> MomentRelease:
    """Return the release of moments that keeps a promise, or its portion of one."""
    sizes = (setting.features, 1, 1) if setting.intercept else (setting.features, 1)
    mechanism = gaussian_moments(
        sizes,
        (1.0,) * len(sizes),
        epsilon=epsilon,
        delta=delta,
        shares=_WITH_ONES if setting.intercept else _WITHOUT,
        portion=portion,
        adjacency=setting.adjacency,
    )
    return MomentRelease(mechanism)
