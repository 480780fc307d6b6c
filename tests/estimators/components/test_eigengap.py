"""A subspace behind its gap: both ways it may go, what they cost, what is refused."""

import numpy as np
import pytest
from scipy.stats import norm

from taut.accounting import gaussian
from taut.audit import replay
from taut.estimators import PrivatePCA
from taut.estimators._components import eigengap
from taut.estimators._components.eigengap import _second_moments, eigengap_release
from taut.noise import SeededForExperiments

LARGE, SMALL = 4000, 30  # records, with a gap of about half of that


def rows(records):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(records, 4)) * [0.6, 0.6, 0.05, 0.05]
    return table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1.0)


def pca(**changes):
    settings = {"row_norm": 1.0, "mean": None, "noise": "eigengap", **changes}
    return PrivatePCA(2, **settings)


def release(**changes):
    settings = {"records": 100, "epsilon": 1.0, "delta": 1e-6, **changes}
    return eigengap_release(4, 2, 1.0, **settings)


@pytest.mark.parametrize(("records", "releases"), [(LARGE, 3), (SMALL, 2)])
def test_replay_both_ways(records, releases):
    table = rows(records)
    table[-1] = [0, 0, 1, 0]
    result = replay(lambda data: pca().fit(data).components_, table, table[:-1])
    assert result.passed
    assert result.exercised
    assert len(result.releases) == releases


def test_all_releases_together_are_within_the_promise():
    made = release()
    total = gaussian(1 / made._mu)
    assert total.delta(epsilon=1.0) + 0.1 * made.delta <= made.delta
    assert made.loss.epsilon(delta=1e-6) <= 1.0


@pytest.mark.parametrize("far", [True, False])
def test_noise_of_each_way_adds_up_to_the_budget(far):
    table = rows(LARGE if far else SMALL)
    claim = gaussian(1 / release()._mu)
    result = replay(lambda data: pca().fit(data).components_, table, table[:-1], claim=claim)
    assert result.findings == ()


def test_gap_is_overestimated_as_seldom_as_said():
    made = release(delta=0.4)  # a failure of 0.04
    noise = made._gap_noise
    scale = float(np.sqrt(noise.coordinate_errors()[0]))
    truth = 40.0
    draws = truth + scale * norm.ppf((np.arange(10_000) + 0.5) / 10_000)
    at_truth = made._reach(truth + scale * norm.isf(0.04))
    wrong = np.mean([made._reach(draw) < at_truth * (1 - 1e-6) for draw in draws])
    assert 0.035 < wrong <= 0.04


def test_large_gap_gains_over_second_moments():
    table = rows(LARGE)
    truth = np.eye(4)[:2]
    errors = {
        noise: np.mean(
            [
                np.linalg.norm(
                    truth
                    - truth
                    @ (axes := pca(noise=noise, generator=seed).fit(table).components_).T
                    @ axes
                )
                for seed in (SeededForExperiments(seed=number) for number in range(15))
            ]
        )
        for noise in ("symmetric", "eigengap")
    }
    assert errors["eigengap"] < errors["symmetric"]


def test_variances_are_those_of_the_subspace():
    fitted = pca(epsilon=5.0).fit(rows(LARGE))
    expected = np.sort(np.diag(rows(LARGE).T @ rows(LARGE)))[::-1][:2] / LARGE
    np.testing.assert_allclose(fitted.explained_variance_, expected, rtol=0.1)
    assert not hasattr(fitted, "explained_variance_ratio_")
    np.testing.assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(2), atol=1e-9)


def test_ratio_of_an_earlier_fit_is_forgotten():
    fitted = pca(noise="symmetric").fit(rows(SMALL))
    assert hasattr(fitted, "explained_variance_ratio_")
    assert not hasattr(
        fitted.set_params(noise="eigengap").fit(rows(SMALL)), "explained_variance_ratio_"
    )


def test_second_moments_do_not_depend_on_the_order():
    unit = np.trunc(rows(9000) * 2**19) / 2**19
    shuffled = np.random.default_rng(1).permutation(unit)
    assert np.array_equal(_second_moments(unit), _second_moments(shuffled))
    np.testing.assert_allclose(_second_moments(unit), unit.T @ unit, rtol=1e-12)


@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e308])
def test_broken_rows_change_nothing_or_little(broken):
    table = np.vstack([rows(LARGE), np.full((1, 4), broken)])
    assert np.isfinite(pca().fit(table).components_).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": "private"}, "mean"),
        ({"n_components": 4}, "n_components"),
        ({"n_components": None}, "n_components"),
        ({"delta": 0.6}, "delta"),
    ],
)
def test_settings_without_a_proof_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        pca().set_params(**settings).fit(rows(SMALL))


def test_sizes_beyond_the_proof_are_refused():
    with pytest.raises(ValueError, match="2\\^37 entries"):
        release(records=2**35 + 1)


def test_no_number_of_rows_that_fit_into_memory_is_refused():
    assert release(records=2**24 + 1).loss.epsilon(delta=1e-6) == 1.0


def test_second_moments_of_many_rows_are_exact(monkeypatch):
    monkeypatch.setattr(eigengap, "_CHUNK", 2)
    unit = np.trunc(rows(5000) * 2**19) / 2**19
    whole = (unit * 2**19).astype(object)
    exact = whole.T @ whole
    assert np.array_equal(_second_moments(unit), exact.astype(float) / 2.0**38)
