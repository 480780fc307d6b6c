"""Principal components: the noise of the moments, the subspace, and what is refused."""

import numpy as np
import pytest
from estimators.contract.examples import peak_in_tables
from sklearn.decomposition import PCA

from taut.accounting import Adjacency, gaussian_mu
from taut.errors import AdjacencyMismatch
from taut.estimators import PrivatePCA
from taut.estimators._components.entrywise import entrywise_moments
from taut.estimators._components.moments import joint_moments
from taut.noise import SeededForExperiments


def fully_random(seed, columns=100, records=1000, rank=10):
    """Return a random subspace, and unit rows in it (Muthukrishnan and Kalyani 2025, VI-B)."""
    rng = np.random.default_rng(seed)
    subspace, _ = np.linalg.qr(rng.normal(size=(columns, rank)))
    weights = rng.normal(size=(records, rank))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    return subspace, weights @ subspace.T


def recovery_error(subspace, components):
    return np.linalg.norm(subspace - components.T @ (components @ subspace)) / np.linalg.norm(
        subspace
    )


def test_noise_on_and_beside_the_diagonal():
    moments = joint_moments(
        3, 1.0, with_mean=False, epsilon=1.0, delta=1e-6, adjacency=Adjacency.REPLACE
    )
    alone = joint_moments(
        3, 1.0, with_mean=False, epsilon=1.0, delta=1e-6, adjacency=Adjacency.ADD_REMOVE
    )
    mu = gaussian_mu(1.0, 1e-6)
    scales = moments.mechanism.entry_scales
    assert scales[0, 0] == pytest.approx(np.sqrt(2) * 4.224678889326835, rel=1e-8)
    assert scales[0, 1] == pytest.approx(np.sqrt(2) * 2.9872990909786568, rel=1e-8)
    # Under add/remove the count takes a share: 0.5 of 0.5 + sqrt(6).
    share = np.sqrt(6) / (0.5 + np.sqrt(6))
    assert alone.mechanism.entry_scales[0, 0] == pytest.approx(1 / (mu * np.sqrt(share)), rel=1e-8)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.parametrize("with_mean", [False, True])
def test_no_record_moves_the_moments_by_more_than_the_budget(adjacency, with_mean):
    moments = joint_moments(
        4, 2.0, with_mean=with_mean, epsilon=1.0, delta=1e-6, adjacency=adjacency
    )
    scales = moments.mechanism.entry_scales[np.triu_indices(5)]
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(300):
        one, other = (
            np.append(2 * row / np.linalg.norm(row), 1.0) for row in rng.normal(size=(2, 4))
        )
        other = np.append(-one[:4], 1.0) if rng.random() < 0.3 else other
        moved = np.outer(one, one) - (np.outer(other, other) if adjacency == "replace" else 0)
        ratios = moved[np.triu_indices(5)][scales > 0] / scales[scales > 0]
        worst = max(worst, float(np.linalg.norm(ratios)))
    assert worst <= gaussian_mu(1.0, 1e-6)
    assert moments.loss.epsilon(delta=1e-6) <= 1.0


@pytest.mark.parametrize(("epsilon", "most"), [(1, 0.29), (2, 0.16), (5, 0.07)])
def test_subspace_of_the_fully_random_model(epsilon, most):
    errors = []
    for seed in range(4):
        subspace, rows = fully_random(seed)
        pca = PrivatePCA(
            10,
            row_norm=1.0,
            mean=None,
            epsilon=epsilon,
            generator=SeededForExperiments(seed=seed),
        )
        errors.append(recovery_error(subspace, pca.fit(rows).components_))
    assert np.mean(errors) <= most


