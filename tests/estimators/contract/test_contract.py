"""What every exported estimator keeps, found by name: new ones are covered by construction."""

import pickle
import threading
import warnings

import numpy as np
import pytest
from estimators.contract.examples import COLUMNS, NAMES, data, example, learned, parameters
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from taut.audit import replay, verify_statement
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.estimators._contract.estimator import PrivateEstimator
from taut.noise import RandomSource, SeededForExperiments

EXTREME = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-308]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def fitted(name, rows, labels, **changes):
    return example(name, **changes).fit(rows, labels)


def published(name):
    """Return what a fit publishes, as a function of a table whose last column holds labels."""

    def fit(table):
        return learned(fitted(name, table[:, :-1], table[:, -1].astype(int)))

    return fit


def table():
    rows, labels = data()
    return np.column_stack([rows, labels])


def finite(estimator):
    arrays = [value for value in learned(estimator).values() if isinstance(value, np.ndarray)]
    return all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")


def test_estimator_shares_the_base_and_its_arguments(name):
    assert isinstance(example(name), PrivateEstimator)
    assert {"epsilon", "delta", "adjacency", "ledger", "generator"} <= set(parameters(name))


def test_clone_has_the_same_parameters(name):
    estimator = example(name, epsilon=2.5)
    assert clone(estimator).get_params().keys() == estimator.get_params().keys()
    assert clone(estimator).epsilon == 2.5


def test_fit_leaves_parameters_alone(name):
    estimator = example(name)
    before = estimator.get_params()
    estimator.fit(*data())
    assert estimator.get_params() == before


@pytest.mark.parametrize("entry", [0.5, 1e308, np.nan])
def test_replay_with_a_record_removed(name, entry):
    rows = table()
    rows[-1, :-1] = entry
    result = replay(published(name), rows, rows[:-1], claim=fitted(name, *data()).loss_)
    assert result.passed, result
    assert result.exercised == bool(np.isfinite(entry)) or np.isnan(entry)


@pytest.mark.parametrize("entry", [*EXTREME, -1.4])
def test_replay_with_a_record_replaced(name, entry):
    rows, other = table(), table()
    other[-1, :-1] = entry
    assert replay(published(name), rows, other).passed


def test_replay_with_a_label_changed(name):
    rows, other = table(), table()
    other[-1, -1] = 17.0
    assert replay(published(name), rows, other).passed


def test_broken_rows_raise_no_warning_and_leave_finite_results(name):
    rows, labels = data()
    rows[: len(EXTREME), 0] = EXTREME
    rows[len(EXTREME)] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert finite(fitted(name, rows, labels))


def signalling_nan(records):
    """Return a column of ones with one signalling NaN, of which a subtraction warns."""
    column = np.ones(records)
    column.view(np.uint64)[3] = 0x7FF0_0000_0000_0001
    return column


