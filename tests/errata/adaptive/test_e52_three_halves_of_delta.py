"""E52: the parts of Theorem 6.4.13 add up to three halves of delta, unless they are one curve."""

import math

import pytest

import taut
from taut.adaptive import smooth_noise_rdp

LABELS, TEST, DELTA = 0.8, 1.0, 1e-5
ORDER = 2 * math.log(2 / DELTA) / TEST + 1
SIGMA = math.sqrt((3 * ORDER + 2) / TEST)
SMOOTHNESS = 0.2 / ORDER


def test_parameters_are_those_of_the_algorithm():
    found = (ORDER, SIGMA, SMOOTHNESS)
    assert found == pytest.approx((25.412145291060348, 8.845136283471332, 0.00787025249971152))


def test_parts_add_up_to_more_than_delta():
    """The labels at delta / 2, the release of the bound at delta / 2, its failure: delta / 2."""
    parts = (
        taut.approximate(LABELS, DELTA / 2)
        + taut.approximate(TEST, DELTA / 2)
        + taut.approximate(0.0, DELTA / 2)
    )
    assert parts.epsilon(DELTA) == math.inf
    assert parts.epsilon(1.5 * DELTA) <= LABELS + TEST + 1e-6


def test_one_curve_with_one_failure_keeps_delta():
    spent = ORDER / (2 * SIGMA**2) + smooth_noise_rdp(ORDER, SMOOTHNESS, SIGMA)
    assert spent <= TEST / 2
    given = ORDER / (ORDER - 1) * -math.log1p(-DELTA / 2)
    joint = taut.approximate(0.0, DELTA / 2) + taut.from_rdp({ORDER: spent + LABELS + given})
    assert joint.epsilon(DELTA) <= LABELS + TEST
