"""Noise is drawn from a secure generator, unless an experiment is to be repeated."""

import numpy as np
import pytest
from scipy.stats import kstest

from taut.noise import Box, SeededForExperiments, default_generator, optimal_gaussian


def test_default_generator_is_secure():
    assert default_generator().secure


def test_normal_numbers_are_normal():
    draws = SeededForExperiments(7).standard_normal(200_000)
    assert kstest(draws, "norm").pvalue > 1e-3
    assert np.isfinite(draws).all()
    assert abs(np.mean(draws > 0) - 0.5) < 5e-3


def test_release_draws_fresh_secure_noise():
    noise = optimal_gaussian(Box([1.0, 2.0]), epsilon=1.0, delta=1e-6)
    first, second = (noise.release([0.0, 0.0]) for _ in range(2))
    assert (first != second).any()


def test_an_experiment_repeats():
    noise = optimal_gaussian(Box([1.0, 2.0]), epsilon=1.0, delta=1e-6)
    runs = [noise.release([0.0, 0.0], SeededForExperiments(1)) for _ in range(2)]
    assert runs[0] == pytest.approx(runs[1], abs=0)