def test_nan_that_signals_raises_no_warning(name):
    rows, labels = data()
    rows[:, 0] = signalling_nan(len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(name, rows, labels)
        if is_regressor(example(name)):
            fitted(name, data()[0], signalling_nan(len(rows)))


def test_records_raise_nothing_where_errors_of_numpy_are_raised(name):
    rows, labels = data()
    rows[: len(EXTREME), 0] = EXTREME
    rows[-1] = 1e-308
    with np.errstate(all="raise"):
        estimator = fitted(name, rows, labels)
        for answer in ANSWERS:
            if hasattr(estimator, answer):
                getattr(estimator, answer)(rows)


def test_all_rows_broken(name):
    rows, labels = data()
    assert finite(fitted(name, np.full_like(rows, np.nan), labels))


def test_constant_columns(name):
    rows, labels = data()
    assert finite(fitted(name, np.ones_like(rows), labels))


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_or_one_value(name, label):
    rows, labels = data()
    assert finite(fitted(name, rows, np.full_like(labels, label)))


def test_weights_are_refused_with_the_reason(name):
    rows, labels = data()
    with pytest.raises((TypeError, ValueError), match="sample_weight"):
        example(name).fit(rows, labels, sample_weight=np.ones(len(rows)))


def test_promise_is_kept_and_verified(name):
    estimator = fitted(name, *data(), epsilon=1.5, delta=1e-5)
    assert estimator.loss_.epsilon(delta=1e-5) <= 1.5
    assert estimator.promise_.delta == 1e-5
    assert verify_statement(estimator.promise_.statement).holds


def test_pickle_holds_no_data(name):
    few, many = (fitted(name, *data(records)) for records in (60, 600))
    bytes_of_few, bytes_of_many = pickle.dumps(few), pickle.dumps(many)
    assert len(bytes_of_many) < len(bytes_of_few) + 600
    rows, _ = data(600)
    assert not any(entry.tobytes() in bytes_of_many for entry in rows.ravel())
    shown = repr(vars(many))
    written = [repr(float(entry)) for entry in rows.ravel()]
    # Entries that were clipped are short, and may occur in any number.
    assert not any(entry in shown for entry in written if len(entry) > 12)


class Ledger:
    """A budget with room for so many fits."""

    def __init__(self, room):
        self.spent = []
        self.room = room

    def spend(self, loss):
        if len(self.spent) == self.room:
            raise BudgetExceeded("nothing is left")
        self.spent.append(loss)

    def __sklearn_clone__(self):
        return self


def test_ledger_pays_before_anything_is_released(name):
    budget = Ledger(room=1)
    estimator = fitted(name, *data(), ledger=budget)
    assert budget.spent == [estimator.loss_]
    again = clone(estimator)
    with pytest.raises(BudgetExceeded):
        again.fit(*data())
    assert not learned(again).keys() & {"loss_", "promise_", "coef_", "mean_", "components_"}


class OwnLedger:
    """A ledger as somebody else may write one, of which copies would have budgets of their own."""

    def __init__(self):
        self.spent = []
        self.lock = threading.Lock()

    def spend(self, loss):
        with self.lock:
            self.spent.append(loss)


def test_clones_spend_the_same_budget_whatever_keeps_it(name):
    budget = OwnLedger()
    estimator = example(name, ledger=budget)
    if hasattr(estimator, "transform"):
        estimator.set_output(transform="default")
    assert clone(estimator).ledger is estimator.ledger is budget
    assert clone(make_pipeline(estimator))[0].ledger is budget
    assert vars(clone(estimator.fit(*data()))).keys() == vars(clone(estimator)).keys()
    if hasattr(estimator, "score"):
        cross_val_score(estimator, *data(), cv=3)
        assert len(budget.spent) == 4


class OwnSource(RandomSource):
    """A source as somebody else may write one, of which copies would go on with the same bits."""

    secure = True

    def __init__(self):
        self.bits = np.random.default_rng(0)

    def bytes(self, n):
        return self.bits.bytes(n)


def test_clones_repeat_no_noise_of_a_secure_source(name):
    estimator = example(name, generator=OwnSource())
    assert clone(estimator).generator is estimator.generator
    seeded = example(name, generator=SeededForExperiments(seed=0))
    one, other = (learned(clone(seeded).fit(*data())) for _ in range(2))
    arrays = [key for key, value in one.items() if isinstance(value, np.ndarray)]
    assert all(np.array_equal(one[key], other[key]) for key in arrays)
    assert clone(example(name, generator=0)).generator == 0


class Interrupted(SeededForExperiments):
    """Somebody loses patience while noise is drawn."""

    def bytes(self, n):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"ledger": Ledger(room=0)}, BudgetExceeded),
        ({"generator": Interrupted(seed=0)}, KeyboardInterrupt),
        ({"delta": 2.0}, ValueError),
    ],
)
def test_fit_that_fails_leaves_an_earlier_one_as_it_was(name, change, error):
    rows, labels = data()
    estimator = fitted(name, rows, labels).set_params(**change)
    before = dict(vars(estimator))
    with pytest.raises(error):
        estimator.fit(np.hstack([rows, rows]), labels)
    assert vars(estimator) == before
    answer = estimator.transform if hasattr(estimator, "transform") else estimator.predict
    assert len(answer(rows)) == len(rows)


