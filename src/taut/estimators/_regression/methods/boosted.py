"""Gradient boosting with ridge regression on noisy moments as the base learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.accounting import PrivacyLoss
from taut.estimators._regression.method import Fit
from taut.estimators._regression.methods.adassp import noise_penalty
from taut.estimators._regression.methods.ssp import penalty_of
from taut.estimators._regression.moments import MomentRelease, ResidualRelease, moment_release
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import RandomSource

__all__ = ["BoostedStatistics", "boosted_adassp"]

_ROUNDS = 10
_MOMENTS_PORTION = 0.5  # of the budget, for X'X
_CUT = 0.5  # of residuals, in ranges of targets; fixed without a look
_FARTHEST = 1e6  # coefficients are cut there: steps may diverge under much noise


@dataclass(frozen=True, eq=False)
class BoostedStatistics:
    """Steps from residual to residual, each one AdaSSP with the same noisy X'X.

    Args:
        setting: what is public about the regression.
        moments: how X'X is released, once.
        residuals: how X'r is released, in every round.
        rounds: number of rounds.
        cut: size at which residuals are cut.

    Tang et al. (2023), with moments and rounds in one Gaussian budget, and the smallest eigenvalue
    taken from the released matrix.

    **Guarantee**: `loss`, by composition.
    """

    setting: Setting
    moments: MomentRelease
    residuals: ResidualRelease
    rounds: int = _ROUNDS
    cut: float = _CUT

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one fit."""
        return self.moments.loss + self.rounds * self.residuals.loss

    def fit(self, problem: Problem, generator: RandomSource | None = None) -> Fit:
        """Return coefficients; see `Method.fit`."""
        released = self.moments.release(problem, generator)
        features = self.setting.features
        matrix, variance = released.design, released.design_variances[0, 0]
        penalty = noise_penalty(matrix[:features, :features], variance)
        penalties = np.maximum(penalty_of(self.setting), penalty)
        ridge = np.linalg.pinv(matrix + np.diag(penalties), hermitian=True)
        coefficients, seen = np.zeros(self.setting.columns), [released.measurement]
        for _ in range(self.rounds):
            seen.append(self.residuals.release(problem, coefficients, self.cut, generator))
            # Steps of ridge regression on residuals forget the penalty; what was asked for stays.
            pull = penalty_of(self.setting) * coefficients
            moved = coefficients + ridge @ (seen[-1].cross - pull)
            coefficients = np.clip(moved, -_FARTHEST, _FARTHEST)
        words = f"{self.rounds} rounds on residuals, cut at {self.cut:g} of the range of targets"
        return Fit(coefficients, words, released, tuple(seen))


def boosted_adassp(setting: Setting, epsilon: float, delta: float) -> BoostedStatistics:
    """Return the method for a budget."""
    portion = (1 - _MOMENTS_PORTION) / _ROUNDS
    return BoostedStatistics(
        setting,
        moment_release(setting, epsilon, delta, portion=_MOMENTS_PORTION),
        ResidualRelease(setting, epsilon, delta, portion),
    )