@pytest.mark.parametrize("mean", ["private", "public"])
def test_much_data_give_the_components_of_scikit_learn(mean):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(100_000, 4)) * [0.2, 0.1, 0.05, 0.02] + [0.1, 0.2, 0.0, 0.0]
    centre = "private" if mean == "private" else [0.1, 0.2, 0.0, 0.0]
    private = PrivatePCA(2, row_norm=1.5, mean=centre, epsilon=5.0).fit(rows)
    plain = PCA(2).fit(rows)
    assert recovery_error(plain.components_.T, private.components_) < 0.05
    np.testing.assert_allclose(private.explained_variance_, plain.explained_variance_, rtol=0.05)
    np.testing.assert_allclose(private.mean_, plain.mean_, atol=0.01)
    np.testing.assert_allclose(
        private.explained_variance_ratio_, plain.explained_variance_ratio_, atol=0.02
    )


def test_inverse_transform_returns_projected_rows():
    rows = np.random.default_rng(4).normal(size=(50, 3)) * 0.2
    pca = PrivatePCA(3, row_norm=1.0).fit(rows)
    np.testing.assert_allclose(pca.inverse_transform(pca.transform(rows)), rows, atol=1e-12)
    with pytest.raises(ValueError, match="3 columns"):
        pca.inverse_transform(rows[:, :2])


def test_entrywise_clipping_costs_a_subspace_without_noise():
    moments = entrywise_moments(100, 1.0, epsilon=1e6, delta=0.1)
    subspace, rows = fully_random(0)
    found = moments.release(rows, None).matrix
    assert 0.1 < recovery_error(subspace, np.linalg.eigh(found)[1][:, -10:].T) < 0.15


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.3), (0.001, 1e-20), (100.0, 1e-6)])
def test_entrywise_release_keeps_its_promise_to_the_last_digit(epsilon, delta):
    for columns in (2, 3, 30):
        moments = entrywise_moments(columns, 1.0, epsilon=epsilon, delta=delta)
        assert moments.loss.epsilon(delta=delta) <= epsilon


def test_entrywise_release_has_the_scales_of_the_paper():
    moments = entrywise_moments(4, 1.0, epsilon=1.0, delta=1e-6)
    widths = moments.mechanism.sensitivity.widths
    np.testing.assert_allclose(widths[:2], [1 / np.sqrt(10), 1 / np.sqrt(20)], rtol=1e-5)
    expected = np.sqrt(widths * widths.sum()) / gaussian_mu(1.0, 1e-6)
    np.testing.assert_allclose(moments.mechanism.scales, expected, rtol=1e-9)
    fitted = PrivatePCA(2, row_norm=1.0, mean=None, noise="entrywise").fit(np.eye(4))
    assert fitted.loss_ == moments.loss


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 4}, "n_components"),
        ({"mean": "median"}, "mean"),
        ({"mean": [0.0, 1.0]}, "mean"),
        ({"mean": [0.0, 1.0, np.nan]}, "mean"),
        ({"noise": "none"}, "noise"),
        ({"noise": "entrywise"}, "mean must be"),
        ({"row_norm": -1.0}, "row_norm"),
        ({"row_norm": 1e35}, "row_norm must be between"),
        ({"row_norm": 1e-35}, "row_norm must be between"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    pca = PrivatePCA(**{"row_norm": 1.0, **settings})
    with pytest.raises(ValueError, match=message):
        pca.fit(np.eye(3))


def test_entrywise_noise_has_no_proof_for_replacement():
    pca = PrivatePCA(row_norm=1.0, mean=None, noise="entrywise", adjacency=Adjacency.REPLACE)
    with pytest.raises(AdjacencyMismatch):
        pca.fit(np.eye(3))


def test_wide_tables_are_refused_by_entrywise_noise():
    with pytest.raises(ValueError, match="512 columns"):
        entrywise_moments(513, 1.0, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    ("noise", "tables"), [("symmetric", 2.0), ("entrywise", 2.5), ("eigengap", 4.0)]
)
def test_fit_takes_few_copies_of_the_table(noise, tables):
    pca = PrivatePCA(2, row_norm=5.0, mean=np.zeros(50), noise=noise)
    assert peak_in_tables(pca) < tables
