"""E29: Figure 3 of ModelMix needs orders between the integers of its theorem."""

import math

import numpy as np
import pytest
from oracles.mixed_noise import log_density

import taut
from taut.accounting import mixed_gaussian

RATE, STEPS, Z, DELTA = 0.02, 5000, 0.3669445419913252, 1e-5


def epsilon(orders, width):
    """Return the classic epsilon of a record on one coordinate, by quadrature at real orders."""
    found = []
    for order in orders:
        step = Z / 25
        x = np.arange(-width / 2 - 12 * Z, width / 2 + order + 14 * Z, step)
        without, shifted = log_density(x, Z, width), log_density(x - 1, Z, width)
        sampled = np.logaddexp(math.log1p(-RATE) + without, math.log(RATE) + shifted)
        moment = np.logaddexp.reduce(order * sampled + (1 - order) * without) + math.log(step)
        found.append((STEPS * moment + math.log(1 / DELTA)) / (order - 1))
    return min(found)


@pytest.mark.parametrize(
    ("width", "printed", "integer", "quarters"),
    [(3.75, 57.2, 257.3, 58.09), (7.5, 40.4, 135.9, 40.57), (15.0, 31.7, 74.1, 31.80)],
)
def test_the_printed_values_for_one_coordinate_come_from_fractions(
    width, printed, integer, quarters
):
    assert epsilon(range(2, 20), width) == pytest.approx(integer, abs=0.05)
    assert epsilon(np.arange(1.25, 8.0, 0.25), width) == pytest.approx(quarters, abs=0.01)
    assert quarters == pytest.approx(printed, rel=0.02)


def test_taut_proves_what_chords_between_integers_prove():
    loss = STEPS * mixed_gaussian(Z, 7.5, rate=RATE)
    assert loss.epsilon(DELTA) == pytest.approx(114.5, abs=0.1)
    plain = STEPS * taut.gaussian(Z).poisson(RATE)
    assert loss.epsilon(DELTA) <= plain.epsilon(DELTA)
