"""An attack on naive tuning: many trials, the best published, with the epsilon of one.

Every trial keeps its promise. A score that dislikes what one record causes makes the published
trial tell about that record all the same: it is what is left if nothing better turned up.
"""

import numpy as np
import pytest

import taut
from taut.accounting import Trials, best_of
from taut.audit import audit_observations

RUNS = 60_000
TRIALS = 20
DELTA = 1e-5
ONE = taut.randomized_response(np.exp(0.5) / (1 + np.exp(0.5)))


def answers(draw, counts, *, present):
    """Return what every search publishes: a bit of randomized response, beside a uniform number.

    Zeros score best; among ones, those with a larger number. Published is zero, or that number.
    """
    truth = np.exp(0.5) / (1 + np.exp(0.5))
    longest = int(counts.max())
    ones = draw.random((counts.size, longest)) < (truth if present else 1 - truth)
    made = np.arange(longest) < counts[:, None]
    number = np.where(made, draw.random((counts.size, longest)), 0.0).max(axis=1)
    return np.where(np.all(ones | ~made, axis=1), number, 0.0)[:, None]


def audited(counts_of, claimed):
    draw = np.random.default_rng(0)
    without, including = (
        answers(draw, counts_of(draw), present=present) for present in (False, True)
    )
    return audit_observations(without, including, claimed=claimed, delta=DELTA)


def test_fixed_number_of_trials_refutes_the_epsilon_of_the_winner():
    result = audited(lambda _: np.full(RUNS, 8), ONE)
    assert not result.passed
    claimed = ONE.epsilon(DELTA)
    assert claimed == pytest.approx(0.5, rel=1e-3)
    assert result.epsilon_lower > 4 * claimed


def test_random_number_of_trials_refutes_it_too():
    result = audited(lambda draw: draw.geometric(1 / TRIALS, RUNS), ONE)
    assert not result.passed
    assert result.epsilon_lower > 1.8 * ONE.epsilon(DELTA)


def test_loss_of_the_search_withstands_the_same_attack():
    claimed = best_of(ONE, Trials.geometric(TRIALS))
    result = audited(lambda draw: draw.geometric(1 / TRIALS, RUNS), claimed)
    assert result.passed
    # The attack is close to the worst case: the bound is no matter of caution.
    assert result.epsilon_lower > 0.7 * claimed.epsilon(DELTA)


def test_gaussian_runs_are_told_apart_by_their_best():
    """Training in one number: the score is public, and the winner betrays more than it says."""
    one, draw = taut.gaussian(sigma=2.0), np.random.default_rng(1)
    without, including = (
        (record + 2.0 * draw.normal(size=(RUNS, 100))).min(axis=1)[:, None] for record in (0.0, 1.0)
    )
    result = audit_observations(without, including, claimed=one, delta=DELTA)
    assert not result.passed
