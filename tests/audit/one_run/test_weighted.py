"""Weighted guesses of one run: their exact tail, how often they err, what counts do not prove."""

import itertools
from functools import partial

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import beta

import taut
from taut.audit import RunCanaries, audit_one_run
from taut.audit._one_run.weighted import grid_lower_bound, weighs_guesses, weighted_p_value
from taut.noise import SeededForExperiments


def test_tail_is_that_of_all_outcomes():
    odds = np.array([3.0, -2.4, 1.9, 0.7, -5.0, 1.2])
    included = np.array([True, False, False, True, True, True])
    weights = np.rint((np.abs(odds) - 0.9) / 0.1).clip(0)
    seen, accuracy, tail = weights[[0, 1, 5]].sum(), expit(0.9), 0.0
    for outcome in itertools.product([0, 1], repeat=6):
        chosen = np.array(outcome)
        chance = np.where(chosen == 1, accuracy, 1 - accuracy).prod()
        tail += chance * (weights @ chosen >= seen)
    found = weighted_p_value(odds, included, 0.9, 1e-4)
    assert found == pytest.approx(tail + 6e-4 * (1 - accuracy), abs=1e-11)


def rejections(epsilon, delta, failure, tested, runs=800, canaries=60):
    """How often (epsilon, delta)-DP is refuted, of a mechanism that attains it for every coin.

    It gives a coin away with probability delta, and answers by randomized response otherwise; the
    attacker knows which answers are sure, and makes up how sure he is of others.
    """
    draw, count = np.random.default_rng(7), 0
    for _ in range(runs):
        included = draw.random(canaries) < 0.5
        sure = draw.random(canaries) < delta
        answers = np.where(draw.random(canaries) < expit(epsilon), included, ~included)
        said = np.where(sure, included, answers)
        size = np.where(sure, 9.0, epsilon + 0.1 + draw.exponential(1.5, canaries))
        odds = np.where(said, size, -size)
        count += weighted_p_value(odds, included, tested, delta) < failure
    return count


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.0, 0.0), (2.0, 2e-4), (1.0, 4e-4)])
def test_what_is_true_is_refuted_no_more_often_than_stated(epsilon, delta):
    wrong = rejections(epsilon, delta, 0.05, tested=epsilon)
    assert beta.ppf(1e-3, max(wrong, 1), 800 - wrong + 1) <= 0.05


def test_what_is_far_from_true_is_refuted():
    assert rejections(2.0, 0.0, 0.05, tested=1.0, runs=100) > 80


def of_normal_noise(seed, mu=1.0, count=1_000):
    canaries = RunCanaries.tossed(count, SeededForExperiments(seed))
    released = np.random.default_rng(seed).normal(size=count) + mu * canaries.included
    return canaries, mu * released - mu**2 / 2


def test_truth_is_not_exceeded_and_more_is_proven_than_by_counting():
    truth = taut.gaussian(1.0).epsilon(1e-5)
    weighted, counted = [], []
    for seed in range(12):
        canaries, odds = of_normal_noise(seed)
        scores = canaries.scored(odds, log_odds=True)
        weighted.append(audit_one_run(scores, delta=1e-5).epsilon_lower)
        counted.append(audit_one_run(canaries.scored(odds), delta=1e-5).epsilon_lower)
    assert max(weighted) < truth
    assert np.median(weighted) > 1.04 * np.median(counted)


def test_log_odds_that_are_wrong_cost_power_alone():
    for factor in (-1.0, 0.0, 100.0):
        canaries, odds = of_normal_noise(3)
        scores = canaries.scored(factor * odds, log_odds=True)
        assert audit_one_run(scores, delta=1e-5).epsilon_lower < 2.0


def test_a_large_delta_leaves_it_to_counting():
    assert weighs_guesses(1_000, 1e-5, 0.05)
    assert not weighs_guesses(1_000, 1e-4, 0.05)
    canaries, odds = of_normal_noise(0)
    both = [
        audit_one_run(canaries.scored(odds, log_odds=sure), delta=1e-3).epsilon_lower
        for sure in (True, False)
    ]
    assert both[0] == both[1]


def test_nothing_is_proven_by_noise_or_without_guesses():
    included = np.arange(40) % 2 == 0
    for odds in (np.zeros(40), np.random.default_rng(0).normal(size=40)):
        p_value = partial(weighted_p_value, odds, included, delta=1e-5)
        assert grid_lower_bound(p_value, 0.05) == 0.0
