"""Canaries with signs: the exact tail, what delta moves, how often guesses err, what they prove."""

import itertools

import numpy as np
import pytest
from scipy.stats import beta

import taut
from taut.audit import RunCanaries, audit_one_run
from taut.audit._one_run.signed import _allowed, _failures, _weights, signed_p_value
from taut.noise import SeededForExperiments


def test_tail_is_that_of_all_outcomes():
    by_sign = np.array([[3.0, -4.0], [-3.5, 2.5], [1.8, -1.0], [-3.2, 2.9], [0.7, 0.7]])
    included = np.array([True, False, True, True, True])
    signs = np.array([1, 1, -1, -1, 1])
    allowed = _allowed(0.8)
    weights = np.rint(10 * _weights(by_sign.max(1), by_sign.min(1), allowed))[:4]
    assert (np.diff(weights) <= 0).all()
    seen = weights[[0, 1, 2, 3], [0, 1, 2, 0]].sum()
    tail = sum(
        allowed[list(cases)].prod()
        for cases in itertools.product(range(3), repeat=4)
        if weights[range(4), list(cases)].sum() >= seen
    )
    failing = 5e-4 * _failures(0.8, allowed)
    found = signed_p_value(by_sign, included, signs, 0.8, 1e-4)
    assert found == pytest.approx(tail + failing, abs=1e-11)


def laws(draw):
    """Three laws of a run, for a canary with the sign +1, none and one with -1."""
    return draw.dirichlet(np.full(6, draw.choice([0.05, 0.3, 1.0])), size=3)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.0])
def test_delta_moves_no_more_than_is_added(epsilon):
    draw, allowed = np.random.default_rng(3), _allowed(epsilon)
    factor = np.exp(epsilon)
    for _ in range(3_000):
        positive, none, negative = laws(draw)
        if draw.random() < 0.5:  # near what the bound is about: one law follows from another
            positive = 0.9 * positive + 0.1 * none
            negative = 0.7 * none + 0.3 * negative
        delta = max(
            (one - factor * other).clip(0).sum()
            for one in (positive, negative)
            for one, other in ((one, none), (none, one))
        )
        cases = np.stack([positive / 4, none / 2, negative / 4])
        density = cases.sum(0)
        moved = np.zeros(6)
        for given in (cases, cases[::-1]):
            above = (given[0] - allowed[0] * density).clip(0)
            below = (allowed[2] * density - given[2]).clip(0)
            moved = np.maximum(moved, above + below)
        assert moved.sum() <= delta * _failures(epsilon, allowed) + 1e-12


def rejections(epsilon, delta, tested, runs=800, canaries=60):
    """How often (epsilon, delta)-DP is refuted, of a mechanism that attains it for every canary.

    It says a sign with probability exp(sign epsilon) / (exp(epsilon) + 1), or nothing, which
    attains all odds at once; and the truth with probability delta. The attacker makes up how sure
    he is.
    """
    draw, count, often = np.random.default_rng(5), 0, 1 / (np.exp(epsilon) + 1)
    for _ in range(runs):
        included = draw.random(canaries) < 0.5
        signs = draw.choice([-1, 1], canaries)
        cases = included * signs
        lot = draw.random(canaries)
        plus, minus = often * np.exp(epsilon * cases), often * np.exp(-epsilon * cases)
        said = np.where(lot < plus, 1, np.where(lot < plus + minus, -1, 0))
        sure = (draw.random(canaries) < delta) & included
        said = np.where(sure, signs, said)
        size = np.where(sure, 9.0, epsilon + 0.2 + draw.exponential(1.5, canaries))
        size = np.where(said == 0, -1.0, size)
        other = np.where(said == 0, -1.0, -draw.exponential(2.0, canaries) - epsilon)
        by_sign = np.stack([np.where(said > 0, size, other), np.where(said < 0, size, other)], 1)
        count += signed_p_value(by_sign, included, signs, tested, delta) < 0.05
    return count


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.0, 0.0), (2.0, 2e-4), (1.0, 4e-4)])
def test_what_is_true_is_refuted_no_more_often_than_stated(epsilon, delta):
    wrong = rejections(epsilon, delta, tested=epsilon)
    assert beta.ppf(1e-3, max(wrong, 1), 800 - wrong + 1) <= 0.05


def test_what_is_far_from_true_is_refuted():
    assert rejections(2.0, 0.0, tested=1.0, runs=100) > 80


def of_normal_noise(seed, mu=1.0, count=1_000):
    canaries = RunCanaries.tossed(count, SeededForExperiments(seed), signed=True)
    noise = np.random.default_rng(seed).normal(size=count)
    released = mu * (noise + mu * canaries.included * canaries.signs)
    return canaries, released - mu**2 / 2, -released - mu**2 / 2


def test_truth_is_not_exceeded_and_more_is_proven_than_without_signs():
    truth, signed, known = taut.gaussian(1.0).epsilon(1e-5), [], []
    for seed in range(16):
        canaries, up, down = of_normal_noise(seed)
        scores = canaries.scored(up, log_odds=True, opposite=down)
        signed.append(audit_one_run(scores, delta=1e-5).epsilon_lower)
        unsigned = RunCanaries(canaries.included).scored(scores.values, log_odds=True)
        known.append(audit_one_run(unsigned, delta=1e-5).epsilon_lower)
    assert max(signed) < truth
    assert np.median(signed) > 1.03 * np.median(known)


def test_scores_that_know_nothing_prove_nothing():
    canaries, up, down = of_normal_noise(0)
    for values, other in ((0 * up, 0 * up), (up * 0 + 9, up * 0 + 9), (up[::-1], down[::-1])):
        scores = canaries.scored(values, log_odds=True, opposite=other)
        assert audit_one_run(scores, delta=1e-5).epsilon_lower == 0.0


def test_log_odds_that_are_wrong_cost_power_alone():
    canaries, up, down = of_normal_noise(3)
    for factor in (-1.0, 100.0, 1e300):
        scores = canaries.scored(factor * up, log_odds=True, opposite=factor * down)
        assert audit_one_run(scores, delta=1e-5).epsilon_lower < 2.0


def test_both_coins_are_fair():
    canaries = RunCanaries.tossed(40_000, SeededForExperiments(2), signed=True)
    cells = [
        (canaries.included == kept) & (canaries.signs == s) for kept in (0, 1) for s in (-1, 1)
    ]
    assert all(abs(cell.mean() - 0.25) < 0.012 for cell in cells)


def test_signs_and_scores_belong_together():
    plain, signed = RunCanaries.tossed(40), RunCanaries.tossed(40, signed=True)
    zeros = np.zeros(40)
    for wrong in (
        lambda: plain.scored(zeros, log_odds=True, opposite=zeros),
        lambda: signed.scored(zeros, log_odds=True),
        lambda: signed.scored(zeros, opposite=zeros),
    ):
        with pytest.raises(ValueError, match="opposite must be given, with log_odds=True"):
            wrong()
    with pytest.raises(ValueError, match="opposite must be one finite number"):
        signed.scored(zeros, log_odds=True, opposite=zeros[1:])
    with pytest.raises(TypeError, match="signed"):
        RunCanaries.tossed(40, signed=1)
