"""The predictor that no data change: the centre of the bounds of targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.accounting import PrivacyLoss, zero
from taut.estimators._regression.method import Fit
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import RandomSource

__all__ = ["ZeroPredictor", "zero_predictor"]


@dataclass(frozen=True, eq=False)
class ZeroPredictor:
    """Coefficients of zero: what other methods have to be better than.

    Args:
        setting: what is public about the regression.

    **Guarantee**: no loss, as no data are seen.
    """

    setting: Setting

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one fit: none."""
        return zero(adjacency=self.setting.adjacency)

    def fit(self, problem: Problem, generator: RandomSource | None = None) -> Fit:
        """Return zeros; see `Method.fit`."""
        return Fit(np.zeros(self.setting.columns), "the centre of the bounds of targets, always")


def zero_predictor(setting: Setting, epsilon: float, delta: float) -> ZeroPredictor:  # noqa: ARG001
    """Return the method; it spends nothing of the budget."""
    return ZeroPredictor(setting)
