"""Sequential audits of fits: a planted record is never told apart better than the promise says."""

import numpy as np
import pytest
from estimators.contract.examples import NAMES, example

from taut.audit import refute_training
from taut.noise import SeededForExperiments

RECORDS = 6


def line(fitted):
    """Return all coefficients of a linear model."""
    return np.append(fitted.coef_, fitted.intercept_)


LINEAR = [name for name in NAMES if name.endswith(("Net", "Lasso", "Regression", "Ridge"))]
CASES = {name: {} for name in LINEAR} | {
    "PrivateGaussianNB": {"classes": (0, 1)},
    "PrivateKMeans": {"n_clusters": 2, "n_steps": 1},
    "PrivatePCA": {"mean": None},
    "PrivateStandardScaler": {},
}
# What of a fit the record reaches most directly.
SEEN = dict.fromkeys(LINEAR, line) | {
    "PrivateGaussianNB": lambda fitted: [fitted.class_count_[1], *fitted.theta_[1]],
    "PrivateKMeans": lambda fitted: np.sort(fitted.cluster_centers_.ravel()),
    "PrivatePCA": lambda fitted: [
        *fitted.explained_variance_,
        *(fitted.components_[0] ** 2 * fitted.explained_variance_[0]),
    ],
    "PrivateStandardScaler": lambda fitted: [fitted.count_, *fitted.mean_, *fitted.var_],
}


def audited(name, *, seen=None, epsilon=4.0, copies=1, most_runs=150):
    """Return whether an audit leaves the claim of a fit standing."""
    rows = np.zeros((RECORDS, 2))
    labels = np.ones(RECORDS, dtype=int)
    if name in LINEAR:  # of which one class, or one value, would leave nothing
        labels[::2] = 0
        rows[:3, 0] = 1.0
    planted = np.vstack([rows, np.full((copies, 2), 2.0)])
    labels = np.append(labels, np.ones(copies, dtype=int))

    def run(with_record, seed):
        table = planted if with_record else rows
        fit = example(
            name, **CASES[name], epsilon=epsilon, generator=SeededForExperiments(seed=seed)
        )
        fitted = fit.fit(table, labels[: len(table)])
        return np.array((seen or SEEN[name])(fitted), dtype=float)

    claimed = example(name, **CASES[name], epsilon=epsilon).fit(rows, labels[:RECORDS]).loss_
    return refute_training(run, claimed=claimed, delta=0.01, most_runs=most_runs, seed=3).passed


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_claim_stands(name):
    assert audited(name, most_runs=400)


def test_record_that_counts_a_hundred_times_is_found():
    def count(fitted):
        return [fitted.count_]

    settings = {"seen": count, "epsilon": 0.5, "most_runs": 100}
    assert audited("PrivateStandardScaler", **settings)
    assert not audited("PrivateStandardScaler", **settings, copies=100)
