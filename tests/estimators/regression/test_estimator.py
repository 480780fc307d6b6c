"""Linear models as people use them: bounds, bad rows, budgets, pipelines."""

import pickle
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from taut.accounting import PrivacyFilter
from taut.audit import replay, verify_statement
from taut.errors import BudgetExceeded
from taut.estimators import PrivateLinearRegression, PrivateRidge
from taut.noise import SeededForExperiments

RANDOM = np.random.default_rng(5)
X = RANDOM.uniform(-1, 1, (4000, 3))
Y = X @ [1.0, -0.5, 0.25] + 0.3 + 0.1 * RANDOM.standard_normal(4000)
BOUNDS = {"bounds": (-1, 1), "target_bound": 2.5}


def seeded(kind=PrivateLinearRegression, **settings):
    return kind(**{**BOUNDS, "generator": SeededForExperiments(3), **settings})


class TestUnits:
    @pytest.mark.parametrize("fit_intercept", [True, False])
    @pytest.mark.parametrize("kind", [PrivateLinearRegression, PrivateRidge])
    def test_without_noise_it_is_least_squares(self, kind, fit_intercept):
        model = seeded(
            kind,
            epsilon=1e5,
            method="ssp",
            fit_intercept=fit_intercept,
            bounds=([-1, -2, -3], [2, 1, 1.5]),
            target_bound=(-2.0, 4.0),
        ).fit(X, Y)
        design = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
        if kind is PrivateRidge:
            penalty = np.diag([1.0, 1, 1, 0][: design.shape[1]])
            best = np.linalg.solve(design.T @ design + penalty, design.T @ Y)
        else:
            best = np.linalg.lstsq(design, Y, rcond=None)[0]
        found = np.append(model.coef_, model.intercept_)[: design.shape[1]]
        assert found == pytest.approx(best, abs=2e-3)
        assert fit_intercept or model.intercept_ == 0

    def test_rows_beyond_their_norm_are_scaled_down(self):
        model = seeded(epsilon=1e5, method="ssp", bounds=None, feature_norm=0.5)
        model.fit(X, Y)
        short = X * np.minimum(1, 0.5 / np.linalg.norm(X, axis=1))[:, None]
        design = np.column_stack([short, np.ones(len(X))])
        best = np.linalg.lstsq(design, Y, rcond=None)[0]
        assert np.append(model.coef_, model.intercept_) == pytest.approx(best, abs=3e-3)

    def test_penalty_counts_in_units_of_the_columns(self):
        model = seeded(PrivateRidge, alpha=300.0, epsilon=1e5, method="ssp", bounds=(-9, 9))
        centred = X - X.mean(axis=0)
        best = np.linalg.solve(centred.T @ centred + 300 * np.eye(3), centred.T @ Y)
        assert model.fit(X, Y).coef_ == pytest.approx(best, abs=2e-2)


class TestBadRows:
    @pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf])
    def test_count_as_zero(self, entry):
        spoilt = np.vstack([X, np.full((50, 3), entry), np.ones((1, 3))])
        targets = np.concatenate([Y, np.ones(50), [entry]])
        found, wanted = (seeded().fit(*data) for data in ((spoilt, targets), (X, Y)))
        assert np.array_equal(found.coef_, wanted.coef_)

    @pytest.mark.parametrize("size", [1e308, -1e308, 5e-324])
    @pytest.mark.parametrize("limits", [{"bounds": (-1, 1)}, {"bounds": None, "feature_norm": 0.1}])
    def test_large_ones_are_cut(self, size, limits):
        model = seeded(**limits).fit(np.full((20, 3), size), np.full(20, size))
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.predict(np.zeros((1, 3)))).all()

    def test_rank_deficient_designs_and_constant_columns_are_fitted(self):
        table = np.column_stack([X[:, 0], X[:, 0], np.ones(len(X))])
        assert np.isfinite(seeded().fit(table, Y).coef_).all()


