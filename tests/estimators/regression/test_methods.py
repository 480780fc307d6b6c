"""Methods: none says what it was not told, all keep their promise, and good ones predict well."""

import numpy as np
import pytest

from taut.accounting import Adjacency
from taut.audit import replay
from taut.errors import AdjacencyMismatch
from taut.estimators import PrivateLinearRegression, PrivateRidge
from taut.estimators._regression.choice import METHODS, choose
from taut.estimators._regression.methods.output_perturbation import ridge_sensitivity
from taut.estimators._regression.problem import Setting
from taut.noise import SeededForExperiments

RANDOM = np.random.default_rng(11)
X = RANDOM.standard_normal((6000, 4)) / 2.5
X *= np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]
Y = X @ [0.5, -0.4, 0.2, 0.1] + 0.1 + 0.05 * RANDOM.standard_normal(6000)
RELATION = dict.fromkeys(["auto", *METHODS], "add_remove") | {"output_perturbation": "replace"}
# A sample of a posterior keeps its spread at any budget: test_posterior.py is about those.
NAMES = ["auto", *sorted(set(METHODS) - {"ada_ops", "ops_balanced", "ops_ptr"})]


def model(name, kind=PrivateLinearRegression, **settings):
    given = {"feature_norm": 1.0, "target_bound": 1.0, "adjacency": RELATION[name], **settings}
    return kind(method=name, **given)


def neighbours(relation):
    rows, targets = X[:40].copy(), Y[:40].copy()
    rows[5], targets[5] = [3.0, 0.0, 4.0, 0.0], 2.0
    if relation == "replace":
        others, other_targets = rows.copy(), targets.copy()
        others[5], other_targets[5] = [-3.0, 0.0, 4.0, 0.0], -2.0
        return (rows, targets), (others, other_targets)
    return (rows, targets), (np.delete(rows, 5, axis=0), np.delete(targets, 5))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_neighbours_are_hidden_in_every_release(name, relation):
    if relation == "add_remove" and RELATION[name] == "replace":
        return
    data, other = neighbours(relation)
    fit = model(name, adjacency=relation)
    claim = fit.fit(*data).loss_
    result = replay(lambda pair: fit.fit(*pair).coef_, data, other, claim=claim)
    assert result.passed, result


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_losses_keep_the_promise(name, epsilon):
    setting = Setting(
        7, True, Adjacency(RELATION[name]), 100 if RELATION[name] == "replace" else None
    )
    _, method, _ = choose(name, setting, epsilon, 1e-6)
    spent = method.loss.epsilon(delta=1e-6)
    assert spent <= epsilon
    assert name == "zero" or spent == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"zero", "output_perturbation"}))
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_noise_all_are_least_squares(name, fit_intercept):
    settings = {"epsilon": 3e4, "fit_intercept": fit_intercept}
    found = model(name, **settings, generator=SeededForExperiments(1)).fit(X, Y)
    design = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    best = np.linalg.lstsq(design, Y, rcond=None)[0]
    assert found.coef_ == pytest.approx(best[:4], abs=3e-3)


@pytest.mark.parametrize(
    "name",
    ["refined", "posterior_mean", "coordinate_descent", "adassp", "boosted_adassp", "ssp"],
)
def test_ridge_penalty_is_kept(name):
    fit = model(name, PrivateRidge, alpha=2000.0, epsilon=3e4, generator=SeededForExperiments(1))
    centred = X - X.mean(axis=0)
    best = np.linalg.solve(centred.T @ centred + 2000 * np.eye(4), centred.T @ Y)
    assert fit.fit(X, Y).coef_ == pytest.approx(best, abs=0.03)


def test_auto_is_no_worse_than_others_or_nothing():
    """Mean squared errors over repeats, at a budget for which noise matters."""
    errors = {}
    for name in ("auto", "ssp", "adassp", "zero"):
        fits = (
            model("refined", epsilon=0.3, generator=SeededForExperiments(seed)).set_params(
                method=name
            )
            for seed in range(12)
        )
        errors[name] = np.mean([np.mean((fit.fit(X, Y).predict(X) - Y) ** 2) for fit in fits])
    assert errors["auto"] < 1.05 * min(errors.values())


def test_auto_does_not_follow_noise_where_there_is_nothing_else():
    noise = [
        model("refined", epsilon=0.1, generator=SeededForExperiments(seed)).fit(X[:50], Y[:50])
        for seed in range(10)
    ]
    assert np.mean([np.mean((fit.predict(X) - Y) ** 2) for fit in noise]) < 1.5 * np.mean(Y**2)


