"""Coordinate descent: one sum of clipped derivatives per coefficient and pass.

With few records it needs far less of them than second moments do: noise hides one number per
record, cut at a part of the range of targets, not products of all columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.accounting import PrivacyLoss, gaussian
from taut.estimators._descent.budget import CURVATURE_SHARE, Budget
from taut.estimators._descent.descent import USUAL_CLIPS, Descent
from taut.estimators._regression.method import Fit
from taut.estimators._regression.methods.ssp import penalty_of
from taut.estimators._regression.moments import MomentRelease, moment_release
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import RandomSource

__all__ = ["CoordinateDescent", "coordinate_descent"]

_MOMENTS = 0.05  # portion of the budget for moments, from which intervals follow; any is sound


@dataclass(frozen=True, eq=False)
class CoordinateDescent:
    """Coefficients one at a time, and moments for their intervals.

    Args:
        setting: what is public about the regression.
        moments: how moments are released.
        budget: what coordinate descent may spend.

    **Guarantee**: `loss`, by composition; see `Descent`.
    """

    setting: Setting
    moments: MomentRelease
    budget: Budget

    @property
    def mu(self) -> float:
        """The mu of one fit."""
        return math.hypot(self.moments.mechanism.mu, self.budget.mu)

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one fit."""
        return gaussian(1 / self.mu, adjacency=self.setting.adjacency)

    def fit(self, problem: Problem, generator: RandomSource | None = None) -> Fit:
        """Return coefficients; see `Method.fit`."""
        released = self.moments.release(problem, generator)
        columns, targets = _transposed(problem)
        reaches = np.append(1.0, np.full(self.setting.features, self.setting.reach))
        found = self._descent().fit(columns, targets, reaches, self.setting.records, generator)
        slopes, height = found.coefficients[1:], found.coefficients[:1]
        return Fit(
            np.append(slopes, height) if self.setting.intercept else slopes,
            f"{found.passes} passes of coordinate descent",
            released,
            (released.measurement,),
        )

    def _descent(self) -> Descent:
        none = np.zeros(1 + self.setting.features)
        ridge = np.append(0.0, penalty_of(self.setting)[: self.setting.features])
        return Descent(
            self.budget,
            _residual,
            1.0,
            USUAL_CLIPS,
            none,
            none,
            self.setting.intercept,
            1.0,
            None,
            "curvature",
            ridge,
        )


def coordinate_descent(
    setting: Setting, epsilon: float, delta: float, portion: float = 1.0
) -> CoordinateDescent:
    """Return the method for a budget, or for its portion of one."""
    return CoordinateDescent(
        setting,
        moment_release(setting, epsilon, delta, portion=portion * _MOMENTS),
        Budget(
            epsilon, delta, CURVATURE_SHARE, setting.adjacency, portion=portion * (1 - _MOMENTS)
        ),
    )


def _residual(products: Vector, targets: Vector) -> Vector:
    return products - targets


def _transposed(problem: Problem) -> tuple[Matrix, Vector]:
    """Return a row of ones and one per feature, and targets: a copy of the whole table."""
    features = problem.setting.features
    columns, targets = np.ones((1 + features, problem.rows)), np.empty(problem.rows)
    start = 0
    for block in problem.blocks():
        rows = slice(start, start + len(block))
        columns[1:, rows] = block[:, :features].T
        if problem.setting.intercept:
            columns[0, rows] = block[:, features]
        targets[rows] = block[:, -1]
        start += len(block)
    return columns, targets
