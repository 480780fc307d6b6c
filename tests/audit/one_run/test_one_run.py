"""Audits of one run: what they prove, how often they err, what they refuse."""

import json

import numpy as np
import pytest

import taut
from taut.audit import RunCanaries, audit_observations, audit_one_run
from taut.noise import SeededForExperiments


def scored(seed, count=300, mu=1.0):
    canaries = RunCanaries.tossed(count, SeededForExperiments(seed))
    draw = np.random.default_rng(seed)
    return canaries.scored(draw.normal(size=count) + mu * canaries.included)


def test_coins_are_fair_and_cannot_be_changed():
    included = RunCanaries.tossed(20_000).included
    assert abs(included.mean() - 0.5) < 0.02
    with pytest.raises(ValueError, match="read-only"):
        included[0] = True


def test_truth_is_not_exceeded_more_often_than_stated():
    truth, errors = taut.gaussian(1.0), 0
    for seed in range(40):
        result = audit_one_run(scored(seed), delta=1e-3, confidence=0.8)
        errors += result.epsilon_lower > truth.epsilon(1e-3)
    assert errors <= 8


def test_true_claim_passes_and_a_false_one_does_not():
    true = audit_one_run(scored(0, 1_000), delta=1e-5, claimed=taut.gaussian(1.0))
    assert true.passed
    assert 0 < true.mu_lower < 1.0
    assert true.epsilon_lower < true.gaussian_epsilon < taut.gaussian(1.0).epsilon(1e-5)
    false = audit_one_run(scored(0, 1_000, mu=3.0), delta=1e-5, claimed=taut.gaussian(1.0))
    assert not false.passed
    assert "REFUTED" in str(false)
    data = json.loads(false.to_json())
    assert data["passed"] is False
    assert data["guesses"] == 100


def test_noise_says_nothing():
    result = audit_one_run(scored(3, mu=0.0), delta=1e-5, claimed=taut.gaussian(5.0))
    assert result.passed
    assert result.epsilon_lower == 0.0


def test_scores_of_one_kind_are_refused_by_functions_of_the_other():
    scores = scored(0)
    with pytest.raises(TypeError, match="scores of one run are not runs"):
        audit_observations(scores, scores, claimed=taut.gaussian(1.0), delta=1e-3)
    with pytest.raises(TypeError, match="many runs go to audit_observations"):
        audit_one_run(np.zeros(300), delta=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RunCanaries.tossed(5), "at least 20 canaries"),
        (lambda: RunCanaries.tossed(30).scored(np.zeros(29)), "one finite number"),
        (lambda: RunCanaries.tossed(30).scored([np.nan] * 30), "one finite number"),
        (lambda: audit_one_run(scored(0), delta=1e-3, guesses=11), "guesses must be even"),
        (lambda: audit_one_run(scored(0), delta=1e-3, guesses=400), "guesses must be even"),
        (lambda: audit_one_run(scored(0), delta=1e-3, confidence=1.0), "confidence must be"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
