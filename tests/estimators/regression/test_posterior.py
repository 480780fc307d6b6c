"""Posterior sampling as methods of linear regression."""

import math

import numpy as np
import pytest

from taut.accounting import Adjacency
from taut.audit import refute_training, replay
from taut.errors import AdjacencyMismatch, InfeasibleBudget
from taut.estimators import PrivateLinearRegression, PrivateRidge
from taut.estimators._regression.methods.posterior import ada_ops, ops_ptr
from taut.estimators._regression.problem import Problem, Setting
from taut.noise import SeededForExperiments

X = np.random.default_rng(0).uniform(-1, 1, (4_000, 2))
Y = X @ [1.5, -1.0] + 0.5
PUBLIC = X[:100], Y[:100]


METHODS = {
    "ada_ops": {},
    "ops_balanced": {"adjacency": "replace"},
    "ops_ptr": {"public_data": PUBLIC},
}


def made(method, cls=PrivateLinearRegression, **given):
    return cls(bounds=(-1, 1), target_bound=4.0, method=method, **{**METHODS[method], **given})


@pytest.mark.parametrize(
    ("method", "epsilon"), [("ada_ops", 200.0), ("ops_balanced", 200.0), ("ops_ptr", 40.0)]
)
def test_fits_where_the_budget_is_large(method, epsilon):
    found = made(method, epsilon=epsilon, generator=SeededForExperiments(seed=1)).fit(X, Y)
    assert found.coef_ == pytest.approx([1.5, -1.0], abs=0.3)
    assert found.intercept_ == pytest.approx(0.5, abs=0.3)
    assert found.method_ == method
    assert not found.refused_
    assert "ridge" in found.why_


@pytest.mark.parametrize("method", METHODS)
def test_keeps_the_promise(method):
    found = made(method, epsilon=0.5).fit(X[:60], Y[:60])
    assert found.loss_.epsilon(1e-6) <= 0.5
    assert found.loss_.epsilon(1e-6) >= 0.5 * (1 - 1e-6)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_promise_that_no_sample_keeps_is_refused_before_the_ledger_pays(relation):
    class Untouched:
        def spend(self, loss):
            raise AssertionError(loss)

    fit = made("ada_ops", epsilon=100.0, delta=1e-100, adjacency=relation, ledger=Untouched())
    with pytest.raises(InfeasibleBudget, match="raise either"):
        fit.fit(X[:60], Y[:60])


@pytest.mark.parametrize(
    ("method", "intercept"), [("ada_ops", True), ("ops_balanced", False), ("ops_ptr", True)]
)
def test_bad_records_count_as_zero(method, intercept):
    rows, targets = X[:50].copy(), Y[:50].copy()
    rows[::7, 0], targets[::11] = np.nan, np.inf
    found = made(method, fit_intercept=intercept).fit(rows, targets)
    assert np.isfinite([*found.coef_, found.intercept_]).all()


def test_penalty_of_a_ridge_shrinks_slopes():
    plain, heavy = (
        made("ada_ops", PrivateRidge, alpha=alpha, epsilon=200.0).fit(X, Y).coef_[0]
        for alpha in (1e-3, 4_000.0)
    )
    assert 0.1 < heavy < 0.7 * plain


def test_number_of_records_must_be_public_for_the_balanced_one():
    with pytest.raises(AdjacencyMismatch, match="ada_ops"):
        made("ops_balanced", adjacency="add_remove").fit(X, Y)


@pytest.mark.parametrize(
    "public",
    [None, (X, Y[:3]), (X[:, :1], Y), 3.0, (X,)],
    ids=["none", "rows", "columns", "no", "one"],
)
def test_public_records_are_checked(public):
    with pytest.raises(ValueError, match="public_data"):
        made("ops_ptr", public_data=public).fit(X, Y)


def test_a_refusal_is_an_answer_at_the_full_price():
    """The search refuses if no ridge leaves a precision at what was released."""
    method = ops_ptr(
        Setting(1, False, Adjacency.ADD_REMOVE, public=np.array([[1.0, 1.0]])), 1e-3, 1e-6
    )
    found = method.fit(Problem(method.setting, lambda: iter([np.array([[1.0, 1.0]])]), 1))
    assert found.refused
    assert not found.coefficients.any()
    assert "refused" in found.why
    assert method.loss.epsilon(1e-6) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("method", "adjacency"),
    [
        ("ada_ops", "add_remove"),
        ("ada_ops", "replace"),
        ("ops_balanced", "replace"),
        ("ops_ptr", "add_remove"),
    ],
)
def test_neighbours_differ_by_no_more_than_declared(method, adjacency):
    data = np.column_stack([X[:40], Y[:40]])
    neighbour = data.copy()
    neighbour[3] = [1.0, 1.0, -4.0]
    if adjacency == "add_remove":
        neighbour = np.delete(data, 3, axis=0)

    def run(table):
        found = made(method, adjacency=adjacency, epsilon=3.0)
        return found.fit(table[:, :-1], table[:, -1]).coef_

    fit = made(method, adjacency=adjacency, epsilon=3.0).fit(data[:, :-1], data[:, -1])
    # The releases of all trials add up to more than that of the best, which alone is published.
    claim = None if method == "ops_ptr" else fit.loss_
    result = replay(run, data, neighbour, claim=claim)
    assert result.passed, str(result)
    assert result.exercised


def test_runs_do_not_refute_the_adaptive_method():
    method = ada_ops(Setting(1, False, Adjacency.ADD_REMOVE), 2.0, 0.05)
    sides = [np.tile([1.0, -1.0], (k, 1)) for k in (3, 4)]
    sides[1][3, 1] = 1.0

    def run(with_canary, seed):
        problem = Problem(
            method.setting, lambda: iter([sides[with_canary]]), len(sides[with_canary])
        )
        return method.fit(problem, SeededForExperiments(seed)).coefficients.tolist()

    assert refute_training(run, claimed=method.loss, delta=0.05, most_runs=25, seed=1).passed
    assert math.isfinite(run(True, 1)[0])
