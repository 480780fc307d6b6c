"""Gaussian naive Bayes: accuracy, the price of many classes, labels and priors."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from taut.accounting import PrivacyLoss
from taut.audit import replay
from taut.estimators import PrivateGaussianNB
from taut.estimators._columns.moments import columns_release


def blobs(records=20_000, classes=3):
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=records)
    return rng.normal(labels[:, None] * [1.0, -0.5], [0.4, 0.8]), labels


def test_much_data_give_the_model_of_scikit_learn():
    rows, labels = blobs()
    private = PrivateGaussianNB(classes=range(3), bounds=(-5, 5), epsilon=2.0).fit(rows, labels)
    plain = GaussianNB().fit(rows, labels)
    np.testing.assert_allclose(private.theta_, plain.theta_, atol=0.05)
    np.testing.assert_allclose(private.var_, plain.var_, atol=0.05)
    np.testing.assert_allclose(private.class_prior_, plain.class_prior_, atol=0.01)
    assert np.mean(private.predict(rows) == plain.predict(rows)) > 0.98
    np.testing.assert_allclose(private.predict_proba(rows).sum(axis=1), 1.0)


def test_classes_cost_what_one_does():
    one = columns_release(np.zeros(2), np.ones(2), epsilon=1.0, delta=0.0)
    fitted = PrivateGaussianNB(classes=range(7), bounds=(0, 1), delta=0.0)
    loss = fitted.fit(np.full((5, 2), 0.5), np.arange(5)).loss_
    assert isinstance(loss, PrivacyLoss)
    assert loss == one.loss


def test_one_record_reaches_one_class_alone():
    rows, labels = blobs(40)

    def fit(data):
        return PrivateGaussianNB(classes=range(3), bounds=(-5, 5)).fit(*data).theta_

    result = replay(fit, (rows, labels), (rows[:-1], labels[:-1]), adjacency="add_remove")
    assert result.passed
    moved = PrivateGaussianNB(classes=range(3), bounds=(-5, 5)).fit(rows, labels).loss_
    claimed = replay(
        fit, (rows, labels), (rows[:-1], labels[:-1]), adjacency="add_remove", claim=moved
    )
    assert claimed.passed


@pytest.mark.parametrize("labels", [[7, 7, 7], ["a", None, 3.0], [True, False, True]])
def test_labels_of_no_class_are_counted_nowhere(labels):
    fitted = PrivateGaussianNB(classes=["x", "y"], bounds=(0, 1), epsilon=100.0)
    fitted.fit(np.full((3, 1), 0.5), np.array(labels, dtype=object))
    assert (fitted.class_count_ < 1).all()


def test_measurements_are_no_labels():
    measured = np.array([0.0, 1.0])  # of a list, entries would decide the type
    with pytest.raises(ValueError, match="continuous"):
        PrivateGaussianNB(classes=[0, 1], bounds=(0, 1)).fit([[0.5], [0.6]], measured)
    fitted = PrivateGaussianNB(classes=[0.0, 1.0], bounds=(0, 1)).fit([[0.5], [0.6]], measured)
    assert set(fitted.predict([[0.5]])) <= {0.0, 1.0}


def test_public_priors_decide_where_rows_say_nothing():
    fitted = PrivateGaussianNB(classes=[0, 1], bounds=(0, 1), priors=[0.1, 0.9])
    fitted.fit([[0.5], [0.5]], [0, 1])
    assert fitted.predict([[np.nan], [np.inf]]).tolist() == [1, 1]
    np.testing.assert_allclose(fitted.predict_proba([[np.nan]]), [[0.1, 0.9]])


def test_priors_have_the_order_of_the_classes_that_are_listed():
    priors = np.array([0.7, 0.1, 0.2])
    fitted = PrivateGaussianNB(classes=["b", "c", "a"], bounds=(0, 1), priors=priors)
    fitted.fit([[0.5], [0.5]], ["a", "b"])
    assert dict(zip(fitted.classes_, fitted.class_prior_, strict=True)) == {
        "a": 0.2,
        "b": 0.7,
        "c": 0.1,
    }
    priors[:] = 0.0
    assert fitted.class_prior_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("priors", [[0.5, 0.6], [1.0], [1.0, 0.0], [0.5, np.nan], ["a", "b"]])
def test_priors_that_are_none_are_refused(priors):
    with pytest.raises(ValueError, match="priors"):
        PrivateGaussianNB(classes=[0, 1], bounds=(0, 1), priors=priors).fit([[0.5]], [0])
