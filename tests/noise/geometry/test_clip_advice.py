"""Advice on clipping norms, and what clipping does to means."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from taut.errors import UnsoundConfiguration
from taut.noise.geometry import advise_clip_norm, clipped_descent, estimate_kappa, explore_clip_bias

SETTING = {"examples": 50_000, "epsilon": 8.0, "delta": 1e-5, "parameters": 270_000}
OPTIMA = np.array([[-20.0], [-10.0], [90.0]])


@pytest.mark.parametrize(("kappa", "norm"), [(1.0, 12.2444765), (5.0, 78.7036135)])
def test_known_norms(kappa, norm):
    assert advise_clip_norm(kappa, **SETTING).norm == pytest.approx(norm, abs=1e-7)


@given(
    kappa=st.floats(1e-3, 1e3),
    examples=st.integers(10, 10**8),
    epsilon=st.floats(0.01, 50),
    parameters=st.integers(1, 10**9),
)
def test_advice_is_the_smallest_norm_that_meets_both_conditions(
    kappa, examples, epsilon, parameters
):
    advice = advise_clip_norm(
        kappa, examples=examples, epsilon=epsilon, delta=1e-6, parameters=parameters
    )

    def slack(c):
        drowned = math.sqrt(parameters * math.log(1e6)) / (examples * epsilon)
        return c / (2 * kappa) - math.log((c / 4 + kappa) ** 2 / c) - 0.4 + math.log(drowned)

    assert advice.norm >= advice.least
    assert slack(advice.norm) >= -1e-8
    assert advice.norm == advice.least or slack(advice.norm * (1 - 1e-6)) < 0


def test_least_norm_keeps_nine_twentieths_of_the_direction():
    advice = advise_clip_norm(1.0, examples=10, epsilon=0.1, delta=0.1, parameters=10**6)
    assert advice.norm == advice.least == pytest.approx(4 * math.log(10))
    assert advice.slope == pytest.approx(9 / 20)
    assert advice.floor == pytest.approx(advice.norm / 20)
    assert str(advice).startswith("heuristic: ")
    assert json.loads(json.dumps(advice.to_dict()))["kappa"] == 1.0


def test_clipped_gradients_keep_what_the_lemma_says():
    # Exponential deviations in a random direction meet the assumption with equality.
    random = np.random.default_rng(3)
    kappa, count = 1.0, 200_000
    directions = random.normal(size=(count, 3))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    deviations = directions * random.exponential(kappa, size=(count, 1))
    advice = advise_clip_norm(kappa, **SETTING)
    for length in (0.1, 1.0, 5.0, 30.0):
        mean = np.array([length, 0.0, 0.0])
        gradients = mean + deviations
        sizes = np.linalg.norm(gradients, axis=1, keepdims=True)
        kept = float((gradients * np.minimum(1, advice.norm / sizes)).mean(0) @ mean)
        promised = min(advice.slope * length**2 - advice.offset, advice.floor * length)
        assert kept >= promised


def test_kappa_of_known_tails():
    random = np.random.default_rng(1)
    signs = random.choice([-1.0, 1.0], size=20_000)
    tail = (signs * random.exponential(3.0, size=20_000))[:, None]
    assert estimate_kappa(tail, provenance="public") == pytest.approx(3.0, rel=0.15)
    assert estimate_kappa(10 * tail, provenance="public") == pytest.approx(
        10 * estimate_kappa(tail, provenance="public")
    )


def test_kappa_bounds_the_larger_half_of_deviations():
    rows = np.random.default_rng(2).normal(size=(501, 7)) ** 3
    kappa = estimate_kappa(rows, provenance="public")
    away = np.linalg.norm(rows - rows.mean(0), axis=1)
    shares = [(np.mean(away >= t), math.exp(-t / kappa)) for t in np.sort(away)[-250:]]
    assert all(found <= bound * (1 + 1e-9) for found, bound in shares)
    assert min(bound / found for found, bound in shares) == pytest.approx(1.0)


# --- what clipping does to a mean --------------------------------------------------------------


def test_example_of_the_paper():
    at_optimum = explore_clip_bias(20.0 - OPTIMA, [1.0], provenance="public")
    far_away = explore_clip_bias(0.0 - OPTIMA, [1.0], provenance="public")
    assert at_optimum.deviation == far_away.deviation == pytest.approx(49.67, abs=5e-3)
    assert (at_optimum.length, far_away.length) == (0.0, 20.0)
    assert at_optimum.rows[0].length == pytest.approx(1 / 3)
    assert far_away.rows[0].length == pytest.approx(1 / 3)
    assert far_away.rows[0].cosine == -1.0
    assert at_optimum.rows[0].relative_bias == math.inf
    assert json.loads(json.dumps(at_optimum.to_dict()))["rows"][0]["relative_bias"] is None


@pytest.mark.parametrize(("norm", "end"), [(1, -10), (10, -10), (40, 5), (60, 15), (80, 20)])
def test_ends_of_descent_in_the_example(norm, end):
    assert clipped_descent(OPTIMA, norm, provenance="public") == pytest.approx([end], abs=1e-6)
    place = np.array([20.0])
    for _ in range(4000):
        place = place - 0.1 * np.clip(place - OPTIMA, -norm, norm).mean(axis=0)
    assert place == pytest.approx([end], abs=1e-2)


def test_end_of_descent_in_three_dimensions():
    points = np.random.default_rng(5).standard_t(2, size=(40, 3)) * [1.0, 3.0, 0.2] + 4.0

    def huber(w):
        away = np.linalg.norm(w - points, axis=1)
        return np.where(away <= 0.7, away**2 / 2, 0.7 * away - 0.7**2 / 2).mean()

    best = minimize(huber, points.mean(0), method="BFGS", options={"gtol": 1e-9}).x
    assert clipped_descent(points, 0.7, provenance="public") == pytest.approx(best, abs=1e-5)
    elsewhere = clipped_descent(points, 0.7, provenance="public", start=[50.0, -50.0, 0.0])
    assert elsewhere == pytest.approx(best, abs=1e-5)


def test_report_against_the_slow_way():
    rows = np.random.default_rng(0).normal(0.5, 1.0, size=(300, 6)).astype(np.float32)
    report = explore_clip_bias(rows, [0.5, 2.0, 100.0], provenance="public")
    mean = rows.astype(np.float64).mean(0)
    for row, norm in zip(report.rows, (0.5, 2.0, 100.0), strict=True):
        clipped = [v * min(1.0, norm / np.linalg.norm(v)) for v in rows.astype(np.float64)]
        found = np.mean(clipped, axis=0)
        assert row.length == pytest.approx(np.linalg.norm(found))
        assert row.relative_bias == pytest.approx(
            np.linalg.norm(found - mean) / np.linalg.norm(mean), abs=1e-7
        )
        assert row.share_clipped == np.mean([np.linalg.norm(v) > norm for v in rows])
    assert report.rows[-1].share_clipped == 0
    assert report.rows[-1].cosine == pytest.approx(1.0)
    assert "300 public vectors" in str(report)


def test_private_vectors_are_refused():
    rows = np.eye(5)
    for look in (
        lambda: estimate_kappa(rows, provenance="private"),
        lambda: explore_clip_bias(rows, [1.0], provenance="private"),
        lambda: clipped_descent(rows, 1.0, provenance="private"),
    ):
        with pytest.raises(UnsoundConfiguration, match="provenance"):
            look()


def test_bad_arguments():
    with pytest.raises(ValueError, match="kappa"):
        advise_clip_norm(0.0, **SETTING)
    with pytest.raises(ValueError, match="delta"):
        advise_clip_norm(1.0, **SETTING | {"delta": 0.0})
    with pytest.raises(ValueError, match="at least 4"):
        estimate_kappa(np.eye(3), provenance="public")
    with pytest.raises(ValueError, match="all equal"):
        estimate_kappa(np.ones((5, 2)), provenance="public")
    with pytest.raises(ValueError, match="at least one number"):
        explore_clip_bias(np.eye(3), [], provenance="public")
    with pytest.raises(ValueError, match="3 coordinates"):
        clipped_descent(np.eye(3), 1.0, provenance="public", start=[0.0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e101, 1e308, 1.7e308])
def test_vectors_whose_squares_are_no_numbers_are_refused(size):
    rows = [[size, -size, 0.0]] * 3
    with pytest.raises(ValueError, match="vectors must have entries within"):
        explore_clip_bias(rows, [1.0], provenance="public")
    with pytest.raises(ValueError, match="vectors must have entries"):
        clipped_descent(rows, 1.0, provenance="public")
    with pytest.raises(ValueError, match="start must have coordinates"):
        clipped_descent([[1.0, 2.0]], 1.0, provenance="public", start=[size, 0.0])
    with pytest.raises(ValueError, match="start must have coordinates"):
        clipped_descent([[1.0, 2.0]], 1.0, provenance="public", start=[math.nan, 0.0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e100, 1.0, 1e-200, 5e-324])
@pytest.mark.parametrize("norm", [1e308, 1.0, 1e-200, 5e-324])
def test_what_is_not_refused_is_answered_without_warnings(size, norm):
    rows = [[size, -size, 0.0]] * 3 + [[size, size, size]]
    (row,) = explore_clip_bias(rows, [norm], provenance="public").rows
    assert -1 - 1e-12 <= row.cosine <= 1 + 1e-12
    assert row.length <= norm * (1 + 1e-12)
    assert not math.isnan(row.relative_bias)
    place = clipped_descent([[size], [size]], norm, provenance="public", start=[size])
    assert place == [size]
