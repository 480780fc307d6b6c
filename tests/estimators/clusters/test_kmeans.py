"""Clusters: centres near those without noise, records that reach one cell and one cluster."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from taut.accounting import gaussian
from taut.audit import replay
from taut.estimators import PrivateKMeans
from taut.estimators._contract.row_wise import nearest, projected


def blobs(records=6000, columns=5, clusters=4):
    rng = np.random.default_rng(0)
    centres = rng.uniform(-3, 3, size=(clusters, columns))
    labels = rng.integers(clusters, size=records)
    return np.clip(rng.normal(centres[labels], 0.4), -5, 5)


def inertia(rows, centres):
    return ((rows[:, None] - centres) ** 2).sum(axis=2).min(axis=1).mean()


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_clear_clusters_are_found(columns):
    rows = blobs(columns=columns)
    private = PrivateKMeans(4, bounds=(-5, 5), epsilon=2.0).fit(rows)
    best = KMeans(4, n_init=5, random_state=0).fit(rows)
    assert inertia(rows, private.cluster_centers_) < 1.2 * inertia(rows, best.cluster_centers_)


def test_columns_of_other_units_keep_their_distances():
    rows = blobs(columns=2) * [1.0, 1000.0] + [7.0, 0.0]
    private = PrivateKMeans(4, bounds=([2, -5000], [12, 5000]), epsilon=2.0).fit(rows)
    best = KMeans(4, n_init=5, random_state=0).fit(rows)
    assert inertia(rows, private.cluster_centers_) < 1.2 * inertia(rows, best.cluster_centers_)


@pytest.mark.parametrize("columns", [2, 5])
def test_releases_that_see_a_record_cost_what_is_said(columns):
    rows = blobs(200, columns)
    rows[-1] = 5.0
    fit = PrivateKMeans(3, bounds=(-5, 5)).fit
    cost = fit(rows).loss_
    result = replay(lambda table: fit(table).cluster_centers_, rows, rows[:-1], claim=cost)
    assert result.passed
    assert result.exercised
    cheaper = gaussian(1.05 * cost.terms[0][0].sigma)
    result = replay(lambda table: fit(table).cluster_centers_, rows, rows[:-1], claim=cheaper)
    assert not result.passed


def test_rows_do_not_depend_on_each_other():
    rng = np.random.default_rng(1)
    rows, axes = rng.normal(size=(1000, 37)), rng.normal(size=(37, 3))
    for start, end in ((0, 999), (1, 1000), (17, 18), (500, 503)):
        assert np.array_equal(projected(rows, axes)[start:end], projected(rows[start:end], axes))
        assert np.array_equal(nearest(rows, axes.T)[start:end], nearest(rows[start:end], axes.T))
    np.testing.assert_allclose(projected(rows, axes), rows @ axes)


def test_distances_are_those_to_the_centres():
    rows = blobs(50)
    fitted = PrivateKMeans(3, bounds=(-5, 5)).fit(rows)
    distances = fitted.transform(rows)
    np.testing.assert_allclose(
        distances.min(axis=1) ** 2 @ np.ones(50) / 50, inertia(rows, fitted.cluster_centers_)
    )
    assert np.array_equal(distances.argmin(axis=1), fitted.predict(rows))
    assert fitted.fit_predict(rows).shape == (50,)
    assert not hasattr(fitted, "labels_")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": 1001}, "1000"),
        ({"n_steps": 0}, "n_steps"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PrivateKMeans(**{"bounds": (0, 1), **settings}).fit([[0.5]])


@pytest.mark.parametrize("records", [1, 3])
def test_fewer_records_than_clusters(records):
    fitted = PrivateKMeans(50, bounds=(0, 1)).fit(np.full((records, 4), 0.5))
    assert fitted.cluster_centers_.shape == (50, 4)
    assert ((fitted.cluster_centers_ >= 0) & (fitted.cluster_centers_ <= 1)).all()


def test_score_is_minus_the_sum_of_squares_of_rows_that_are_numbers():
    rows = blobs(records=50, columns=2)
    private = PrivateKMeans(4, bounds=(-5, 5), epsilon=2.0).fit(rows)
    expected = -50 * inertia(rows, private.cluster_centers_)
    broken = np.vstack([rows, [[np.nan, 1.0], [np.inf, 1.0]]])
    assert private.score(broken) == private.score(rows) == pytest.approx(expected)
