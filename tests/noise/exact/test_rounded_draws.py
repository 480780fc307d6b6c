"""Ideal noise by itself: the law of rounded real noise, and nothing else."""

import numpy as np
import pytest
from scipy import stats

from taut.noise import SeededForExperiments, rounded_noise

LAWS = {"gaussian": stats.norm, "laplace": stats.laplace, "exponential": stats.expon}


@pytest.mark.parametrize("kind", LAWS)
@pytest.mark.parametrize("scale", [0.7, 3.0])
def test_masses_are_those_of_rounded_noise(kind, scale):
    count = 100_000
    noise = rounded_noise(kind, scale, count, generator=SeededForExperiments(1))
    values = np.arange(-5, 6) if kind != "exponential" else np.arange(0, 11)
    law = LAWS[kind]
    expected = law.cdf((values + 0.5) / scale) - law.cdf((values - 0.5) / scale)
    observed = np.array([(noise == value).sum() for value in values])
    rest = np.append(observed, count - observed.sum())
    masses = np.append(expected, 1 - expected.sum())
    assert stats.chisquare(rest, count * masses).pvalue > 1e-6


def test_exponential_noise_is_never_negative():
    assert (rounded_noise("exponential", 2.0, 1000, generator=SeededForExperiments(2)) >= 0).all()


def test_portions_do_not_repeat():
    noise = rounded_noise("gaussian", 2.0**20, 200_000, generator=SeededForExperiments(3))
    assert np.unique(noise).size > 190_000


def test_bad_arguments():
    with pytest.raises(ValueError, match="kind"):
        rounded_noise("cauchy", 1.0)
    for scale in (0.0, float("nan"), 2.0**31):
        with pytest.raises(ValueError, match="scale"):
            rounded_noise("laplace", scale)
    with pytest.raises(ValueError, match="size"):
        rounded_noise("laplace", 1.0, -1)
    with pytest.raises(TypeError, match="generator"):
        rounded_noise("laplace", 1.0, generator=np.random.default_rng())


@pytest.mark.parametrize("size", [-1, 2**31, 2**63])
def test_sizes_that_are_none_or_beyond_memory_are_refused(size):
    with pytest.raises(ValueError, match="size must be"):
        rounded_noise("gaussian", 1.0, size)
