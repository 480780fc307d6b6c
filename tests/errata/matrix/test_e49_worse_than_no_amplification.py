"""E49: the printed algorithm can cost more than not to amplify at all."""

import math

import pytest
from oracles.mmcc import published_epsilon

from taut.accounting import gaussian
from taut.matrix import PoissonRounds, TreeEncoder, amplified_loss

STEPS, DELTA = 8, 1e-6
HEIGHT = 4


@pytest.mark.parametrize("scale", [2.0, 4.0])
def test_little_noise_makes_histories_tell_everything(scale):
    sigma = scale * math.sqrt(HEIGHT)
    matrix = TreeEncoder(STEPS).matrix()
    printed = published_epsilon(matrix, 1 / STEPS, sigma, DELTA / 2, DELTA / 2, "remove")
    once = gaussian(scale).epsilon(DELTA)
    lower, upper = amplified_loss(
        TreeEncoder(STEPS), PoissonRounds(1 / STEPS), sigma, delta=DELTA
    ).epsilon_bounds(DELTA)
    assert printed > 1.2 * once
    assert lower <= upper < 0.8 * printed
