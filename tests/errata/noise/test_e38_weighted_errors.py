"""E38: weights of the error must stay out of the privacy constraint."""

import numpy as np
import pytest

from taut.noise import (
    Box,
    gaussian_with_scales,
    laplace_with_scales,
    optimal_gaussian,
    optimal_laplace,
)

WIDTHS, WEIGHTS = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.9, 1.5, 0.5, 0.1])
PROMISE = {"epsilon": 0.5, "delta": 1e-6}


def test_scales_for_the_weighted_profile_leak():
    printed = optimal_gaussian(Box(WEIGHTS * WIDTHS), **PROMISE)
    truth = gaussian_with_scales(Box(WIDTHS), printed.scales)
    assert truth.loss.delta(0.5) == pytest.approx(1.18e-2, rel=5e-3)
    assert printed.multiplier / truth.multiplier == pytest.approx(2.65, rel=2e-3)


def test_constant_weights_should_change_nothing():
    printed = optimal_gaussian(Box(0.1 * WIDTHS), **PROMISE)
    truth = gaussian_with_scales(Box(WIDTHS), printed.scales)
    assert truth.loss.delta(0.5) == pytest.approx(0.33, abs=5e-3)


@pytest.mark.parametrize(("weights", "true"), [(WEIGHTS, 0.937), (np.full(4, 0.1), 5.0)])
def test_laplace_noise_leaks_too(weights, true):
    printed = optimal_laplace(Box(weights * WIDTHS), epsilon=0.5)
    truth = laplace_with_scales(Box(WIDTHS), printed.scales)
    assert truth.loss.epsilon(0.0) == pytest.approx(true, abs=5e-4)
    kept = optimal_laplace(Box(WIDTHS), epsilon=0.5, weights=weights)
    assert laplace_with_scales(Box(WIDTHS), kept.scales).loss.epsilon(0.0) <= 0.5


def test_taut_keeps_the_promise():
    noise = optimal_gaussian(Box(WIDTHS), **PROMISE, weights=WEIGHTS)
    assert gaussian_with_scales(Box(WIDTHS), noise.scales).loss.delta(0.5) <= 1e-6
    plain, same = (
        optimal_gaussian(Box(WIDTHS), **PROMISE, weights=weights)
        for weights in (None, np.full(4, 0.1))
    )
    assert same.scales == pytest.approx(plain.scales)
