"""Replace-one on a Poisson sample with normal noise: opposite contributions are the worst."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taut
from taut import accounting

NODES = np.linspace(-12.0, 12.0, 241)
FIRST, SECOND = np.meshgrid(NODES, NODES)
CELL = (NODES[1] - NODES[0]) ** 2


def normal(at):
    """Return the density of a plane normal distribution around a point."""
    squares = (FIRST - at[0]) ** 2 + (SECOND - at[1]) ** 2
    return np.exp(-squares / 2) / (2 * math.pi)


def hockey_stick(a, b, rate, threshold):
    """Return the divergence for contributions a and b in the plane, by the trapezoid rule."""
    with_a = (1 - rate) * normal((0, 0)) + rate * normal(a)
    with_b = (1 - rate) * normal((0, 0)) + rate * normal(b)
    return float(np.maximum(with_a - threshold * with_b, 0).sum() * CELL)


def replaced(mu, rate):
    return taut.gaussian(1.0, 2 * mu, adjacency="replace").poisson(
        rate, removal=taut.gaussian(1.0, mu)
    )


@settings(max_examples=60)
@given(
    mu=st.floats(0.1, 3),
    rate=st.floats(0.001, 0.999),
    lengths=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    angle=st.floats(0, 2 * math.pi),
    log_threshold=st.floats(-3, 3),
)
def test_no_contributions_are_worse(mu, rate, lengths, angle, log_threshold):
    a = (mu * lengths[0], 0.0)
    b = (mu * lengths[1] * math.cos(angle), mu * lengths[1] * math.sin(angle))
    threshold = math.exp(log_threshold)
    worst = replaced(mu, rate).profile(threshold)
    assert hockey_stick(a, b, rate, threshold) <= worst + 1e-4 * worst + 1e-6


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("log_threshold", [-1.0, 0.0, 0.5, 2.0])
def test_opposite_contributions_reach_it(mu, rate, log_threshold):
    p, q = one_dimensional(mu, rate, 200_001)
    reached = np.maximum(p - math.exp(log_threshold) * q, 0).sum()
    assert replaced(mu, rate).profile(math.exp(log_threshold)) == pytest.approx(reached, rel=1e-6)


def one_dimensional(mu, rate, nodes=1401):
    """Return the masses of both distributions for opposite contributions, on a fine grid."""
    x = np.linspace(-14.0, 14.0, nodes)
    plain, up, down = (np.exp(-((x - at) ** 2) / 2) for at in (0.0, mu, -mu))
    p, q = (1 - rate) * plain + rate * up, (1 - rate) * plain + rate * down
    return p / p.sum(), q / q.sum()


@pytest.mark.parametrize(("mu", "rate"), [(1.0, 0.1), (0.5, 0.5), (2.0, 0.02)])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 3.0])
def test_two_steps_against_enumeration(mu, rate, epsilon):
    p, q = one_dimensional(mu, rate)
    both = np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(q, q), 0).sum()
    lower, upper = (2 * replaced(mu, rate)).delta_bounds(epsilon)
    # Merging outputs into points of a grid changes both by its step squared.
    assert lower <= both * (1 + 2e-3) + 1e-12
    assert upper >= both * (1 - 2e-3) - 1e-12
    assert upper - lower <= 1e-3 * upper


def test_a_thousand_steps_against_simulation():
    mu, rate, steps, epsilon = 0.5, 0.02, 1_000, 1.0
    rng = np.random.default_rng(7)
    total = np.zeros(20_000)
    k = rate / (1 - rate) * math.exp(-(mu**2) / 2)
    for _ in range(steps):
        x = rng.normal(size=total.size) + mu * (rng.random(total.size) < rate)
        total += np.log1p(k * np.exp(mu * x)) - np.log1p(k * np.exp(-mu * x))
    found = np.maximum(-np.expm1(epsilon - total), 0)
    lower, upper = (steps * replaced(mu, rate)).delta_bounds(epsilon)
    error = 5 * found.std() / math.sqrt(found.size)
    assert lower - error <= found.mean() <= upper + error
    assert upper - lower <= 1e-3 * upper


@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5])
def test_below_the_general_bound(rate):
    tight = replaced(1.0, rate)
    # A release that only bounds what normal noise reveals gets the general bound.
    profile = taut.from_profile(lambda e: taut.gaussian(1.0, 2.0).delta(e), adjacency="replace")
    bound = profile.poisson(rate, removal=taut.gaussian(1.0))
    for epsilon in (0.001, 0.1, 1.0):
        assert tight.delta(epsilon) < bound.delta(epsilon)


def test_an_exchange_that_moves_less_keeps_the_general_bound():
    near = taut.gaussian(1.0, 0.1, adjacency="replace").poisson(0.1, removal=taut.gaussian(1.0))
    assert near.delta(0.5) < replaced(1.0, 0.1).delta(0.5)


@pytest.mark.parametrize("mu", [1e-3, 60.0])
@pytest.mark.parametrize("rate", [1e-9, 1 - 1e-9])
@pytest.mark.parametrize("count", [1, 100])
def test_extreme_settings_are_answered(mu, rate, count):
    loss = count * replaced(mu, rate)
    for lower, upper in (loss.epsilon_bounds(1e-8), loss.delta_bounds(0.1)):
        assert 0 <= lower <= upper


def test_sampling_with_certainty_is_no_sampling():
    exchange = taut.gaussian(1.0, 2.0, adjacency="replace")
    certain = exchange.poisson(1.0, removal=taut.gaussian(1.0))
    assert certain.epsilon(1e-5) == exchange.epsilon(1e-5)
    assert replaced(1.0, 1 - 1e-12).epsilon(1e-5) == pytest.approx(exchange.epsilon(1e-5))


def test_joint_gaussians_are_one():
    pair = 2 * taut.gaussian(2.0, 2.0, adjacency="replace")
    loss = pair.poisson(0.1, removal=2 * taut.gaussian(2.0))
    assert loss.delta(0.5) == pytest.approx(replaced(math.sqrt(0.5), 0.1).delta(0.5), rel=1e-9)


def test_random_angles_in_many_dimensions():
    """A sum of many coordinates depends on the two contributions by their plane alone."""
    loss = accounting.gaussian(1.0, 2.0, adjacency="replace").poisson(
        0.2, removal=accounting.gaussian(1.0)
    )
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 5))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    x = rng.normal(size=(200_000, 5))
    up, down = (0.8 + 0.2 * np.exp(x @ each - 0.5) for each in (a, b))
    found = np.maximum(up - math.exp(0.2) * down, 0)
    error = 5 * found.std() / math.sqrt(found.size)
    assert found.mean() - error <= loss.delta(0.2)
