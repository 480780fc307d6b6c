"""docs/theory/exponential.md: the bounded-range profile, its pair and its zCDP bound."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate

import taut
from taut import accounting


def profile(range_, x):
    """Return h(exp(x)) as the page states it."""
    if abs(x) > range_:
        return max(1 - math.exp(x), 0.0)
    return (1 - math.exp(-(range_ - x) / 2)) ** 2 / (1 - math.exp(-range_))


@pytest.mark.parametrize("range_", [0.1, 1.0, 4.0])
def test_random_exponential_mechanisms_stay_below(range_):
    rng = np.random.default_rng(2)
    thresholds = np.linspace(-range_, range_, 21)
    for _ in range(300):
        utility = rng.normal(scale=3.0, size=5)
        moved = utility + rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], size=5)
        p, q = np.exp(range_ / 2 * utility), np.exp(range_ / 2 * moved)
        p, q = p / p.sum(), q / q.sum()
        for x in thresholds:
            assert np.maximum(p - math.exp(x) * q, 0).sum() <= profile(range_, x) + 1e-12


@pytest.mark.parametrize("x", [-0.9, -0.3, 0.0, 0.5, 1.0])
def test_two_outcomes_attain_each_point(x):
    range_ = 1.2
    s = (range_ + x) / 2
    high, low = math.exp(s), math.exp(s - range_)
    q = np.array([(1 - low) / (high - low), (high - 1) / (high - low)])
    p = q * np.array([high, low])
    assert p.sum() == pytest.approx(1)
    assert np.maximum(p - math.exp(x) * q, 0).sum() == pytest.approx(profile(range_, x))


@pytest.mark.parametrize("range_", [0.3, 2.0])
def test_pair_has_the_profile_and_the_cumulant(range_):
    loss = taut.exponential(range_)

    def density(at):
        return math.exp(at / 2) / (4 * math.sinh(range_ / 2))

    for x in (-0.8 * range_, 0.0, 0.4 * range_):
        value, _ = integrate.quad(lambda v, x=x: density(v) * -math.expm1(x - v), x, range_)
        assert value == pytest.approx(profile(range_, x), rel=1e-9)
        assert loss.profile(math.exp(x)) == pytest.approx(profile(range_, x), rel=1e-9)
    for z in (0.5, 3.0, 20.0):
        value, _ = integrate.quad(lambda v, z=z: density(v) * math.exp(z * v), -range_, range_)
        assert loss.log_mgf(z).real == pytest.approx(math.log(value), rel=1e-9)


def test_cumulants_of_releases_obey_the_zcdp_bound():
    range_ = 1.5
    for s in np.linspace(0.01, range_ - 0.01, 30):
        high, low = math.exp(s), math.exp(s - range_)
        q = np.array([(1 - low) / (high - low), (high - 1) / (high - low)])
        for z in (0.1, 1.0, 5.0, 50.0):
            cumulant = math.log((q * np.array([high, low]) ** (z + 1)).sum())
            assert cumulant <= range_**2 / 8 * z * (z + 1) + 1e-12


def test_answer_takes_the_smaller_of_both_bounds():
    assert (50 * taut.exponential(0.2)).epsilon(1e-6) == pytest.approx(3.542, abs=2e-3)
    assert (10 * taut.exponential(0.5)).epsilon(1e-6) == pytest.approx(3.813, abs=4e-3)


def permute_and_flip(epsilon, utilities):
    """Return the probability of every candidate, over all orders in which they are visited."""
    accept = np.exp(epsilon / 2 * (utilities - utilities.max()))
    chosen = np.zeros(utilities.size)
    for order in itertools.permutations(range(utilities.size)):
        left = 1.0
        for candidate in order:
            chosen[candidate] += left * accept[candidate]
            left *= 1 - accept[candidate]
    return chosen / math.factorial(utilities.size)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_random_selections_by_permute_and_flip_stay_below(epsilon):
    rng = np.random.default_rng(5)
    loss = accounting.permute_and_flip(epsilon)
    thresholds = np.linspace(-epsilon, epsilon, 9)
    bounds = [loss.profile(math.exp(x)) for x in thresholds]
    for _ in range(60):
        utility = rng.normal(scale=2.0, size=4)
        moved = utility + rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], size=4)
        p, q = (permute_and_flip(epsilon, u) for u in (utility, moved))
        assert p.sum() == pytest.approx(1)
        for x, bound in zip(thresholds, bounds, strict=True):
            assert np.maximum(p - math.exp(x) * q, 0).sum() <= bound + 1e-12


@pytest.mark.parametrize("x", [-0.9, -0.3, 0.0, 0.5, 1.0])
def test_two_candidates_attain_each_point_of_permute_and_flip(x):
    epsilon = 1.2
    best = 0.0
    for gap in np.linspace(-3, 3, 601):
        p, q = (permute_and_flip(epsilon, np.array(u)) for u in ([0.0, gap], [1.0, gap - 1]))
        best = max(best, np.maximum(p - math.exp(x) * q, 0).sum())
    bound = accounting.permute_and_flip(epsilon).profile(math.exp(x))
    assert best <= bound <= best + 1e-4


def test_lower_bounds_of_permute_and_flip_are_reached():
    epsilon, delta = 0.5, 1e-3
    p, q = (permute_and_flip(epsilon, np.array(u)) for u in ([0.0, 1.0], [1.0, 0.0]))
    lower, upper = (10 * accounting.permute_and_flip(epsilon)).epsilon_bounds(delta)
    reached = (10 * accounting.finite(p, q)).epsilon(delta)
    assert lower <= reached <= upper
    assert lower == pytest.approx(reached, rel=1e-3)


def test_permute_and_flip_needs_an_epsilon():
    with pytest.raises(ValueError, match="epsilon"):
        accounting.permute_and_flip(0.0)
