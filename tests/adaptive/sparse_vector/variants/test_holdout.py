"""The reusable holdout: near guesses come back, wrong ones are answered and paid for."""

import math
from fractions import Fraction

import numpy as np
import pytest

import taut
from taut.adaptive import ReusableHoldout
from taut.audit import replay
from taut.errors import BudgetExceeded, UnsoundConfiguration
from taut.noise import SeededForExperiments

SIZE = 2000
HITS = (np.arange(SIZE) % 4 > 0).astype(float)


def made(seed=0, size=SIZE, **change):
    fields = {
        "threshold": 0.1,
        "noise": 0.004,
        "answer_sigma": 0.004,
        "tops": 2,
        "adjacency": "replace",
        **change,
    }
    return ReusableHoldout(size, **fields, generator=SeededForExperiments(seed))


def test_guesses():
    holdout = made()
    assert holdout.check(0.74, HITS) == (0.74, True)
    far = holdout.check(0.2, HITS)
    assert not far.was_near
    assert far.answer == pytest.approx(0.75, abs=0.03)
    assert not holdout.check(0.0, HITS == 1).was_near
    assert holdout.is_exhausted
    with pytest.raises(BudgetExceeded):
        holdout.check(0.5, HITS)
    assert "0 answers left" in repr(holdout)


def test_loss_is_that_of_both_parts():
    holdout = made()
    moved = (1 + 1e-9) / SIZE
    answers = taut.noise.grid_gaussian(0.004, moved, adjacency="replace").loss
    assert holdout.loss == holdout.design.loss + 2 * answers
    budget = taut.PrivacyFilter(3.0, 1e-6, kind="renyi", adjacency="replace")
    made(budget=budget)
    assert budget.remaining.fraction < 1


def test_statistics_are_cut_without_a_word():
    holdout = made()
    wild = np.where(HITS > 0, math.inf, -5.0)
    wild[0] = math.nan
    assert holdout.check(0.75, wild).was_near


def test_bad_arguments():
    with pytest.raises(UnsoundConfiguration, match="replace"):
        made(adjacency="add_remove")
    for guess in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="guess"):
            made().check(guess, HITS)
    with pytest.raises(ValueError, match="one number for each"):
        made().check(0.5, HITS[:-1])
    with pytest.raises(ValueError, match="failure"):
        made().accuracy(10, 0.0)


def test_accuracy_falls_with_the_number_of_questions():
    holdout = made(size=10**6, noise=2e-5, answer_sigma=2e-5, threshold=0.01, tops=3)
    promised = holdout.accuracy(100, failure=0.1)
    assert 0.01 < promised < 0.6
    assert holdout.accuracy(10**6, failure=0.1) > promised


def test_replay():
    def program(rows):
        holdout = made()
        return [holdout.check(guess, rows) for guess in (0.74, 0.1, 0.7)]

    other = HITS.copy()
    other[5] = 1 - other[5]
    result = replay(program, HITS, other, adjacency="replace")
    assert result.passed, result.findings
    assert result.exercised


@pytest.mark.parametrize("size", [1, 3, 10**4, 10**9 + 7, 10**12])
def test_the_rounding_of_means_is_part_of_their_sensitivity(size):
    holdout = ReusableHoldout(
        size, threshold=0.1, noise=64 / size, answer_sigma=64 / size, tops=1, adjacency="replace"
    )
    # Sum, quotient and distance, each good to half a unit in the last place of numbers below one.
    assert Fraction(holdout.design.sensitivity) >= Fraction(1, size) + 6 * Fraction(2) ** -53
