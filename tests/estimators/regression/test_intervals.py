"""Intervals cover as often as they say, from released numbers alone."""

import numpy as np
import pytest

from taut.estimators import PrivateLinearRegression
from taut.noise import SeededForExperiments

SLOPES, HEIGHT = np.array([0.5, -0.3, 0.2, 0.0, 0.1]), 0.2


def fitted(seed, records=10_000, **settings):
    random = np.random.default_rng(seed)
    rows = random.uniform(-1, 1, (records, 5))
    targets = rows @ SLOPES + HEIGHT + 0.3 * random.standard_normal(records)
    given = {"bounds": (-1, 1), "target_bound": 2.5, "generator": SeededForExperiments(seed)}
    return PrivateLinearRegression(**{**given, **settings}).fit(rows, targets)


def covers(model, level=0.95):
    ends = model.coef_interval(level)
    low, high = model.intercept_interval(level)
    slopes = (ends[:, 0] <= SLOPES) & (ends[:, 1] >= SLOPES)
    return np.append(slopes, low <= HEIGHT <= high)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "posterior_mean", "adassp"])
def test_coverage_is_between_93_and_97_percent(method):
    found = [covers(fitted(seed, method=method)) for seed in range(1000)]
    assert 0.93 <= np.mean(found) <= 0.97


def test_intervals_of_coordinate_descent_come_from_moments():
    """They cover at 80 %, are wider than those of refined moments, and infinite for few records."""
    found = [covers(fitted(seed, method="coordinate_descent"), 0.8) for seed in range(20)]
    assert abs(np.mean(found) - 0.8) < 4 * 0.4 / np.sqrt(120)
    widths = [
        np.ptp(fitted(1, method=method).coef_interval_, axis=1).mean()
        for method in ("coordinate_descent", "refined")
    ]
    assert widths[0] > 3 * widths[1]
    assert np.isinf(fitted(1, 1000).coef_interval_).all()


def test_few_repeats_agree_with_the_level():
    """Of 120 intervals at 80 %, within four standard deviations, were they independent."""
    found = [covers(fitted(seed, 4000, method="posterior_mean"), 0.8) for seed in range(20)]
    assert abs(np.mean(found) - 0.8) < 4 * 0.4 / np.sqrt(120)


@pytest.mark.parametrize("deviation", [0.05, 0.0])
def test_residuals_that_are_small_beside_the_noise_are_not_cut_away(deviation):
    """Noise may leave nothing of a sum of squares; cuts for that put fits 50 widths away."""
    wrong = 0
    for seed in range(1, 8):
        random = np.random.default_rng(seed)
        rows = random.uniform(0, 1, (10_000, 1))
        targets = 0.05 * rows[:, 0] + 0.9 + deviation * random.standard_normal(10_000)
        given = {"bounds": (0, 1), "target_bound": (-1.5, 1.5)}
        noise = SeededForExperiments(seed)
        model = PrivateLinearRegression(**given, generator=noise).fit(rows, targets)
        low, high = model.coef_interval_[0]
        wrong += not low - (high - low) <= 0.05 <= high + (high - low)
    assert wrong == 0


@pytest.mark.parametrize(("method", "bias"), [("refined", -0.030), ("posterior_mean", 0.0)])
def test_cut_residuals_that_are_skewed_move_the_intercept(method, bias):
    """As docs/regression.md says: by the mean of clipped exponential residuals."""
    random = np.random.default_rng(3)
    rows = random.uniform(-1, 1, (100_000, 1))
    residuals = random.exponential(size=100_000) - 1
    given = {"bounds": (-1, 1), "target_bound": 7.0, "epsilon": 100.0, "method": method}
    noise = SeededForExperiments(3)
    model = PrivateLinearRegression(**given, generator=noise).fit(rows, 0.5 * residuals)
    assert model.intercept_ == pytest.approx(0.5 * bias, abs=0.004)


def test_intervals_of_the_intercept_allow_for_skewed_residuals():
    """At least 26 of 30 at 95 %: fewer come up once in 60 times; cut residuals cover none."""
    found = []
    for seed in range(30):
        random = np.random.default_rng(seed)
        rows = random.uniform(-1, 1, (20_000, 1))
        targets = 0.4 * rows[:, 0] + 0.2 + 0.3 * (random.exponential(size=20_000) - 1)
        given = {"bounds": (-1, 1), "target_bound": 4.0, "epsilon": 20.0}
        noise = SeededForExperiments(seed)
        model = PrivateLinearRegression(**given, generator=noise).fit(rows, targets)
        low, high = model.intercept_interval()
        found.append(low <= 0.2 <= high)
    assert sum(found) >= 26


def test_without_noise_they_are_those_of_least_squares():
    random = np.random.default_rng(7)
    rows = random.uniform(-1, 1, (10_000, 5))
    design = np.column_stack([rows, np.ones(10_000)])
    usual = 1.959964 * 0.3 * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    model = fitted(7, epsilon=1e4, method="posterior_mean")
    assert np.diff(model.coef_interval_)[:, 0] / 2 == pytest.approx(usual[:5], rel=0.03)


def test_noise_makes_them_wider_and_few_records_infinite():
    widths = [np.diff(fitted(1, epsilon=one).coef_interval_).max() for one in (100.0, 1.0)]
    assert widths[0] < widths[1]
    assert np.isinf(fitted(1, records=50).coef_interval_).all()


def test_nothing_is_said_where_nothing_is_known():
    with pytest.raises(ValueError, match="releases moments"):
        _ = fitted(1, method="zero").coef_interval_
    with pytest.raises(ValueError, match="fit_intercept"):
        _ = fitted(1, fit_intercept=False).coef_interval_
    assert not hasattr(fitted(1, method="zero"), "coef_interval_")
    assert fitted(1, fit_intercept=False, adjacency="replace").coef_interval_.shape == (5, 2)
    for level in (0.0, 1.0, 2.0):
        with pytest.raises(ValueError, match="level"):
            fitted(1, records=50).coef_interval(level)
