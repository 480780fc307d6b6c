"""The method that is taken if none is named, by how many records there are beside the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from taut.accounting import Adjacency, PrivacyLoss, gaussian
from taut.estimators._contract.gaussian_budget import GaussianBudget
from taut.estimators._regression.method import Fit
from taut.estimators._regression.methods.coordinate_descent import (
    CoordinateDescent,
    coordinate_descent,
)
from taut.estimators._regression.methods.refined import RefinedMean, refined
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import Box, GaussianNoise, RandomSource, Source, optimal_gaussian

__all__ = ["Automatic", "automatic"]

_COUNT = 0.005  # portion of the budget for the number of records; any is sound
_SPLIT = 1 + 1e-10  # of the noise of that part: the mechanism rounds up
# Of the signal, mu times records over coefficients: from there on refined moments are as good as
# coordinate descent on real data (docs/results.md). Where only bounds of columns are known, noise
# of moments is in proportion to the squares of all of them, and more records are needed.
_ENOUGH_FOR_A_NORM, _ENOUGH_FOR_BOUNDS = 40.0, 100.0


@dataclass(frozen=True, eq=False)
class Automatic:
    """Coordinate descent for few records, refined moments for many, by a noisy number of them.

    Args:
        setting: what is public about the regression.
        whole: the budget of all that is released.
        few: method for few records.
        many: method for many.

    **Guarantee**: `loss`, by composition: which method is taken follows from the released number,
    and each costs at most what the dearer one does (docs/theory/regression.md#choice).
    """

    setting: Setting
    whole: _Budget
    few: CoordinateDescent
    many: RefinedMean

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one fit."""
        count = self.whole.count
        counted = 0.0 if self.setting.records is not None else 1 / count.multiplier
        mu = math.hypot(counted, max(self.few.mu, self.many.mu))
        return gaussian(1 / mu, adjacency=self.setting.adjacency)

    def fit(self, problem: Problem, generator: RandomSource | None = None) -> Fit:
        """Return coefficients; see `Method.fit`."""
        signal = self.whole.signal(self._records(problem, generator), self.setting.columns)
        enough = _ENOUGH_FOR_A_NORM if self.setting.has_norm else _ENOUGH_FOR_BOUNDS
        is_little = signal < enough
        found = (self.few if is_little else self.many).fit(problem, generator)
        return replace(
            found,
            method="coordinate_descent" if is_little else "refined",
            why=f"mu times records for each coefficient is {signal:.3g}, "
            f"{'below' if is_little else 'at least'} {enough:g}; {found.why}",
        )

    def _records(self, problem: Problem, generator: RandomSource | None) -> float:
        """Return the number of records, with noise unless it is public."""
        if self.setting.records is not None:
            return float(self.setting.records)
        return float(self.whole.count.release([float(problem.rows)], generator)[0])


@dataclass(frozen=True)
class _Budget(GaussianBudget):
    """The promise that is divided."""

    epsilon: float
    delta: float
    adjacency: Adjacency

    @property
    def count(self) -> GaussianNoise:
        """What releases the number of records."""
        multiplier = _SPLIT / (self.mu * math.sqrt(_COUNT))
        return optimal_gaussian(Box([1.0], source=Source.CLIPPED), multiplier=multiplier)


def automatic(setting: Setting, epsilon: float, delta: float) -> Automatic:
    """Return the method for a budget."""
    portion = 1.0 if setting.records is not None else 1 - _COUNT
    return Automatic(
        setting,
        _Budget(epsilon, delta, setting.adjacency),
        coordinate_descent(setting, epsilon, delta, portion),
        refined(setting, epsilon, delta, portion),
    )
