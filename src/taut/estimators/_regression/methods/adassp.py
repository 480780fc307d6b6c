"""Perturbed sufficient statistics with a ridge penalty that adapts to the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Matrix
from taut.accounting import PrivacyLoss
from taut.estimators._regression.method import Fit
from taut.estimators._regression.methods.ssp import penalty_of, solution
from taut.estimators._regression.moments import MomentRelease, NoisyMoments, moment_release
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import RandomSource

__all__ = ["AdaptiveStatistics", "adassp", "noise_penalty"]

_FAILURE = 0.05  # probability that the norm of the noise is above its bound; utility alone


@dataclass(frozen=True, eq=False)
class AdaptiveStatistics:
    """Ridge regression of released moments, with just the penalty that their noise asks for.

    Args:
        setting: what is public about the regression.
        moments: how moments are released.

    Wang (2018), recalibrated: X'X, X'y and the smallest eigenvalue were three releases with the
    noise of three budgets. Here they are one Gaussian release, and the smallest eigenvalue is that
    of the released matrix, which costs nothing more.

    **Guarantee**: `loss`; what follows the release is a function of it.
    """

    setting: Setting
    moments: MomentRelease

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one fit."""
        return self.moments.loss

    def fit(self, problem: Problem, generator: RandomSource | None = None) -> Fit:
        """Return coefficients; see `Method.fit`."""
        released = self.moments.release(problem, generator)
        features = self.setting.features
        penalty = noise_penalty(
            released.design[:features, :features], released.design_variances[0, 0]
        )
        asked = penalty_of(self.setting)
        coefficients = solution(released, np.maximum(asked, penalty))
        return Fit(coefficients, _words(released, penalty), released, (released.measurement,))


def adassp(setting: Setting, epsilon: float, delta: float) -> AdaptiveStatistics:
    """Return the method for a budget."""
    return AdaptiveStatistics(setting, moment_release(setting, epsilon, delta))


def noise_penalty(matrix: Matrix, variance: float) -> float:
    """Return what must be added to the smallest eigenvalue to be above the noise.

    Args:
        matrix: released X'X.
        variance: variance of the noise on its diagonal.
    """
    size = len(matrix)
    noise = math.sqrt(variance * size * math.log(2 * size**2 / _FAILURE))
    certain = max(float(np.linalg.eigvalsh(matrix)[0]) - noise, 0.0)
    return max(noise - certain, 0.0)


def _words(released: NoisyMoments, penalty: float) -> str:
    if penalty == 0:
        return "the smallest eigenvalue of noisy moments is above the noise: no penalty"
    size = math.sqrt(released.design_variances[0, 0])
    return f"a ridge penalty of {penalty / size:.3g} standard deviations of the noise in X'X"
