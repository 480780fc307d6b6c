"""E39: delta buys far more for Laplace noise than Corollary 6 says."""

import math

import numpy as np
import pytest

from taut.noise import Box, optimal_gaussian, optimal_laplace


def corollary(k, delta):
    box = Box(np.ones(k))
    return optimal_laplace(box, epsilon=0.5, delta=delta, accounting="corollary6")


@pytest.mark.parametrize(("k", "true"), [(1, 5.0e-3), (2, 2.5e-3), (5, 3.2e-4), (20, 1.0e-8)])
def test_true_delta_falls_with_the_dimension(k, true):
    noise = corollary(k, 1e-2)
    assert noise.certificate.radius == pytest.approx(0.5 - math.log1p(-1e-2))
    assert noise.loss.delta(0.5, 1e-5) == pytest.approx(true, rel=0.06)


def test_many_coordinates_need_nineteen_times_less():
    exact = optimal_laplace(Box(np.ones(300)), epsilon=0.5, delta=1e-6)
    assert corollary(300, 1e-6).error / exact.error == pytest.approx(18.7, abs=0.1)
    gaussian = optimal_gaussian(Box(np.ones(300)), epsilon=0.5, delta=1e-6)
    assert 1.9 < exact.error / gaussian.error < 2
