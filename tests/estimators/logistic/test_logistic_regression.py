"""Logistic regression: the right model without noise, and a fit that tells nothing else."""

import math

import numpy as np
import pytest
from estimators.contract.examples import peak_in_tables
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import taut
from taut.accounting import Adjacency, gaussian_mu
from taut.audit import refute_training, replay
from taut.errors import AdjacencyMismatch, InfeasibleBudget
from taut.estimators import PrivateLogisticRegression
from taut.estimators._logistic.gradient_descent import GradientDescent
from taut.noise import SeededForExperiments

RANDOM = np.random.default_rng(0)
Y = RANDOM.integers(0, 3, 400)
X = np.eye(3)[Y] * 0.5 + RANDOM.normal(0, 0.4, (400, 3))
RELATIONS = pytest.mark.parametrize("relation", ["add_remove", "replace"])


def model(**settings):
    return PrivateLogisticRegression(**{"classes": [0, 1, 2], "feature_norm": 2.0, **settings})


def attributes(fitted):
    return np.append(fitted.coef_.ravel(), fitted.intercept_)


class TestWithoutNoise:
    @RELATIONS
    def test_model_is_that_of_scikit_learn(self, relation):
        exact = model(epsilon=1e9, clip=1.5, steps=100, adjacency=relation)
        exact.fit(X, Y)
        theirs = LogisticRegression(C=1e6).fit(X, Y)
        assert exact.predict_proba(X) == pytest.approx(theirs.predict_proba(X), abs=0.02)

    def test_two_classes_have_one_row(self):
        labels = np.where(Y == 2, "yes", "no")
        exact = model(classes=["yes", "no"], epsilon=1e9, clip=1.5, steps=100).fit(X, labels)
        theirs = LogisticRegression(C=1e6).fit(X, labels)
        assert exact.coef_.shape == (1, 3)
        assert exact.decision_function(X).shape == (400,)
        assert list(exact.classes_) == ["no", "yes"]
        assert exact.predict_proba(X) == pytest.approx(theirs.predict_proba(X), abs=0.02)
        assert (exact.predict(X) == theirs.predict(X)).mean() > 0.98

    def test_no_intercept_is_zero(self):
        assert not model(fit_intercept=False, steps=2).fit(X, Y).intercept_.any()

    def test_long_rows_are_scaled_down(self):
        source = {"epsilon": 1e9, "steps": 5}
        long, short = X.copy(), X.copy()
        long[0], short[0] = [3e150, 4e150, 0.0], [1.2, 1.6, 0.0]
        found = [attributes(model(**source).fit(rows, Y)) for rows in (long, short)]
        assert found[0] == pytest.approx(found[1], abs=1e-2)

    def test_columns_beyond_a_chunk_are_summed_as_well(self):
        wide = np.hstack([np.zeros((400, 4100)), X])
        found = model(epsilon=1e9, steps=3).fit(wide, Y)
        plain = model(epsilon=1e9, steps=3).fit(X, Y)
        assert found.coef_[:, 4100:] == pytest.approx(plain.coef_, abs=0.05)


class TestPrivacy:
    @RELATIONS
    @pytest.mark.parametrize("steps", [1, 37])
    def test_all_releases_together_keep_the_promise(self, relation, steps):
        """Counted from the scale of the noise alone, by what one record can change."""
        descent = GradientDescent(1.0, 1e-6, 3, 0.7, steps, Adjacency(relation))
        reach = 2.0 if relation == "replace" else 1.0
        squared = steps * (reach * 0.7 / descent._products(steps).scale) ** 2
        if relation == "add_remove":
            squared += descent.mu**2 * 0.01  # the count has noise of ten over mu
        assert taut.gaussian(1 / math.sqrt(squared)).epsilon(delta=1e-6) <= 1.0
        assert math.sqrt(squared) == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-8)

    @pytest.mark.parametrize("row", [0, 399])
    def test_replay_without_a_record_finds_nothing(self, row):
        estimator = model(steps=3)

        def fitted(data):
            return attributes(clone(estimator).fit(*data))

        less = np.delete(X, row, axis=0), np.delete(Y, row)
        claim = estimator.fit(X, Y).loss_
        found = replay(fitted, (X, Y), less, claim=claim)
        assert found.passed, str(found)
        assert found.exercised

    def test_replay_with_a_replaced_record_finds_nothing(self):
        estimator = model(steps=3, adjacency="replace")

        def fitted(data):
            return attributes(clone(estimator).fit(*data))

        other = X.copy(), Y.copy()
        other[0][7], other[1][7] = -9 * X[7], (Y[7] + 1) % 3
        found = replay(fitted, (X, Y), other, claim=estimator.fit(X, Y).loss_)
        assert found.passed, str(found)

    @pytest.mark.parametrize("broken", ["row", "label"])
    def test_record_that_does_not_count_changes_no_bit(self, broken):
        rows, labels = np.vstack([[[0.1, 0.2, 0.3]], X]), np.append([1], Y)
        if broken == "row":
            rows[0, 1] = np.nan
        else:
            labels[0] = 17
        found = [
            attributes(model(steps=3, generator=SeededForExperiments(1)).fit(*data))
            for data in ((rows, labels), (X, Y))
        ]
        assert np.array_equal(*found)

    @pytest.mark.slow
    def test_sequential_audit_does_not_refute_it(self):
        def run(with_record, seed):
            rows, labels = np.full((6, 1), -0.1), np.array([0, 1] * 3)
            if with_record:
                rows, labels = np.vstack([rows, [[1.0]]]), np.append(labels, 1)
            fitted = PrivateLogisticRegression(
                classes=[0, 1],
                feature_norm=1.0,
                epsilon=4.0,
                delta=1e-3,
                fit_intercept=False,
                steps=1,
                generator=SeededForExperiments(seed),
            ).fit(rows, labels)
            return fitted.coef_.ravel()

        claimed = taut.gaussian(1 / gaussian_mu(4.0, 1e-3))
        assert refute_training(run, claimed=claimed, delta=1e-3, most_runs=1000, seed=0).passed


class TestArguments:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"classes": None}, "classes must be given"),
            ({"feature_norm": None}, "feature_norm must be given"),
            ({"feature_norm": math.nan}, "feature_norm"),
            ({"feature_norm": 1e200}, "1e90"),
            ({"clip": 0.0}, "clip"),
            ({"steps": 0}, "steps"),
            ({"epsilon": -1.0}, "epsilon"),
        ],
    )
    def test_bad_one_is_refused(self, settings, message):
        with pytest.raises(ValueError, match=message):
            model(**settings).fit(X, Y)

    def test_relation_without_a_proof_is_refused(self):
        with pytest.raises(AdjacencyMismatch, match="zero_out"):
            model(adjacency="zero_out").fit(X, Y)

    def test_promise_that_no_noise_keeps_is_refused(self):
        with pytest.raises(InfeasibleBudget):
            model(epsilon=1e-300, delta=1e-300).fit(X, Y)

    def test_more_records_get_more_steps(self):
        few, many = (
            GradientDescent(1.0, 1e-6, 3, 1.0, None, Adjacency.REPLACE)._lengths(float(n))
            for n in (100, 1e6)
        )
        assert few[1] == 20
        assert many == (40.0, 100)


def test_fit_takes_few_copies_of_the_table():
    assert peak_in_tables(model(steps=2)) < 4
