"""Posterior sampling: a draw from the posterior, whose own spread is the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from taut._base.arrays import Matrix
from taut.accounting import PrivacyLoss, approximate
from taut.adaptive import Outcome
from taut.errors import AdjacencyMismatch
from taut.estimators._posterior.adaptive import (
    Budget,
    RidgeSample,
    adaptive_ridge,
    budget,
    eigenvalue_above,
    sampled_with,
)
from taut.estimators._posterior.bounds import LARGEST_EPSILON, largest_growth
from taut.estimators._posterior.equations import (
    Equations,
    check_penalties,
    check_size,
    equations_of,
)
from taut.estimators._posterior.release import RidgePosterior, drawn, ridge_posterior
from taut.estimators._posterior.tuned import SearchBudget, best_sample, search_budget
from taut.estimators._regression.method import Fit
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import RandomSource

__all__ = [
    "AdaptivePosterior",
    "BalancedPosterior",
    "TestedPosterior",
    "ada_ops",
    "ops_balanced",
    "ops_ptr",
]


@dataclass(frozen=True, eq=False)
class BalancedPosterior:
    """A sample with a ridge and a precision that are the same for all data.

    Args:
        setting: what is public about the regression.
        posterior: posterior, in the units of the problem.
        epsilon: epsilon of the promise.

    Wang (2018, OPS-Balanced), with the exact loss in place of a bound that is too small.

    **Guarantee**: `loss`; see `RidgePosterior`.
    """

    setting: Setting
    posterior: RidgePosterior
    epsilon: float

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one fit."""
        return self.posterior.loss_tight_at(min(self.epsilon, LARGEST_EPSILON))

    def fit(self, problem: Problem, generator: RandomSource | None = None) -> Fit:
        """Return coefficients; see `Method.fit`."""
        ridge = self.posterior.ridge / self.posterior.row_clip**2
        coefficients = drawn(
            _equations(problem, self.setting),
            ridge,
            self.posterior.precision,
            unit=1 / self.posterior.row_clip,
            loss=self.posterior.loss,
            generator=generator,
        )
        return Fit(coefficients, f"a posterior sample with the ridge {ridge:.4g} for all data")


@dataclass(frozen=True, eq=False)
class AdaptivePosterior:
    """A sample with ridge and precision that suit the data, by two numbers that are released first.

    Args:
        setting: what is public about the regression.
        spent: how the promise is divided.
        loss: privacy loss of one fit.

    Wang (2018, AdaOPS), with the exact loss and noise that keeps its promise: the smallest
    eigenvalue is released, then the length of the solution, then the sample.

    **Guarantee**: `loss` (docs/theory/posterior-sampling.md).
    """

    setting: Setting
    spent: Budget = field(repr=False)
    loss: PrivacyLoss

    def fit(self, problem: Problem, generator: RandomSource | None = None) -> Fit:
        """Return coefficients; see `Method.fit`."""
        equations = _equations(problem, self.setting)
        relation = self.setting.adjacency
        least = eigenvalue_above(equations, self.spent, relation, generator)
        ridge = adaptive_ridge(self.setting.columns, least, self.spent, relation)
        unit = 1 / _length(self.setting)
        found = sampled_with(
            equations, ridge, least, self.spent, self.loss, unit=unit, source=generator
        )
        return _settled(found, self.setting)


@dataclass(frozen=True, eq=False)
class TestedPosterior:
    """Samples with several ridges, of which public records choose one.

    Args:
        setting: what is public about the regression, public records among it.
        spent: how the promise is divided.
        loss: privacy loss of one fit.
        delta: probability delta of the promise.

    Redberg, Zhu and Wang (2023, OPS-PTR), with the exact loss, the exact price of the selection,
    and the smallest eigenvalue released once for all runs.

    **Guarantee**: `loss` (docs/theory/posterior-sampling.md), if the public records are public.
    """

    setting: Setting
    spent: SearchBudget = field(repr=False)
    loss: PrivacyLoss
    delta: float

    def fit(self, problem: Problem, generator: RandomSource | None = None) -> Fit:
        """Return coefficients; see `Method.fit`."""
        public = _public(self.setting)
        found = best_sample(
            _equations(problem, self.setting),
            self.spent,
            (public[:, :-1], public[:, -1]),
            delta=self.delta,
            unit=1 / _length(self.setting),
            source=generator,
        )
        return _settled(found, self.setting)


def ops_balanced(setting: Setting, epsilon: float, delta: float) -> BalancedPosterior:
    """Return the method for a budget.

    Raises:
        AdjacencyMismatch: where the number of records is not public.
    """
    if setting.records is None:
        raise AdjacencyMismatch(
            "method='ops_balanced' needs a public number of records, which bounds the length of "
            "the solution: take adjacency='replace', or method='ada_ops'"
        )
    _check(setting)
    posterior = ridge_posterior(
        row_clip=_length(setting),
        target_clip=1.0,
        records=setting.records,
        features=setting.columns,
        epsilon=epsilon,
        delta=delta,
        adjacency=setting.adjacency,
    )
    return BalancedPosterior(setting, posterior, epsilon)


def ada_ops(setting: Setting, epsilon: float, delta: float) -> AdaptivePosterior:
    """Return the method for a budget.

    Raises:
        InfeasibleBudget: if its part for the sample keeps no promise, whatever is released first.
    """
    _check(setting)
    relation = setting.adjacency
    spent = budget(epsilon, delta, relation, 2)
    largest_growth(epsilon=spent.epsilon, delta=spent.delta, relation=relation)
    return AdaptivePosterior(setting, spent, approximate(epsilon, delta, adjacency=relation))


def ops_ptr(setting: Setting, epsilon: float, delta: float) -> TestedPosterior:
    """Return the method for a budget.

    Raises:
        ValueError: if there are no public records.
    """
    _public(setting)
    _check(setting)
    loss = approximate(epsilon, delta, adjacency=setting.adjacency)
    return TestedPosterior(setting, search_budget(epsilon, delta, setting.adjacency), loss, delta)


def _public(setting: Setting) -> Matrix:
    if setting.public is None:
        raise ValueError(
            "method='ops_ptr' needs public_data=(X, y), records that are public: it compares "
            "samples on them, and on private records a comparison would cost as much again"
        )
    return setting.public


def _check(setting: Setting) -> None:
    """Refuse what no sample is drawn for, before anybody pays."""
    check_size(setting.columns)
    check_penalties(_penalties(setting))


def _length(setting: Setting) -> float:
    """Return the bound on the length of a row of the design, that of the ones included."""
    return math.sqrt(2) if setting.intercept else 1.0


def _penalties(setting: Setting) -> list[float]:
    """Return the weights that were asked for, in squares of the length of a row."""
    return [penalty / _length(setting) ** 2 for penalty in setting.penalties]


def _equations(problem: Problem, setting: Setting) -> Equations:
    length = _length(setting)
    return equations_of(
        problem.blocks(),
        setting.columns,
        row_clip=length,
        target_clip=1.0,
        penalties=_penalties(setting),
    )


def _settled(found: Outcome[RidgeSample], setting: Setting) -> Fit:
    if found.value is None:
        why = "refused: no precision keeps the promise with the bounds that were released"
        return Fit(np.zeros(setting.columns), why, refused=True)
    sample = found.value
    why = f"a posterior sample with the ridge {sample.ridge:.4g}, precision {sample.precision:.4g}"
    return Fit(sample.coefficients, why)