@pytest.mark.parametrize("generator", [0, np.random.default_rng(0)])
def test_other_generators_are_refused_before_the_ledger_pays(name, generator):
    budget = Ledger(room=1)
    with pytest.raises(TypeError, match="generator must be of class RandomSource"):
        fitted(name, *data(), ledger=budget, generator=generator)
    assert not budget.spent


def test_pipeline_fits_and_answers(name):
    rows, labels = data()
    pipeline = make_pipeline(FunctionTransformer(), example(name)).fit(rows, labels)
    answer = pipeline.transform if hasattr(pipeline, "transform") else pipeline.predict
    assert len(answer(rows)) == len(rows)


ANSWERS = ("transform", "predict", "decision_function", "predict_proba", "predict_log_proba")


@pytest.mark.parametrize("order", [np.ascontiguousarray, np.asfortranarray])
@pytest.mark.parametrize("answer", ANSWERS)
def test_what_a_row_becomes_depends_on_no_other_row(name, answer, order):
    # The next step of a pipeline hides one row, not others whose last bits moved with it.
    if not hasattr(example(name), answer):
        return
    wide = order(np.random.default_rng(0).normal(size=(301, 40)))
    found = getattr(fitted(name, wide, np.arange(301) % 2), answer)
    whole = found(wide)
    for part in (slice(1, None), slice(300), slice(1), slice(7, 10), slice(None, None, -1)):
        assert np.array_equal(found(order(wide[part])), whole[part])


def test_names_of_columns_are_kept_and_checked(name):
    pandas = pytest.importorskip("pandas")
    rows, labels = data()
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
    estimator = fitted(name, frame, labels)
    assert estimator.feature_names_in_.tolist() == ["a", "b", "c"]
    answer = estimator.transform if hasattr(estimator, "transform") else estimator.predict
    with pytest.raises(ValueError, match="feature names"):
        answer(frame[["b", "a", "c"]])


def test_transformers_return_frames(name):
    pandas = pytest.importorskip("pandas")
    rows, labels = data()
    estimator = example(name)
    if not hasattr(estimator, "transform"):
        return
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
    shown = estimator.set_output(transform="pandas").fit(frame, labels).transform(frame)
    assert shown.columns.tolist() == estimator.get_feature_names_out().tolist()


def test_number_of_columns_is_checked(name):
    rows, labels = data()
    estimator = fitted(name, rows, labels)
    answer = estimator.transform if hasattr(estimator, "transform") else estimator.predict
    assert estimator.n_features_in_ == COLUMNS
    with pytest.raises(ValueError, match="features"):
        answer(rows[:, :2])


def test_public_parameters_are_required(name):
    limits = {"bounds", "feature_norm", "row_norm"} & set(parameters(name))
    limits = sorted(one for one in limits if parameters(name)[one].default is None)
    if limits:  # one of them is enough where there are several
        with pytest.raises(ValueError, match="|".join(limits)):
            fitted(name, *data(), **dict.fromkeys(limits))
    if is_classifier(example(name)):
        with pytest.raises(ValueError, match="classes"):
            fitted(name, *data(), classes=None)


@pytest.mark.parametrize("bounds", [(1.0, -1.0), (0.0, 0.0), (0.0, np.nan), (-np.inf, 1.0), 3.0])
def test_bounds_the_wrong_way_round_are_refused(name, bounds):
    if "bounds" not in parameters(name):
        return
    with pytest.raises(ValueError, match=r"bounds|lower|below"):
        fitted(name, *data(), bounds=bounds)


@pytest.mark.parametrize("bounds", [(-1e300, 1e300), (0.0, 5e-324)])
def test_bounds_whose_squares_are_no_floats_are_refused(name, bounds):
    if "bounds" not in parameters(name):
        return
    with pytest.raises(ValueError, match="bounds must be"):
        fitted(name, *data(), bounds=bounds)


@pytest.mark.parametrize("change", [{"epsilon": 0.0}, {"epsilon": np.nan}, {"delta": 1.0}])
def test_budgets_that_promise_nothing_are_refused(name, change):
    with pytest.raises(ValueError, match=next(iter(change))):
        fitted(name, *data(), **change)


