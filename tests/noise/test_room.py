"""The room as a whole: what it shows, and where its noise comes from."""

import numpy as np
import pytest
from scipy.stats import kstest

import taut.noise
from taut.noise import Box, SeededForExperiments, default_generator, optimal_gaussian


def test_all_is_what_is_public():
    shown = {name for name in vars(taut.noise) if not name.startswith("_")}
    assert set(taut.noise.__all__) <= shown
    assert taut.noise.__all__ == sorted(taut.noise.__all__)


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
    assert (first != second).all()


def test_an_experiment_repeats():
    noise = optimal_gaussian(Box([1.0, 2.0]), epsilon=1.0, delta=1e-6)
    runs = [noise.release([0.0, 0.0], SeededForExperiments(1)) for _ in range(2)]
    assert runs[0] == pytest.approx(runs[1], abs=0)
