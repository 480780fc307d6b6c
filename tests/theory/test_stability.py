"""docs/theory/stability.md: the maximum of the two modes is one failing Laplace loss."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from taut.accounting import stability_release

PARAMETERS = [(1.0, 1e-3), (0.5, 0.3), (0.05, 0.5), (3.0, 0.9)]


def same_answer(epsilon, t):
    """Return the profile of the noisy distance 1 against 0, of which the output is a function."""
    noise = stats.laplace(scale=1 / epsilon)

    def gain(y):
        return max(noise.pdf(y - 1) - t * noise.pdf(y), 0.0)

    kinks = [0.0, 1.0, min(max((1 + math.log(t) / epsilon) / 2, 0.0), 1.0)]
    parts = [(-60 / epsilon, 0.0), (0.0, kinks[2]), (kinks[2], 1.0), (1.0, 60 / epsilon)]
    return sum(integrate.quad(gain, low, high, limit=200)[0] for low, high in parts)


@pytest.mark.parametrize(("epsilon", "delta"), PARAMETERS)
def test_profile_is_the_maximum_over_the_modes(epsilon, delta):
    loss = stability_release(epsilon, delta)
    failure = stats.laplace(scale=1 / epsilon).sf(math.log(1 / delta) / epsilon)
    for t in np.exp(np.linspace(-1.5 * epsilon, 1.5 * epsilon, 13)):
        other_answer = failure + (1 - failure) * max(1 - t, 0.0)
        expected = max(same_answer(epsilon, float(t)), other_answer)
        assert loss.profile(float(t)) == pytest.approx(expected, rel=1e-6)
