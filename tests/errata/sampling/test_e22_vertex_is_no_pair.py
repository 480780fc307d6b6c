"""E22: the worst record of coordinate-wise sampling is worst for one Rényi direction only."""

import math

import numpy as np
import pytest

import taut
from taut.accounting import coordinatewise

STEP = 0.02
X = np.arange(-12.0, 20.0, STEP)
RATE = 0.1


def normal(shift):
    return np.exp(-((X - shift) ** 2) / 2) / math.sqrt(2 * math.pi)


def masked(shift):
    return (1 - RATE) * normal(0.0) + RATE * normal(shift)


def one_coordinate(norm, threshold):
    return np.maximum(masked(norm) - threshold * normal(0.0), 0.0).sum() * STEP


def two_coordinates(norm, threshold):
    flat, base = masked(norm / math.sqrt(2)), normal(0.0)
    excess = np.outer(flat, flat) - threshold * np.outer(base, base)
    return np.maximum(excess, 0.0).sum() * STEP**2


def divergence(p, q, order, coordinates):
    return coordinates * math.log((p**order * q ** (1 - order)).sum() * STEP) / (order - 1)


@pytest.mark.parametrize(
    ("norm", "epsilon", "concentrated", "spread"),
    [(6.0, 0.1, 0.0996, 0.1793), (1.0, 0.0, 0.0383, 0.0408)],
)
def test_a_spread_record_has_the_larger_hockey_stick(norm, epsilon, concentrated, spread):
    threshold = math.exp(epsilon)
    assert one_coordinate(norm, threshold) == pytest.approx(concentrated, abs=1e-4)
    assert two_coordinates(norm, threshold) == pytest.approx(spread, abs=1e-4)


def test_it_has_the_larger_divergence_without_the_record_too():
    one, two = masked(5.0), masked(5 / math.sqrt(2))
    forward = [divergence(p, normal(0.0), 2, k) for p, k in ((one, 1), (two, 2))]
    reverse = [divergence(normal(0.0), p, 2, k) for p, k in ((one, 1), (two, 2))]
    assert forward[0] > forward[1]  # the theorem
    assert reverse == pytest.approx([0.1024, 0.1764], abs=1e-4)


def test_composing_the_vertex_reports_less_than_the_truth():
    vertex = taut.gaussian(1.0, sensitivity=6.0).poisson(RATE)
    truth = two_coordinates(6.0, math.exp(0.1))
    assert vertex.delta(0.1) < 0.6 * truth
    loss = coordinatewise(RATE, 1.0, clip=6.0, clip_inf=6.0, dimension=2)
    assert loss.delta(0.1) >= truth
    with pytest.raises(ValueError, match="dominating pair"):
        loss.estimate_delta(0.1)
