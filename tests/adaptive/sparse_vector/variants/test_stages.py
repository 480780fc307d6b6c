"""Stages: as many fresh sparse vectors, the better of two compositions."""

import copy
import os
import pickle

import numpy as np
import pytest

import taut
from taut.adaptive import (
    ScalarNoise,
    SparseVector,
    SparseVectorDesign,
    SparseVectorStages,
    StagedSparseVector,
)
from taut.audit import replay
from taut.errors import BudgetExceeded, InfeasibleBudget, UnsoundConfiguration
from taut.noise import SeededForExperiments


def stage(tops=2, queries=10, kind="laplace"):
    noises = ScalarNoise(kind, 50.0), ScalarNoise(kind, 100.0)
    return SparseVectorDesign(*noises, 1.0, tops, "replace", queries)


def test_composition_is_the_better_of_two():
    stages = SparseVectorStages(stage(), 30)
    delta = 1e-6
    assert stages.loss == 30 * stage().loss
    found = stages.epsilon(delta)
    assert found <= stages.loss.epsilon(delta)
    each = 0.5 * delta / 30
    one = taut.approximate(stage().loss.epsilon(each), each, adjacency="replace")
    assert found <= (30 * one).epsilon(delta)
    assert stages.epsilon(0.0) == pytest.approx(30 * stage().pure_epsilon)
    assert (stages.tops, stages.most_queries) == (60, 300)
    unbounded = SparseVectorDesign(
        ScalarNoise("laplace", 5.0), ScalarNoise("laplace", 5.0), 1.0, 1, "replace"
    )
    assert SparseVectorStages(unbounded, 2).most_queries is None


def test_stages_follow_each_other():
    vector = StagedSparseVector(
        SparseVectorStages(stage(), 3), threshold=0.0, generator=SeededForExperiments(2)
    )
    answers = [vector.ask(1e6) for _ in range(4)]
    assert all(answers)
    assert vector.stages_left == 1
    # The last stage ends at its length.
    assert not any(vector.ask(-1e6) for _ in range(10))
    assert vector.is_exhausted
    with pytest.raises(BudgetExceeded, match="3 stages"):
        vector.ask(0.0)
    assert "0 of 3" in repr(vector)


def test_many_questions_are_one_after_the_other():
    values = [1e6, -1e6, 1e6, None, 1e6, 1e6, -1e6, 1e6, 1e6]
    one, many = (
        StagedSparseVector(
            SparseVectorStages.for_tops(stage(), 5),
            threshold=0.0,
            generator=SeededForExperiments(2),
        )
        for _ in range(2)
    )
    answers = [one.ask(value) for value in values[:-1]]
    assert many.ask_many(values[:3]).tolist() == answers[:3]
    # The last stage has one answer above: what comes after it is not looked at.
    assert many.ask_many(values[3:]).tolist() == answers[3:]
    assert one.is_exhausted
    assert many.is_exhausted
    with pytest.raises(BudgetExceeded, match="3 stages"):
        many.ask_many([0.0])


def test_thresholds_go_with_their_questions():
    vector = StagedSparseVector(SparseVectorStages(stage(1), 3))
    values, levels = [0.0, 1e9, 2e9, 3e9], [1e9, 1e8, 3e9, 1e9]
    assert vector.ask_many(values, levels).tolist() == [False, True, False, True]


def test_stages_that_come_later_are_made_later():
    """A million of them took a minute, and every question looked at all."""
    vector = StagedSparseVector(SparseVectorStages(stage(1), 10**12), threshold=0.0)
    assert vector.ask_many(np.full(50, 1e6)).all()
    assert vector.stages_left == 10**12 - 50


def test_stages_are_not_shared(monkeypatch):
    vector = StagedSparseVector(SparseVectorStages(stage(), 3), threshold=0.0)
    for look in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(UnsoundConfiguration, match="cannot be stored"):
            look(vector)
    monkeypatch.setattr(os, "getpid", lambda: 0)
    with pytest.raises(UnsoundConfiguration, match="another process"):
        vector.ask(0.0)


def test_budget_and_types():
    budget = taut.PrivacyFilter(1.0, 1e-6, kind="renyi", adjacency="replace")
    StagedSparseVector(SparseVectorStages(stage(), 3), threshold=0.0, budget=budget)
    assert budget.remaining.fraction < 1
    with pytest.raises(TypeError, match="stage"):
        SparseVectorStages("stage", 2)
    with pytest.raises(ValueError, match="stages"):
        SparseVectorStages(stage(), 0)
    with pytest.raises(TypeError, match="design"):
        StagedSparseVector(stage())


