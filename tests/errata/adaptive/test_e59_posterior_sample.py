"""E59: the loss of a posterior sample is larger than is printed."""

import math

import numpy as np
import pytest
from oracles.posteriors import hockey_stick, posterior

from taut.accounting import gaussian
from taut.estimators import PosteriorPair

DELTA = 1e-6
BEFORE = [1.0] * 10, [-1.0] * 10
AFTER = [1.0] * 11, [-1.0] * 10 + [1.0]


def printed(precision, lipschitz, strength, delta, bound=1.0):
    """Return the epsilon of Theorem 6.4.7."""
    log = math.log(2 / delta)
    moved = precision * lipschitz**2
    return (
        math.sqrt(moved * log / strength)
        + moved / (2 * (strength + bound**2))
        + (1 + log) * bound**2 / (2 * strength)
    )


def test_printed_epsilon_is_exceeded_by_ten_records():
    claimed = printed(0.1, 2.0, 10.0, DELTA)
    assert claimed == pytest.approx(1.55542, abs=1e-5)
    laws = (posterior(*data, 0.0, 0.1) for data in (BEFORE, AFTER))
    found = hockey_stick(*laws, claimed)
    assert found == pytest.approx(4.34267e-6, rel=1e-4)
    assert found > 4 * DELTA


def test_true_epsilon_is_what_the_pair_says():
    growth, residual = 1 / 10, 2.0
    shift = math.sqrt(0.1 * growth) * residual / (1 + growth)
    pair = PosteriorPair(shift, growth)
    assert pair.epsilon(DELTA) == pytest.approx(1.7601228257, rel=1e-8)
    assert pair.delta(1.5554231) == pytest.approx(4.34267e-6, rel=1e-4)


def test_without_curvature_it_is_below_the_gaussian_mechanism():
    strength = 1e12
    claimed = printed(1.0, math.sqrt(strength), strength, DELTA)
    assert claimed < gaussian(1.0).epsilon_bounds(DELTA).lower - 0.5


def test_removing_a_record_is_not_covered_even_with_right_constants():
    """The last record along a direction: without it nothing but the ridge is left."""
    ridge, precision, epsilon = 0.5, 0.01, 2.0
    with_it = posterior([1.0], [1.0], ridge, precision)
    without = posterior([], [], ridge, precision)
    at_the_data = PosteriorPair(
        math.sqrt(precision / (1 + ridge)) * (1 + with_it[0]), 1 / (1 + ridge)
    )
    truth = hockey_stick(without, with_it, epsilon)
    assert truth > at_the_data.delta(epsilon)
    covering = PosteriorPair(math.sqrt(precision / ridge) * (1 + with_it[0]), 1 / ridge)
    assert truth <= covering.delta(epsilon)


def test_most_parameters_are_violated():
    grid = [(mu, a) for mu in np.geomspace(1e-6, 0.4, 6) for a in np.geomspace(1e-3, 3, 6)]
    violated = 0
    for mu, a in grid:
        claimed = _printed_of(mu, a)
        violated += PosteriorPair(a / (1 + mu), mu).delta(claimed) > DELTA
    assert violated > len(grid) / 2


def _printed_of(mu, a):
    """Return the printed epsilon in terms of mu and A = sqrt(precision mu) |residual|."""
    log = math.log(2 / DELTA)
    return math.sqrt(a**2 * log) + a**2 / (2 * (1 + mu)) + (1 + log) * mu / 2
