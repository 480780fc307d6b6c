"""Posterior samples with several ridges, of which a public validation set chooses one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency, PrivacyLoss, Trials, approximate, gaussian_mu
from taut.adaptive import Outcome, Setting, Trial, tune
from taut.estimators._posterior.adaptive import (
    Budget,
    RidgeSample,
    budget,
    eigenvalue_above,
    sampled_with,
)
from taut.estimators._posterior.equations import Equations
from taut.noise import RandomSource

__all__ = ["SearchBudget", "best_sample", "search_budget"]

_RIDGES: list[float] = np.geomspace(2.5, 2.5**10, 30).tolist()
"""Ridges in squares of the clip, as Zhu (2023) takes them."""

_TRIALS = 60.0  # expected: every ridge is tried twice on average
_EIGENVALUE_SHARE = 0.125  # of epsilon: it is released once, and runs cost a multiple
_EIGENVALUE_DELTA, _FAILURE = 0.25, 0.25  # of delta: for its noise, and for its failure
_WITHIN = 1 - 1e-9  # of a share: sums are rounded


@dataclass(frozen=True)
class SearchBudget:
    """How a promise is divided between the smallest eigenvalue and a search over ridges.

    Attributes:
        eigenvalue: budget of the eigenvalue, whose noise and failure are what counts.
        run: budget of one run, of which the whole is ``cost``.
        cost: privacy loss of one run.
        trials: law of the number of runs.
    """

    eigenvalue: Budget
    run: Budget
    cost: PrivacyLoss
    trials: Trials


@cache
def search_budget(epsilon: float, delta: float, adjacency: Adjacency) -> SearchBudget:
    """Return how a promise is divided.

    Args:
        epsilon: promise for everything.
        delta: probability delta of it.
        adjacency: neighbouring relation.
    """
    mu = gaussian_mu(epsilon * _EIGENVALUE_SHARE, delta * _EIGENVALUE_DELTA)
    # The best of a logarithmic number of runs costs at most twice the epsilon of one, and the delta
    # of as many as are expected (docs/theory/selection.md).
    own = epsilon * (1 - _EIGENVALUE_SHARE) / 2 * _WITHIN
    own_delta = delta * (1 - _EIGENVALUE_DELTA - _FAILURE) / _TRIALS * _WITHIN
    return SearchBudget(
        Budget(0.0, 0.0, delta * _FAILURE, 1 / mu * (2 - _WITHIN), 1),
        budget(own, own_delta, adjacency, 1),
        approximate(own, own_delta, adjacency=adjacency),
        Trials.logarithmic(_TRIALS),
    )


def best_sample(
    equations: Equations,
    spent: SearchBudget,
    validation: tuple[Matrix, Vector],
    *,
    delta: float,
    unit: float,
    source: RandomSource | None,
) -> Outcome[RidgeSample]:
    """Return the sample with the least squared error on public records, or a refusal.

    Args:
        equations: normal equations in units of the clips.
        spent: how the promise is divided.
        validation: public features and targets.
        delta: probability delta of the whole promise.
        unit: clip of the targets over that of the features.
        source: source of all randomness.
    """
    relation = spent.cost.adjacency
    least = eigenvalue_above(equations, spent.eigenvalue, relation, source)
    features, targets = validation

    def run(setting: Setting) -> Trial:
        found = sampled_with(
            equations, setting["ridge"], least, spent.run, spent.cost, unit=unit, source=source
        )
        if found.value is None:
            return Trial(-np.inf, spent.cost)
        with np.errstate(all="ignore"):
            missed = targets - features @ found.value.coefficients
            return Trial(-float(missed @ missed), spent.cost, found.value)

    search = tune(
        run,
        {"ridge": _RIDGES},
        loss=spent.cost,
        trials=spent.trials,
        delta=delta,
        score_is_public=True,
        generator=source,
    )
    return Outcome(search.output is not None, search.output, search.loss)