class TestPromise:
    @pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
    def test_keeps_epsilon(self, adjacency):
        model = seeded(adjacency=adjacency, epsilon=0.7, generator=None).fit(X, Y)
        assert model.loss_.epsilon(delta=1e-6) <= 0.7
        assert str(model.loss_.adjacency) == adjacency
        assert verify_statement(model.promise_.statement).holds

    def test_ledger_pays_before_anything_is_released(self):
        ledger = PrivacyFilter(epsilon=1.2, delta=1e-6)
        model = seeded(ledger=ledger).fit(X, Y)
        second = clone(model)
        with pytest.raises(BudgetExceeded):
            second.fit(X, Y)
        assert not hasattr(second, "coef_")

    @pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
    @pytest.mark.parametrize("record", [0, 7])
    def test_neighbours_differ_by_no_more_than_declared(self, adjacency, record):
        rows, targets = X[:30].copy(), Y[:30].copy()
        rows[record], targets[record] = [-1.0, 1.0, 1.0], 9.0
        if adjacency == "replace":
            others, other_targets = rows.copy(), targets.copy()
            others[record], other_targets[record] = [1.0, 1.0, 1.0], -9.0
        else:
            others, other_targets = (np.delete(one, record, axis=0) for one in (rows, targets))

        def fit(data):
            return PrivateLinearRegression(adjacency=adjacency, **BOUNDS).fit(*data).coef_

        assert replay(fit, (rows, targets), (others, other_targets)).passed

    def test_noise_is_fresh(self):
        first, second = (PrivateLinearRegression(**BOUNDS).fit(X, Y) for _ in range(2))
        assert (first.coef_ != second.coef_).all()
        assert first.promise_.is_secure


class TestContract:
    def test_pipelines_clones_and_pickles(self):
        pipeline = make_pipeline(FunctionTransformer(), seeded())
        again = pickle.loads(pickle.dumps(clone(pipeline).fit(X, Y)))
        model = pipeline.fit(X, Y)
        assert np.array_equal(again.predict(X), model.predict(X))
        assert model.score(X, Y) > 0.5

    def test_names_of_columns_are_kept(self):
        pandas = pytest.importorskip("pandas")
        model = seeded().fit(pandas.DataFrame(X, columns=["a", "b", "c"]), Y)
        assert list(model.feature_names_in_) == ["a", "b", "c"]
        assert model.n_features_in_ == 3

    def test_says_what_was_chosen(self):
        model = seeded(method="zero").fit(X, Y)
        assert model.method_ == "zero"
        assert "centre" in model.why_
        assert not model.coef_.any()
        assert model.loss_.epsilon(delta=0) == 0


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coefficients_are_the_functions_that_intervals_take(fit_intercept):
    bounds = ([0.0, -2.0, 10.0], [1.0, 2.0, 20.0])
    made = seeded(bounds=bounds, target_bound=(-1.0, 5.0), fit_intercept=fit_intercept)._units(3)
    found = np.array([0.5, -0.25, 0.1, 0.3])[: 3 + fit_intercept]
    functions, constant = made.functions()
    slopes, intercept = made.coefficients(found)
    assert [*slopes, intercept - constant] == pytest.approx(functions @ found)


def test_wide_tables_need_no_square_of_their_columns():
    rows = np.ones((2, 20_000))
    tracemalloc.start()
    model = seeded(method="zero").fit(rows, [1.0, 2.0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.coef_.shape == (20_000,)
    assert peak < 100 * rows.nbytes


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"bounds": None}, "feature_norm or bounds"),
            ({"target_bound": None}, "target_bound"),
            ({"target_bound": (1.0, -1.0)}, "lower"),
            ({"target_bound": (1.0, 2.0, 3.0)}, "pair"),
            ({"target_bound": np.nan}, "target_bound"),
            ({"target_bound": np.array(3.0)}, "target_bound"),
            ({"target_bound": "3"}, "target_bound must be a real number"),
            ({"target_bound": 1e40}, "other units"),
            ({"bounds": (1, -1)}, "below"),
            ({"bounds": ([0, 0, 0], [1, 0, 1])}, "constant"),
            ({"bounds": 3}, "pair"),
            ({"bounds": (0, [1, 1])}, "per column"),
            ({"bounds": (0, np.inf)}, "finite"),
            ({"feature_norm": -1.0}, "feature_norm"),
            ({"method": "best"}, "'auto'"),
            ({"epsilon": 0.0}, "epsilon"),
        ],
    )
    def test_of_settings(self, settings, words):
        with pytest.raises(ValueError, match=words):
            seeded(**settings).fit(X, Y)

    def test_of_penalties(self):
        with pytest.raises(ValueError, match="alpha"):
            seeded(PrivateRidge, alpha=-1.0).fit(X, Y)

    def test_of_weights(self):
        with pytest.raises(ValueError, match="sample_weight"):
            seeded().fit(X, Y, sample_weight=np.ones(len(X)))
        with pytest.raises(TypeError, match="groups"):
            seeded().fit(X, Y, groups=Y)