class TestAuto:
    @pytest.mark.parametrize(("records", "name"), [(300, "coordinate_descent"), (6000, "refined")])
    @pytest.mark.parametrize("relation", ["add_remove", "replace"])
    def test_chooses_by_how_many_records_there_are(self, records, name, relation):
        fitted = model("auto", adjacency=relation).fit(X[:records], Y[:records])
        assert fitted.method_ == name
        assert "least error on real data: mu times records" in fitted.why_

    def test_wants_more_records_where_only_bounds_are_known(self):
        """0.237 times 1,200 records over 5 coefficients is 57."""
        bounds = {"feature_norm": None, "bounds": (-1, 1)}
        assert model("auto").fit(X[:1200], Y[:1200]).method_ == "refined"
        fitted = model("auto", **bounds).fit(X[:1200], Y[:1200])
        assert fitted.method_ == "coordinate_descent"

    def test_takes_beliefs_about_thousands_of_coefficients_for_too_slow(self):
        name, _, why = choose("auto", Setting(3000, False, Adjacency.ADD_REMOVE), 1.0, 1e-6)
        assert name == "adassp"
        assert "too long" in why

    @pytest.mark.parametrize("relation", list(Adjacency)[:2])
    @pytest.mark.parametrize("epsilon", [1e-3, 1.0, 50.0])
    def test_either_method_costs_what_is_stated(self, relation, epsilon):
        """Added up from the noise of the mechanisms that are used."""
        records = 100 if relation is Adjacency.REPLACE else None
        _, method, _ = choose("auto", Setting(3, True, relation, records), epsilon, 1e-6)
        few, many = method.few, method.many
        curvatures = few.budget.curvatures(np.ones(4 - (relation is Adjacency.REPLACE)))
        steps = few.budget.steps(
            np.array([0.3, 0.1, 0.2, 0.3]), np.arange(1.0, 5.0), 7, "curvature"
        )
        of_few = (
            few.moments.mechanism.mu**2
            + curvatures.multiplier**-2
            + 7 * sum(step.multiplier**-2 for step in steps)
        )
        of_many = many.moments.mechanism.mu**2 + many.rounds * many.residuals.mu**2
        counted = 0.0 if records else method.whole.count.multiplier**-2
        assert counted + max(of_few, of_many) <= method.whole.mu**2 * (1 + 1e-12)
        assert method.loss.epsilon(delta=1e-6) <= epsilon
        assert method.loss.epsilon(delta=1e-6) == pytest.approx(epsilon, rel=1e-3)

    def test_is_far_better_than_moments_with_few_records_and_bounds_alone(self):
        """One tenth of the range of every column is used; least squares have 0.0025."""
        random = np.random.default_rng(5)
        rows = random.uniform(-1, 1, (2000, 6)) / 10
        targets = np.clip(
            rows @ [5, -4, 3, -2, 1, 0.5] + 0.05 * random.standard_normal(2000), -2, 2
        )

        def error(name):
            fits = [
                PrivateLinearRegression(
                    bounds=(-1, 1),
                    target_bound=2.0,
                    method=name,
                    generator=SeededForExperiments(seed),
                ).fit(rows, targets)
                for seed in range(5)
            ]
            return np.mean([np.mean((fit.predict(rows) - targets) ** 2) for fit in fits])

        assert error("auto") < 0.01 < 0.1 * error("refined")


class TestOutputPerturbation:
    def test_needs_a_public_number_of_records(self):
        with pytest.raises(AdjacencyMismatch, match="'replace'"):
            model("output_perturbation", adjacency="add_remove").fit(X, Y)

    @pytest.mark.parametrize("penalty", [2.0, 10.0, 300.0])
    @pytest.mark.parametrize("intercept", [False, True])
    def test_no_replaced_record_moves_coefficients_further(self, penalty, intercept):
        """Searched over records of full length, and over data that lie badly."""
        random = np.random.default_rng(0)
        bound = ridge_sensitivity(Setting(2, intercept, Adjacency.REPLACE, 6), penalty)
        worst = 0.0
        for _ in range(400):
            rows = random.standard_normal((7, 2)) * [1.0, random.uniform(0, 1)]
            rows /= np.linalg.norm(rows, axis=1)[:, None]
            design = np.column_stack([rows, np.ones(7)]) if intercept else rows
            targets = random.choice([-1.0, 1.0], 7)

            def fitted(kept, design=design, targets=targets):
                matrix = design[kept].T @ design[kept] + penalty * np.eye(design.shape[1])
                return np.linalg.solve(matrix, design[kept].T @ targets[kept])

            worst = max(
                worst, np.linalg.norm(fitted([0, 1, 2, 3, 4, 5]) - fitted([0, 1, 2, 3, 4, 6]))
            )
        assert 0.05 * bound < worst <= bound
