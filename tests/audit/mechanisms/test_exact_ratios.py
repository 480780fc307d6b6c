"""Bounds by betting on exact ratios: how often they err, and how near they come."""

import numpy as np
import pytest
from scipy.stats import beta

import taut
from taut.audit import audit_mechanism, gaussian_game, laplace_game, sampled_gaussian_game
from taut.audit._mechanisms.exact_ratios import epsilon_of_ratios


def normal_ratios(draw, mu, count):
    return mu * draw.normal(size=count) + mu**2 / 2


@pytest.mark.parametrize("delta", [0.2, 0.03])
def test_truth_is_exceeded_no_more_often_than_stated(delta):
    draw, truth, runs = np.random.default_rng(1), taut.gaussian(1.0).epsilon(delta), 300
    wrong = sum(
        epsilon_of_ratios(normal_ratios(draw, 1.0, 60), normal_ratios(draw, 1.0, 500), delta, 0.2)
        > truth
        for _ in range(runs)
    )
    assert 0 < beta.ppf(1e-3, max(wrong, 1), runs - wrong + 1) <= 0.2


@pytest.mark.parametrize(("sigma", "delta"), [(0.5, 1e-2), (0.5, 1e-3), (1.0, 1e-3), (2.0, 1e-2)])
def test_near_the_truth_where_counts_of_rare_events_are_not(sigma, delta):
    draw, truth = np.random.default_rng(2), taut.gaussian(sigma).epsilon(delta)
    pilot, judges = (normal_ratios(draw, 1 / sigma, n) for n in (20_000, 200_000))
    assert 0.97 * truth < epsilon_of_ratios(pilot, judges, delta, 2.5e-3) <= truth


def test_a_pilot_of_something_else_costs_power_alone():
    draw, truth = np.random.default_rng(3), taut.gaussian(1.0).epsilon(1e-2)
    judges = normal_ratios(draw, 1.0, 50_000)
    for pilot in (np.zeros(9), np.full(9, 50.0), np.full(9, -50.0)):
        assert epsilon_of_ratios(pilot, judges, 1e-2, 1e-2) <= truth


def test_pure_promises_are_not_exceeded_by_rounding():
    result = audit_mechanism(laplace_game(0.7), delta=0.0, trials=20_000, seed=0)
    assert 0.99 * result.claimed_epsilon < result.epsilon_lower <= result.claimed_epsilon


def test_no_audit_of_many_exceeds_what_is_certified():
    games = [gaussian_game(0.5), gaussian_game(3.0), sampled_gaussian_game(0.7, 0.3, 2)]
    for game in games:
        for delta in (1e-5, 1e-3, 0.1):
            for seed in range(5):
                assert audit_mechanism(game, delta=delta, trials=4_000, seed=seed).passed


def test_nothing_follows_from_nothing():
    assert epsilon_of_ratios(np.zeros(0), np.zeros(5), 0.1, 0.1) == 0.0
    assert epsilon_of_ratios(np.zeros(5), np.zeros(0), 0.1, 0.1) == 0.0
    assert epsilon_of_ratios(np.zeros(5), np.zeros(50), 0.1, 0.1) == 0.0


def test_releases_of_one_side_alone_prove_more_than_any_epsilon():
    """Their ratio is infinite, and delta at least their probability."""
    ratios = np.where(np.random.default_rng(0).uniform(size=20_000) < 0.1, np.inf, 0.5)
    assert epsilon_of_ratios(ratios[:2000], ratios[2000:], 0.01, 0.01) > 1e5
    assert epsilon_of_ratios(-ratios[:2000], -ratios[2000:], 0.01, 0.01) == 0
    assert epsilon_of_ratios(ratios[:2000], ratios[2000:], 0.2, 0.01) < 0.5
