"""Stages: as many fresh sparse vectors, the better of two compositions."""

import pytest

import taut
from taut.adaptive import ScalarNoise, SparseVectorDesign, SparseVectorStages, StagedSparseVector
from taut.errors import BudgetExceeded
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
