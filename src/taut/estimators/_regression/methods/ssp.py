"""Perturbed sufficient statistics: the normal equations of noisy moments, solved as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.accounting import PrivacyLoss
from taut.estimators._regression.method import Fit
from taut.estimators._regression.moments import MomentRelease, NoisyMoments, moment_release
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import RandomSource

__all__ = ["SufficientStatistics", "penalty_of", "solution", "ssp"]


@dataclass(frozen=True, eq=False)
class SufficientStatistics:
    """Least squares, or ridge with a penalty that was asked for, of released moments.

    Args:
        setting: what is public about the regression.
        moments: how moments are released.

    Sufficient statistics perturbation, whose history Wang (2018) tells. Nothing keeps the noisy
    matrix from being nearly singular, so that coefficients can be far out where noise is as large
    as the smallest eigenvalue.

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
        coefficients = solution(released, penalty_of(self.setting))
        return Fit(
            coefficients,
            "the normal equations of noisy moments, as they are",
            released,
            (released.measurement,),
        )


def ssp(setting: Setting, epsilon: float, delta: float) -> SufficientStatistics:
    """Return the method for a budget."""
    return SufficientStatistics(setting, moment_release(setting, epsilon, delta))


def penalty_of(setting: Setting) -> Vector:
    """Return the ridge penalty that was asked for, one weight per coefficient."""
    penalties = np.zeros(setting.columns)
    if setting.penalties:
        penalties[: setting.features] = setting.penalties
    return penalties


def solution(released: NoisyMoments, penalties: Vector) -> Vector:
    """Return what solves penalised normal equations, the shortest if there are several."""
    matrix: Matrix = released.design + np.diag(penalties)
    return np.asarray(np.linalg.lstsq(matrix, released.cross, rcond=None)[0], dtype=np.float64)
