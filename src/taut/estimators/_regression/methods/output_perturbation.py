"""Output perturbation: exact ridge regression, with noise for how far one record moves it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency, PrivacyLoss, gaussian_mu
from taut.errors import AdjacencyMismatch
from taut.estimators._regression.method import Fit
from taut.estimators._regression.methods.ssp import penalty_of
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import GaussianNoise, L2Ball, RandomSource, optimal_gaussian

__all__ = ["OutputPerturbation", "output_perturbation", "ridge_sensitivity"]

_UNIT = 2.0**-52  # twice the rounding of doubles, for second orders
_PENALTIES = 60  # that are compared
_USUAL_SQUARE = 0.1  # of targets, in squared ranges, to weigh bias; any number is sound


@dataclass(frozen=True, eq=False)
class OutputPerturbation:
    """Ridge regression with Gaussian noise on the coefficients.

    Args:
        setting: what is public about the regression, the number of records among it.
        penalty: the ridge penalty, of all coefficients alike.
        noise: noise for the sensitivity of the coefficients.

    **Guarantee**: `loss`, for replace-one neighbours (docs/theory/regression.md#output).
    """

    setting: Setting
    penalty: float
    noise: GaussianNoise

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one fit."""
        return self.noise.loss

    def fit(self, problem: Problem, generator: RandomSource | None = None) -> Fit:
        """Return coefficients; see `Method.fit`."""
        matrix, cross = _sums(problem)
        ridge = matrix + self.penalty * np.eye(len(matrix))
        coefficients = self.noise.release(cho_solve(cho_factor(ridge), cross), generator)
        words = f"ridge regression with a penalty of {self.penalty:.3g}, and noise on coefficients"
        return Fit(coefficients, words)


def output_perturbation(setting: Setting, epsilon: float, delta: float) -> OutputPerturbation:
    """Return the method for a budget.

    Raises:
        AdjacencyMismatch: unless the number of records is public, as it is under replace-one.
    """
    if setting.records is None:
        raise AdjacencyMismatch(
            "adjacency must be 'replace' for method='output_perturbation', got 'add_remove': how "
            "far a record moves the coefficients depends on the number of records"
        )
    asked = float(penalty_of(setting).max())
    penalty = max(_balanced_penalty(setting, 1 / gaussian_mu(epsilon, delta)), asked)
    reach = ridge_sensitivity(setting, penalty)
    ball = L2Ball(setting.columns, reach, adjacency=Adjacency.REPLACE)
    return OutputPerturbation(
        setting, penalty, optimal_gaussian(ball, epsilon=epsilon, delta=delta)
    )


def _balanced_penalty(setting: Setting, multiplier: float) -> float:
    """Return the penalty with the least noise and bias, for rows that spread evenly."""
    assert setting.records is not None
    grid = np.geomspace(2.0, 2.0 + 10.0 * setting.records, _PENALTIES)
    noise = [(multiplier * ridge_sensitivity(setting, one)) ** 2 for one in grid.tolist()]
    bias = (grid / (grid + setting.records / setting.columns)) ** 2 * _USUAL_SQUARE
    return float(grid[np.argmin(noise + bias)])


def ridge_sensitivity(setting: Setting, penalty: float) -> float:
    """Return how far replacing one record moves the coefficients of ridge regression.

    Args:
        setting: what is public, with a number of records.
        penalty: the ridge penalty, at least the squared length of a row.
    """
    assert setting.records is not None
    records = setting.records
    length = math.sqrt(1 + setting.intercept)
    # Both neighbours come from the same records without one, by adding a row each.
    residual = 1 + length * math.sqrt(max(records - 1, 0)) / (2 * math.sqrt(penalty))
    exact = 2 * length * residual / (penalty + length**2)
    # What sums and the solution lose to rounding, for either neighbour: docs/theory/regression.md.
    size_of_matrix = records * length**2 + penalty
    steps = records + 4 * setting.columns * (3 * setting.columns + 1)
    lost = _UNIT * steps * size_of_matrix / penalty
    size = length * math.sqrt(records) / (2 * math.sqrt(penalty)) + 1
    return (exact + 2 * lost * size) * (1 + 1e-9)


def _sums(problem: Problem) -> tuple[Matrix, Vector]:
    """Return X'X and X'y without noise: they must not leave this module."""
    size = problem.setting.columns
    matrix, cross = np.zeros((size, size)), np.zeros(size)
    for block in problem.blocks():
        rows, targets = block[:, :-1], block[:, -1]
        matrix += rows.T @ rows
        cross += rows.T @ targets
    return matrix, cross