def test_predictors_answer_with_what_is_public(name):
    rows, labels = data()
    estimator = fitted(name, rows, labels)
    if is_classifier(estimator):
        assert set(estimator.predict(rows)) <= {0, 1}
    elif is_regressor(estimator):
        assert np.isfinite(estimator.predict(rows)).all()


def test_logarithms_of_probabilities_are_theirs(name):
    rows, labels = data()
    if is_classifier(example(name)):
        estimator = fitted(name, rows, labels)
        expected = np.log(estimator.predict_proba(rows))
        assert estimator.predict_log_proba(rows) == pytest.approx(expected)
        assert np.isfinite(estimator.predict_log_proba(1e3 * rows)).all()


def test_searches_have_a_score_where_scikit_learn_has(name):
    rows, labels = data()
    if hasattr(example(name), "predict"):
        search = GridSearchCV(example(name), {"epsilon": [1.0, 2.0]}, cv=2).fit(rows, labels)
        assert np.isfinite(search.best_score_)


@pytest.mark.parametrize(
    "change",
    [{"alpha": 1e308}, {"clip": 1e-100}, {"clip": 1e200}, {"target_bound": (0.0, 1e-200)}],
)
def test_arguments_of_which_nothing_can_come_are_refused_before_the_ledger_pays(name, change):
    argument = next(iter(change))
    if argument in parameters(name):
        budget = Ledger(room=1)
        with pytest.raises(ValueError, match=f"{argument}|bounds must be of sizes"):
            fitted(name, *data(), ledger=budget, **change)
        assert not budget.spent


@pytest.mark.parametrize("flag", ["no", None, 2])
@pytest.mark.parametrize(
    "name",
    [
        "PrivateElasticNet",
        "PrivateLinearRegression",
        "PrivateLogisticRegression",
        "PrivateRidge",
        "PrivateSparseLogisticRegression",
    ],
)
def test_an_intercept_is_asked_for_or_not(name, flag):
    budget = Ledger(room=1)
    with pytest.raises(TypeError, match="fit_intercept must be True or False"):
        fitted(name, *data(), fit_intercept=flag, ledger=budget)
    assert not budget.spent
    fitted(name, *data(), fit_intercept=np.bool_(True))


WIDE = [("PrivateKMeans", {}), ("PrivatePCA", {}), ("PrivateLinearRegression", {"method": "ssp"})]


@pytest.mark.parametrize(("name", "settings"), WIDE)
def test_too_many_columns_are_refused_before_the_ledger_pays(name, settings):
    budget = Ledger(room=1)
    with pytest.raises(ValueError, match="rows must have at most 4096 columns"):
        fitted(name, np.zeros((4, 5000)), np.zeros(4), ledger=budget, **settings)
    assert not budget.spent


@pytest.mark.parametrize("method", ["ops_balanced", "ada_ops", "ops_ptr"])
def test_posterior_samples_refuse_too_many_columns_before_the_ledger_pays(method):
    budget, rows = Ledger(room=1), np.zeros((4, 512))
    settings = {"method": method, "adjacency": "replace", "public_data": (rows, rows[:, 0])}
    with pytest.raises(ValueError, match="512 features, got 513"):
        fitted("PrivateLinearRegression", rows, rows[:, 0], ledger=budget, **settings)
    assert not budget.spent


def test_clusters_refuse_widths_too_far_apart_before_the_ledger_pays():
    budget, (rows, labels) = Ledger(room=1), data()
    far = ([0.0, 0.0, 0.0], [1e-140, 1.0, 1e140])
    with pytest.raises(UnsoundConfiguration, match="too far apart"):
        fitted("PrivateKMeans", rows, labels, bounds=far, ledger=budget)
    assert not budget.spent


@pytest.mark.parametrize("method", ["ops_balanced", "ada_ops", "ops_ptr"])
def test_posterior_samples_refuse_penalties_before_the_ledger_pays(method):
    budget, (rows, labels) = Ledger(room=1), data()
    settings = {"method": method, "adjacency": "replace", "public_data": (rows, labels)}
    with pytest.raises(ValueError, match="penalties"):
        fitted("PrivateRidge", rows, labels, alpha=1e60, ledger=budget, **settings)
    assert not budget.spent
