"""Sums of mixtures on lattices and around circles, against other engines and draws."""

import math

import numpy as np
import pytest
from matrix.pairs import sampled

from taut.accounting import gaussian, mixture_of_gaussians, zero
from taut.matrix._accounting.chain import chain_losses
from taut.matrix._accounting.rows import composed_profile

LAWS = np.array([[0.9, 0.08, 0.02], [0.5, 0.3, 0.2], [0.99, 0.0, 0.01]])
SHIFTS = np.array([0.0, 0.4, 1.1])
COUNTS = np.array([20.0, 1.0, 7.0])


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-6, 1e-15])
def test_composed_rows_are_just_above_the_engine(direction, delta):
    total = zero(adjacency=direction)
    for law, count in zip(LAWS, COUNTS, strict=True):
        total = total + int(count) * mixture_of_gaussians(law, SHIFTS, 1.0, adjacency=direction)
    lower, upper = total.epsilon_bounds(delta, 1e-6)
    found = composed_profile(LAWS, COUNTS, SHIFTS, 0.0, delta, direction).epsilon(delta)
    assert lower <= found <= upper * (1 + 2e-3) + 1e-4


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_composed_rows_bound_every_threshold(direction):
    total = zero(adjacency=direction)
    for law, count in zip(LAWS, COUNTS, strict=True):
        total = total + int(count) * mixture_of_gaussians(law, SHIFTS, 1.0, adjacency=direction)
    found = composed_profile(LAWS, COUNTS, SHIFTS, 0.0, 1e-4, direction)
    for threshold in (0.05, 0.4, 0.9, 1.0, 1.5, 4.0, 20.0):
        assert found.profile(threshold) >= total.profile(threshold) * (1 - 1e-3) - 1e-12


def test_betrayed_mass_is_kept():
    found = composed_profile(LAWS, COUNTS, SHIFTS, 1e-4, 1e-3, "remove")
    assert found.delta(50.0) >= 1e-4
    assert math.isinf(found.epsilon(1e-5))


def test_hopeless_rows_promise_nothing():
    found = composed_profile(LAWS, COUNTS, 1e4 * SHIFTS, 0.0, 1e-6, "remove")
    assert math.isinf(found.epsilon(1e-6))


def test_rows_without_a_shift_cost_nothing():
    law = np.array([[1.0, 0.0]])
    found = composed_profile(law, np.ones(1), np.array([0.0, 1.0]), 0.0, 1e-6, "remove")
    assert found.epsilon(1e-6) == 0


def circle(length, shared, own):
    """Return vectors around a circle with the products of a chain."""
    products = (2 * shared + own) * np.eye(length)
    for i in range(length):
        products[i, (i + 1) % length] = products[(i + 1) % length, i] = shared
    values, directions = np.linalg.eigh(products)
    return directions * np.sqrt(np.maximum(values, 0.0))


@pytest.mark.parametrize(
    ("length", "shared", "own"), [(3, 0.2, 0.3), (8, 0.1, 0.0), (12, 0.3, 0.5)]
)
def test_circles_are_above_draws_and_close(length, shared, own):
    losses = chain_losses(length, shared, own, 1e-3)
    truth = sampled(circle(length, shared, own), np.full(length, 1 / length), 1.0, draws=60_000)
    for epsilon in (0.2, 0.6, 1.0):
        for half, (delta, error) in zip(("remove", "add"), truth(epsilon), strict=True):
            found = losses[half].delta(epsilon)
            assert found >= delta - 5 * error
            assert found <= 1.1 * delta + 5 * error + 1e-5


def test_a_circle_of_hardly_correlated_bins_is_an_allocation():
    losses = chain_losses(25, 1e-6, 0.2, 1e-6)
    expected = gaussian(1.0, math.sqrt(0.2)).allocated(25).epsilon(1e-6)
    found = max(loss.epsilon(1e-6) for loss in losses.values())
    assert expected * (1 - 1e-3) <= found <= 1.02 * expected


def test_a_circle_with_little_noise_is_given_up():
    assert chain_losses(25, 20.0, 40.0, 1e-6) is None
