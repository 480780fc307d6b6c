"""Plans keep their budget, and say when a sparse vector is not worth it."""

import math

import numpy as np
import pytest

from taut.adaptive import ExPostDesign, ScalarNoise, plan_svt
from taut.adaptive._sparse_vector.errors_at import best_offset, false_above, false_below
from taut.errors import InfeasibleBudget


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "exponential"])
@pytest.mark.parametrize("scales", [(2.0, 4.0), (3.0, 3.0), (5.0, 1.0)])
def test_errors_by_simulation(kind, scales):
    rng = np.random.default_rng(0)
    draw = {"gaussian": rng.normal, "laplace": rng.laplace}.get(kind)
    size = 400_000
    rho, nu = (
        rng.exponential(scale, size) if draw is None else draw(0.0, scale, size) for scale in scales
    )
    noises = [ScalarNoise(kind, scale) for scale in scales]
    for distance in (-2.0, 0.0, 1.5, 6.0):
        above, below = np.mean(nu - rho >= distance), np.mean(nu - rho < -distance)
        assert false_above(*noises, distance) == pytest.approx(above, abs=5e-3)
        assert false_below(*noises, distance) == pytest.approx(below, abs=5e-3)


def test_offset_makes_errors_equal():
    noises = ScalarNoise("exponential", 2.0), ScalarNoise("exponential", 6.0)
    offset = best_offset(*noises, 10.0)
    assert false_above(*noises, 10.0 + offset) == pytest.approx(
        false_below(*noises, 10.0 - offset), rel=1e-9
    )
    assert best_offset(ScalarNoise("laplace", 1.0), ScalarNoise("laplace", 2.0), 3.0) == 0.0


def test_pure_budgets_take_exponential_noise():
    plan = plan_svt(1.0, 0.0, tops=3, margin=60.0, adjacency="replace")
    assert plan.best.name == "exponential"
    assert plan.is_worth_it
    for option in plan.options:
        assert option.epsilon <= 1.0
        assert option.epsilon > 0.99
    assert [option.error for option in plan.options] == sorted(o.error for o in plan.options)
    assert "is worth it" in str(plan)


def test_few_questions_are_not_worth_it():
    plan = plan_svt(1.0, 1e-6, tops=3, margin=30.0, most_queries=3, adjacency="replace")
    assert not plan.is_worth_it
    assert plan.best.design is None
    assert plan.best.epsilon <= 1.0
    assert plan.best.expected_length == math.inf
    assert "not worth it" in str(plan)
    assert sorted(option.name for option in plan.options) == [
        "exponential",
        "gaussian",
        "laplace",
        "screening",
    ]


def test_many_questions_are_worth_it():
    plan = plan_svt(1.0, 1e-6, tops=20, margin=700.0, most_queries=100_000, adjacency="replace")
    assert plan.is_worth_it
    assert plan.best.name == "exponential"
    assert plan.best.expected_length > 1e5
    assert max(option.epsilon for option in plan.options) <= 1.0
    screening = next(option for option in plan.options if option.name == "screening")
    assert screening.error > 1e6 * plan.best.error


def test_pure_screening_is_laplace_noise_on_every_query():
    plan = plan_svt(1.0, 0.0, tops=2, margin=9.0, most_queries=2, adjacency="replace")
    screening = next(option for option in plan.options if option.name == "screening")
    assert screening.scale == 2.0
    assert screening.error == pytest.approx(0.5 * math.exp(-4.5))
    assert not plan.is_worth_it


def test_queries_of_a_known_range_have_a_row_without_delta():
    plan = plan_svt(
        0.5, 0.0, tops=2, margin=20.0, most_queries=50, query_range=(-20, 20), adjacency="replace"
    )
    (row,) = (option for option in plan.options if option.name == "bounded gaussian")
    assert isinstance(row.design, ExPostDesign)
    assert 2 * row.design.epsilon_above(50) <= row.epsilon <= 0.5
    assert row.epsilon > 0.498
    assert row.expected_length == pytest.approx(2 * (1 - row.error) / row.error)
    assert row.error < next(o for o in plan.options if o.name == "screening").error
    with pytest.raises(ValueError, match="needs most_queries"):
        plan_svt(0.5, 0.0, tops=1, margin=2.0, query_range=(-1, 1), adjacency="replace")


def test_large_budgets_take_the_least_noise_there_is():
    plan = plan_svt(5000.0, 0.0, tops=1, margin=1.0, adjacency="replace")
    assert plan.best.design.threshold_noise.scale == 2.0**-8


def test_many_answers_are_planned_from_a_noise_that_is_far_too_small():
    plan = plan_svt(1.0, 1e-6, tops=10**6, margin=30.0, adjacency="replace")
    assert plan.best.name == "laplace"
    assert plan.best.epsilon <= 1


def test_bad_plans():
    with pytest.raises(ValueError, match="tops"):
        plan_svt(1.0, 1e-6, tops=3, margin=1.0, most_queries=2, adjacency="replace")
    with pytest.raises(ValueError, match="margin"):
        plan_svt(1.0, 1e-6, tops=3, margin=math.nan, adjacency="replace")
    for distances in ((0,), (1, -1), (0, math.inf), (None, 1), (-1, 0, 1), 5, "ab", math.nan):
        with pytest.raises(ValueError, match="query_range must be two numbers"):
            plan_svt(
                1.0, 0.0, tops=1, margin=1.0, most_queries=2, adjacency="replace",
                query_range=distances,
            )  # fmt: skip
    with pytest.raises(ValueError, match="monotone must be True or False"):
        plan_svt(1.0, 0.0, tops=1, margin=1.0, adjacency="replace", monotone="no")
    with pytest.raises(InfeasibleBudget, match="fewer"):
        plan_svt(1e-6, 0.0, tops=3, margin=1.0, adjacency="replace")
