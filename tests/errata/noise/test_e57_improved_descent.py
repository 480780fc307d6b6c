"""E57: for the objective, noise of least total variance is worse than noise by the clips."""

import numpy as np
import pytest

from taut.accounting import gaussian_mu

DEVIATIONS = np.geomspace(1, 100, 6)
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((3000, 6)) * DEVIATIONS
Y = X @ (1 / DEVIATIONS) + RANDOM.standard_normal(3000)
CURVATURES = (X**2).mean(axis=0)
PENALTY, MU = 0.1, gaussian_mu(1.0, 1e-6)


def scales(widths, kind):
    """Return sigma of one pass: lines 5 to 7 of Algorithm 2, or Definition 5."""
    if kind == "improved":
        return np.sqrt(widths * widths.sum()) / MU
    return np.sqrt(widths.size) * widths / MU


def objective(theta):
    return ((X @ theta - Y) ** 2).mean() / 2 + PENALTY * np.abs(theta).sum()


def descent(kind, clip, passes, random):
    """Return the last iterate of Algorithm 2 with tau = 1, replace-one; without noise for None."""
    clips = clip * np.sqrt(CURVATURES / CURVATURES.sum())
    sigma = np.zeros(6)
    if kind is not None:
        widths = 2 * clips / (CURVATURES * len(X))
        sigma = np.sqrt(passes) * scales(widths, kind)
    theta = np.zeros(6)
    for _ in range(passes):
        for i in range(6):
            slope = np.clip((X @ theta - Y) * X[:, i], -clips[i], clips[i]).mean()
            point = theta[i] - slope / CURVATURES[i] + sigma[i] * random.standard_normal()
            theta[i] = np.sign(point) * max(abs(point) - PENALTY / CURVATURES[i], 0)
    return theta


@pytest.mark.parametrize(("spread", "factor"), [(1, 1.0), (10, 1.8), (100, 7.6)])
def test_noise_costs_more_of_the_objective(spread, factor):
    curvatures = np.geomspace(1, spread, 6) ** 2
    widths = 1 / np.sqrt(curvatures)  # clips over curvatures
    plain, improved = (curvatures @ scales(widths, kind) ** 2 for kind in ("plain", "improved"))
    roots = np.sqrt(curvatures)
    assert improved / plain == pytest.approx(roots.sum() * (1 / roots).sum() / 36)
    assert improved / plain == pytest.approx(factor, abs=0.1)


def test_best_settings_of_both_do_not_turn_the_order_around():
    best = objective(descent(None, 1e9, 60, RANDOM))
    errors = {
        kind: min(
            np.mean([objective(descent(kind, clip, passes, random)) / best - 1 for _ in range(8)])
            for clip in np.sqrt(CURVATURES.sum()) * np.array([0.5, 1.0, 2.0])
            for passes in (2, 5)
        )
        for kind, random in (
            ("plain", np.random.default_rng(1)),
            ("improved", np.random.default_rng(1)),
        )
    }
    assert errors["improved"] > 1.5 * errors["plain"]
