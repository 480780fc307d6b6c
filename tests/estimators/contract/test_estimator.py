"""The base of all estimators."""

import numpy as np
import pytest
from sklearn.base import clone

import taut
from taut.accounting import PrivacyFilter, PrivacyOdometer, Promise
from taut.errors import AdjacencyMismatch, BudgetExceeded
from taut.estimators._contract.estimator import PrivateEstimator
from taut.estimators._contract.inputs import features, features_and_targets, refuse_weights
from taut.noise import SeededForExperiments


class Fitted(PrivateEstimator):
    def __init__(
        self, epsilon=1.0, delta=1e-6, adjacency="add_remove", ledger=None, generator=None
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.ledger = ledger
        self.generator = generator

    def fit(self, X, y=None):
        features(self, X, reset=True)
        self._begin(taut.gaussian(sigma=5))
        return self


def test_fit_says_what_it_promises():
    fitted = Fitted().fit([[1.0], [2.0]])
    assert fitted.loss_ == taut.gaussian(sigma=5)
    assert fitted.promise_ == Promise(taut.gaussian(sigma=5), 1e-6)


def test_seeded_fit_is_not_called_secure():
    fitted = Fitted(generator=SeededForExperiments(seed=1)).fit([[1.0]])
    assert not fitted.promise_.is_secure
    assert "seed" in str(fitted.promise_)


@pytest.mark.parametrize("kind", [PrivacyFilter, PrivacyOdometer])
def test_clones_share_the_ledger(kind):
    budget = kind(epsilon=3.0, delta=1e-6) if kind is PrivacyFilter else kind(delta=1e-6)
    estimator = Fitted(ledger=budget)
    assert clone(estimator).ledger is budget


def test_fit_beyond_the_ledger_is_refused():
    budget = PrivacyFilter(epsilon=1.2, delta=1e-6)
    estimator = Fitted(ledger=budget).fit([[1.0]])
    second = clone(estimator)
    with pytest.raises(BudgetExceeded):
        second.fit([[1.0]])
    assert not hasattr(second, "loss_")


def test_what_is_no_ledger_is_refused():
    with pytest.raises(TypeError, match="spend"):
        Fitted(ledger=object()).fit([[1.0]])


def test_relation_without_a_proof_is_refused():
    with pytest.raises(AdjacencyMismatch, match="'replace'"):
        Fitted()._relation(taut.Adjacency.REPLACE)


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf, 1e308])
def test_inputs_pass_whatever_they_hold(entry):
    table = features(Fitted(), [[entry, 1.0]], reset=True)
    assert table.shape == (1, 2)
    X, y = features_and_targets(Fitted(), [[entry, 1.0]], [entry], numeric=True)
    assert X.shape == (1, 2)
    assert y.shape == (1,)


def test_targets_are_needed():
    with pytest.raises(ValueError, match="requires y"):
        features_and_targets(Fitted(), [[1.0]], None, numeric=True)


def test_targets_must_be_as_many_as_rows():
    with pytest.raises(ValueError, match="one entry for every row of X"):
        features_and_targets(Fitted(), [[1.0]], [1.0, 2.0], numeric=False)


@pytest.mark.parametrize("shape", [(4321,), (4321, 2), (4321, 2, 2), (4321, 0)])
def test_messages_about_shapes_do_not_tell_the_number_of_records(shape):
    X = np.zeros(shape)
    with pytest.raises(ValueError, match=r"2D array|every row|0 feature") as refusal:
        features_and_targets(Fitted(), X, np.zeros(4322), numeric=True)
    assert "432" not in str(refusal.value)


@pytest.mark.parametrize("numeric", [True, False])
def test_targets_of_two_columns_are_refused_without_the_number_of_records(numeric):
    with pytest.raises(ValueError, match="one entry per record, got 2 axes"):
        features_and_targets(Fitted(), np.zeros((4321, 2)), np.zeros((4321, 2)), numeric=numeric)


def test_weights_are_refused():
    refuse_weights(None)
    with pytest.raises(ValueError, match="sample_weight"):
        refuse_weights(np.ones(2))


def test_promise_needs_a_loss():
    with pytest.raises(TypeError, match="loss"):
        Promise(3, 1e-6)


def test_promise_has_a_statement_that_can_be_verified():
    from taut.audit import verify_statement

    assert verify_statement(Promise(taut.gaussian(sigma=5), 1e-6).statement).holds