# --- a smaller last stage --------------------------------------------------------------------


def test_last_stage_has_what_is_left():
    stages = SparseVectorStages.for_tops(stage(), 5)
    assert (stages.stages, stages.last.tops, stages.tops, stages.most_queries) == (2, 1, 5, 30)
    assert stages.loss == 2 * stage().loss + stage(1).loss
    full = SparseVectorStages.for_tops(stage(), 6)
    assert full == SparseVectorStages(stage(), 3)
    assert stages.epsilon(1e-6) < full.epsilon(1e-6)
    assert stages.epsilon(0.0) == pytest.approx(2 * stage().pure_epsilon + stage(1).pure_epsilon)
    assert SparseVectorStages.for_tops(stage(), 1) == SparseVectorStages(stage(1), 1)
    assert stages.epsilon_bounds(1e-6).lower > 0
    vector = StagedSparseVector(stages, threshold=0.0, generator=SeededForExperiments(2))
    assert all(vector.ask(1e6) for _ in range(5))
    with pytest.raises(BudgetExceeded, match="3 stages"):
        vector.ask(0.0)


def test_stages_within_a_budget_are_the_most_that_fit():
    for epsilon in (0.2, 0.9):
        stages = SparseVectorStages.within(stage(), epsilon, 1e-6)
        assert stages.epsilon(1e-6) <= epsilon
        assert SparseVectorStages.for_tops(stage(), stages.tops + 1).epsilon(1e-6) > epsilon
    with pytest.raises(InfeasibleBudget, match="one answer above"):
        SparseVectorStages.within(stage(), 1e-3, 1e-6)


def test_last_stage_differs_in_answers_alone():
    with pytest.raises(ValueError, match="fewer answers above"):
        SparseVectorStages(stage(2), 1, stage(2))
    with pytest.raises(ValueError, match="fewer answers above"):
        SparseVectorStages(stage(2), 1, stage(1, queries=5))
    with pytest.raises(TypeError, match="last"):
        SparseVectorStages(stage(2), 1, "last")


# --- replays ---------------------------------------------------------------------------------

ROWS = np.random.default_rng(0).normal(size=(40, 1))
FAR = [1e6, -1e6, 1e6, -1e6, -1e6, 1e6]  # two answers above, then one: noise changes none


def questions(rows, vector):
    return [vector.ask(float((rows > 0).sum()) + far) for far in FAR]


def test_replay_of_stages_finds_nothing():
    stages = SparseVectorStages.for_tops(stage(), 3)

    def program(rows):
        return questions(rows, StagedSparseVector(stages, threshold=0.0))

    result = replay(program, ROWS, ROWS[:-1], claim=stages.loss)
    assert result.passed, str(result)
    assert {release.kind for release in result.releases} == {"SparseVector"}
    assert len(result.releases) == 6
    assert result.exercised


def test_replay_of_stages_finds_a_query_that_moves_too_far():
    stages = SparseVectorStages(stage(), 2)

    def program(rows):
        vector = StagedSparseVector(stages, threshold=0.0)
        return vector.ask(3.0 * float((rows > -9).sum()))

    (finding,) = replay(program, ROWS, ROWS[:-1]).findings
    assert "moved by more than its declared sensitivity" in finding


def test_replay_of_gaps_finds_nothing_but_what_is_around_them():
    noises = ScalarNoise("laplace", 5.0), ScalarNoise("laplace", 10.0)
    gaps = SparseVectorDesign(*noises, 1.0, 2, "add_remove", 10, gap=True)

    def program(rows):
        vector = SparseVector(gaps, threshold=0.0)
        return [vector.ask_gap(float((rows > level).sum()) + 500.0) for level in (0.0, 1.0)]

    result = replay(program, ROWS, ROWS[:-1], claim=gaps.loss)
    assert result.passed, str(result)
    assert len(result.releases) == 2

    def leaking(rows):
        vector = SparseVector(gaps, threshold=0.0)
        count = float((rows > 0).sum())
        gap = vector.ask_gap(count + 500.0)
        return None if gap is None else gap - count

    neighbour = ROWS[np.arange(40) != int(ROWS.argmax())]
    assert not replay(leaking, ROWS, neighbour).passed
