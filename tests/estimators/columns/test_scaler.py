"""Standardised columns: accuracy, noise that is counted, constant columns."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from taut.errors import AdjacencyMismatch
from taut.estimators import PrivateStandardScaler
from taut.estimators._columns.moments import columns_release


def test_much_data_give_the_scaling_of_scikit_learn():
    rows = np.random.default_rng(0).normal([50, 2], [10, 1], size=(50_000, 2))
    private = PrivateStandardScaler(bounds=([0, -5], [100, 9]), epsilon=1.0).fit(rows)
    plain = StandardScaler().fit(rows)
    np.testing.assert_allclose(private.mean_, plain.mean_, rtol=0.01)
    np.testing.assert_allclose(private.scale_, plain.scale_, rtol=0.01)
    assert private.count_ == pytest.approx(50_000, rel=0.01)


def test_errors_are_those_that_the_noise_predicts():
    release = columns_release(np.zeros(1), np.full(1, 10.0), epsilon=1.0, delta=0.0)
    rows = np.linspace(2, 8, 1000)[:, None]
    means = np.array([release.release(rows, None).means[0] for _ in range(400)])
    errors = release.mechanism.coordinate_errors()
    predicted = 5 * np.sqrt(errors[1]) / 1000  # the mean is near the middle: the count is no matter
    assert means.std() == pytest.approx(predicted, rel=0.2)
    assert means.mean() == pytest.approx(5.0, abs=4 * predicted / 20)


@pytest.mark.parametrize("records", [0, 1, 5000])
def test_constant_columns_are_scaled_by_what_noise_hides(records):
    rows = np.full((max(records, 1), 2), 3.0)
    scaler = PrivateStandardScaler(bounds=(0.0, 10.0)).fit(rows)
    assert (scaler.scale_ > 0).all()
    assert (np.abs(scaler.transform(rows)) < 10).all()
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(rows)), rows)


def test_promise_without_delta():
    scaler = PrivateStandardScaler(bounds=(0, 1), epsilon=0.5, delta=0.0).fit([[0.2], [0.8]])
    assert scaler.loss_.epsilon(delta=0.0) <= 0.5


def test_relation_without_a_release_is_refused():
    with pytest.raises(AdjacencyMismatch):
        PrivateStandardScaler(bounds=(0, 1), adjacency="replace").fit([[0.5]])


@pytest.mark.parametrize("bounds", [None, ([0, 0], [1]), (0, 1, 2), "ab", ([0, 0, 0], 1)])
def test_bounds_of_another_shape_are_refused(bounds):
    with pytest.raises((TypeError, ValueError), match="bounds"):
        PrivateStandardScaler(bounds=bounds).fit([[0.5, 0.5]])


def test_unknown_arguments_of_a_fit_are_refused():
    with pytest.raises(TypeError, match="'weight'"):
        PrivateStandardScaler(bounds=(0, 1)).fit([[0.5]], weight=1)
