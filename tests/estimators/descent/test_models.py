"""Coordinate descent: the right model without noise, and a fit that tells nothing else."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import taut
from taut.accounting import PrivacyFilter
from taut.audit import refute_training, replay, verify_statement
from taut.errors import AdjacencyMismatch, BudgetExceeded
from taut.estimators import PrivateElasticNet, PrivateLasso, PrivateSparseLogisticRegression
from taut.noise import SeededForExperiments

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (300, 3)) + RANDOM.uniform(-0.5, 0.5, (300, 1)) + [0.0, 5.0, 0.0]
Y = X @ [2.0, -1.0, 0.0] + 7.0 + 0.1 * RANDOM.standard_normal(300)
LABELS = np.where(Y + RANDOM.standard_normal(300) > 2, "yes", "no")
BOUNDS = ([-1.5, 3.5, -1.5], [1.5, 6.5, 1.5])
EXACT = {"epsilon": 1e9, "clip": 50.0, "passes": 50}  # hardly any noise, and nothing cut
MODELS = {
    "elastic net": (PrivateElasticNet(0.1, bounds=BOUNDS, target_bound=(-2, 8)), Y),
    "lasso": (PrivateLasso(0.1, bounds=BOUNDS, target_bound=(-2, 8)), Y),
    "logistic": (PrivateSparseLogisticRegression(classes=["yes", "no"], bounds=BOUNDS), LABELS),
}
PARTS = pytest.mark.parametrize("name", MODELS)
RELATIONS = pytest.mark.parametrize("relation", ["add_remove", "replace"])


def configured(name, **settings):
    model, targets = MODELS[name]
    return clone(model).set_params(**settings), targets


def attributes(model):
    return np.append(model.coef_.ravel(), model.intercept_)


class TestWithoutNoise:
    @RELATIONS
    @pytest.mark.parametrize("ratio", [0.0, 0.7])
    def test_elastic_net_is_that_of_scikit_learn(self, relation, ratio):
        model = PrivateElasticNet(
            0.1, l1_ratio=ratio, bounds=BOUNDS, target_bound=(-2, 8), adjacency=relation, **EXACT
        ).fit(X, Y)
        theirs = ElasticNet(0.1, l1_ratio=ratio, tol=1e-10, max_iter=100_000).fit(X, Y)
        assert model.coef_ == pytest.approx(theirs.coef_, abs=1e-3)
        assert model.intercept_ == pytest.approx(theirs.intercept_, abs=1e-2)

    def test_lasso_leaves_out_what_the_penalty_outweighs(self):
        model = PrivateLasso(0.2, bounds=BOUNDS, target_bound=(-2, 8), **EXACT).fit(X, Y)
        theirs = Lasso(0.2).fit(X, Y)
        assert model.coef_ == pytest.approx(theirs.coef_, abs=1e-3)
        assert model.coef_[2] == theirs.coef_[2] == 0.0

    def test_no_intercept_keeps_zero_where_it_is(self):
        model = PrivateElasticNet(bounds=(-2, 7), target_bound=9.0, fit_intercept=False, **EXACT)
        model.fit(X, Y)
        assert model.intercept_ == 0.0
        assert model.coef_ == pytest.approx(np.linalg.lstsq(X, Y, rcond=None)[0], abs=1e-3)

    def test_logistic_regression_is_that_of_scikit_learn(self):
        model = PrivateSparseLogisticRegression(
            0.01, classes=["no", "yes"], l1_ratio=0.0, bounds=BOUNDS, **EXACT
        ).fit(X, LABELS)
        theirs = LogisticRegression(C=1 / (0.01 * len(X)), tol=1e-8).fit(X, LABELS)
        assert model.coef_ == pytest.approx(theirs.coef_, abs=2e-2)
        assert model.predict_proba(X) == pytest.approx(theirs.predict_proba(X), abs=1e-2)
        assert (model.predict(X) == theirs.predict(X)).mean() > 0.99
        assert list(model.classes_) == ["no", "yes"]

    def test_targets_and_features_are_cut_at_their_bounds(self):
        far = np.vstack([X, [[1e308, 5.0, 0.0]]]), np.append(Y, 1e308)
        near = np.vstack([X, [[1.5, 5.0, 0.0]]]), np.append(Y, 8.0)
        found = [configured("elastic net", **EXACT)[0].fit(*data) for data in (far, near)]
        assert attributes(found[0]) == pytest.approx(attributes(found[1]), abs=1e-3)


class TestPrivacy:
    @PARTS
    @RELATIONS
    def test_promise_holds_and_can_be_verified(self, name, relation):
        model, targets = configured(name, adjacency=relation, epsilon=0.7)
        model.fit(X, targets)
        assert model.loss_.epsilon(delta=1e-6) <= 0.7
        assert str(model.loss_.adjacency) == relation
        assert verify_statement(model.promise_.statement).holds

    @PARTS
    @pytest.mark.parametrize("row", [0, 299])
    def test_replay_without_a_record_finds_nothing(self, name, row):
        model, targets = configured(name, passes=2)

        def fitted(data):
            return attributes(clone(model).fit(*data))

        less = np.delete(X, row, axis=0), np.delete(targets, row)
        found = replay(fitted, (X, targets), less, claim=model.fit(X, targets).loss_)
        assert found.passed, str(found)
        assert found.exercised

    @PARTS
    def test_replay_with_a_replaced_record_finds_nothing(self, name):
        model, targets = configured(name, passes=2, adjacency="replace")

        def fitted(data):
            return attributes(clone(model).fit(*data))

        other = X.copy(), targets.copy()
        other[0][5], other[1][5] = -X[5], targets[np.flatnonzero(targets != targets[5])[0]]
        found = replay(fitted, (X, targets), other, claim=model.fit(X, targets).loss_)
        assert found.passed, str(found)

    @pytest.mark.slow
    def test_sequential_audit_does_not_refute_it(self):
        """The released coefficient, in units in which the record that counts most moves it."""
        rows, targets = np.full((5, 1), 0.1), np.zeros(5)
        model = PrivateElasticNet(
            epsilon=4.0, delta=1e-3, bounds=(-1, 1), target_bound=1.0, fit_intercept=False, passes=2
        )

        def run(with_record, seed):
            more = np.vstack([rows, [[1.0]]]), np.append(targets, 1.0)
            data = more if with_record else (rows, targets)
            fitted = clone(model).set_params(generator=SeededForExperiments(seed)).fit(*data)
            return np.array([np.clip(fitted.coef_[0], -10, 10)])

        claimed = taut.gaussian(1 / taut.accounting.gaussian_mu(4.0, 1e-3))
        assert refute_training(run, claimed=claimed, delta=1e-3, most_runs=1000, seed=0).passed

    @PARTS
    @pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf])
    def test_record_that_is_no_number_counts_nowhere(self, name, entry):
        """With the same noise, the fit is the same to the last bit as without the record."""
        model, targets = configured(name, passes=3)
        more = np.vstack([[[0.1, entry, 0.2]], X]), np.append(targets[:1], targets)
        found = [
            attributes(clone(model).set_params(generator=SeededForExperiments(3)).fit(*data))
            for data in (more, (X, targets))
        ]
        assert np.array_equal(*found)

    @pytest.mark.parametrize("label", ["maybe", "", None, np.nan])
    def test_record_of_no_class_counts_nowhere(self, label):
        model, targets = configured("logistic", passes=3)
        odd = np.append(np.array([label], dtype=object), targets)
        found = [
            attributes(clone(model).set_params(generator=SeededForExperiments(3)).fit(*data))
            for data in ((np.vstack([X[:1], X]), odd), (X, targets))
        ]
        assert np.array_equal(*found)

    def test_ledger_pays_before_anything_is_released(self):
        budget = PrivacyFilter(epsilon=1.2, delta=1e-6)
        model, targets = configured("lasso", ledger=budget)
        clone(model).fit(X, targets)
        second = clone(model)
        with pytest.raises(BudgetExceeded):
            second.fit(X, targets)
        assert not hasattr(second, "coef_")

    def test_seeded_fit_is_not_called_secure(self):
        model, targets = configured("lasso", generator=SeededForExperiments(0))
        assert not model.fit(X, targets).promise_.is_secure


class TestArguments:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"bounds": None}, "bounds must be given"),
            ({"bounds": (1, -1)}, "lower < upper"),
            ({"bounds": ([0, 0], [1, 1])}, "3 numbers"),
            ({"bounds": "ab"}, "pair"),
            ({"bounds": (-1e40, 1e40)}, "1e\\+30"),
            ({"target_bound": None}, "target_bound must be given"),
            ({"target_bound": (1, 0)}, "ordered"),
            ({"alpha": -1.0}, "alpha"),
            ({"alpha": np.nan}, "alpha"),
            ({"l1_ratio": 1.5}, "l1_ratio"),
            ({"rate": 2.0}, "below 2"),
            ({"passes": 0}, "passes"),
            ({"clip": 0.0}, "clip"),
            ({"noise": "plain"}, "curvature"),
            ({"epsilon": 0.0}, "epsilon"),
        ],
    )
    def test_bad_one_is_refused(self, settings, message):
        model, targets = configured("elastic net", **settings)
        with pytest.raises(ValueError, match=message):
            model.fit(X, targets)

    def test_relation_without_a_proof_is_refused(self):
        model, targets = configured("elastic net", adjacency="zero_out")
        with pytest.raises(AdjacencyMismatch, match="zero_out"):
            model.fit(X, targets)

    def test_weights_are_refused(self):
        model, targets = configured("elastic net")
        with pytest.raises(ValueError, match="sample_weight"):
            model.fit(X, targets, sample_weight=np.ones(len(X)))
        with pytest.raises(TypeError, match="colour"):
            model.fit(X, targets, colour="red")

    def test_classes_are_needed(self):
        model, targets = configured("logistic", classes=None)
        with pytest.raises(ValueError, match="classes must be given"):
            model.fit(X, targets)


class TestPipelines:
    @PARTS
    def test_is_part_of_a_pipeline(self, name):
        model, targets = configured(name)
        pipeline = make_pipeline(FunctionTransformer(), model).fit(X, targets)
        assert pipeline.predict(X).shape == (300,)
        assert 2 <= pipeline[-1].n_iter_ <= 64

    def test_more_records_get_more_passes(self):
        few, many = (
            PrivateLasso(bounds=(-1, 1), target_bound=1.0, generator=SeededForExperiments(0))
            .fit(np.zeros((n, 2)), np.zeros(n))
            .n_iter_
            for n in (50, 3000)
        )
        assert few < 10
        assert many == 64
