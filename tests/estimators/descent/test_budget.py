"""The budget of coordinate descent: mu² adds up to what was promised, however it is shared."""

import math

import numpy as np
import pytest

import taut
from taut.accounting import Adjacency
from taut.errors import InfeasibleBudget
from taut.estimators._descent.budget import Budget

BOUNDS = np.array([1.0, 0.5, 200.0])
CLIPS = np.array([0.3, 2.0, 1e-3])
CURVATURES = np.array([400.0, 7.0, 2e5])
RELATIONS = [Adjacency.ADD_REMOVE, Adjacency.REPLACE]


def budget(relation=Adjacency.ADD_REMOVE, epsilon=1.0):
    return Budget(epsilon, 1e-6, 0.1, relation)


def scales(mechanisms):
    return np.array([float(mechanism.scales[0]) for mechanism in mechanisms])


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", ["curvature", "coefficient"])
@pytest.mark.parametrize("passes", [1, 64])
def test_all_releases_together_keep_the_promise(relation, noise, passes):
    """Counted from clips and scales alone, by what one record can change."""
    one = budget(relation)
    squares = np.square(BOUNDS) / one.curvatures(BOUNDS).scales  # of a one-sided range
    reach = 2.0 if relation is Adjacency.REPLACE else 1.0
    steps = reach * CLIPS / scales(one.steps(CLIPS, CURVATURES, passes, noise))
    mu = math.sqrt(squares @ squares + passes * steps @ steps)
    assert taut.gaussian(1 / mu, adjacency=relation).epsilon(delta=1e-6) <= 1.0
    assert mu == pytest.approx(one.mu, rel=1e-8)
    assert one.loss.epsilon(delta=1e-6) <= 1.0
    assert one.loss.adjacency is relation


def test_curvatures_have_noise_in_proportion_to_their_bounds():
    found = budget().curvatures(BOUNDS).scales / BOUNDS**2
    assert found == pytest.approx(np.full(3, found[0]))
    assert found[0] == pytest.approx(math.sqrt(3 / 0.1) / budget().mu)


def test_noise_for_the_objective_is_proportional_to_clips_that_follow_curvatures():
    """The scales of Mangold et al. (2022), which are called plain."""
    clips = 0.2 * np.sqrt(CURVATURES)
    found = scales(budget().steps(clips, CURVATURES, 5, "curvature"))
    assert found == pytest.approx(clips * math.sqrt(5 * 3 / 0.9) / budget().mu)


def test_noise_for_coefficients_is_that_of_the_paper():
    """sigma_i² = L lambda_i |lambda|_1 / mu², with lambda_i a step of the coefficient."""
    widths = CLIPS / CURVATURES
    found = scales(budget().steps(CLIPS, CURVATURES, 5, "coefficient")) / CURVATURES
    mu = budget().mu * math.sqrt(0.9)
    assert found**2 == pytest.approx(5 * widths * widths.sum() / mu**2)


def test_each_noise_is_the_best_for_what_it_is_meant():
    clips = 0.2 * np.sqrt(CURVATURES)
    plain, paper = (
        scales(budget().steps(clips, CURVATURES, 5, noise)) / CURVATURES
        for noise in ("curvature", "coefficient")
    )
    assert CURVATURES @ plain**2 < CURVATURES @ paper**2
    assert paper @ paper < plain @ plain


def test_promise_that_no_noise_keeps_is_refused():
    with pytest.raises(InfeasibleBudget, match="epsilon"):
        Budget(1e-300, 1e-300, 0.1, Adjacency.ADD_REMOVE)


def test_mechanisms_that_cost_more_are_refused(monkeypatch):
    from taut.errors import UnsoundConfiguration
    from taut.estimators._descent import budget as module

    monkeypatch.setattr(module, "_SPLIT", 0.9)
    with pytest.raises(UnsoundConfiguration, match="passes cost"):
        budget().steps(CLIPS, CURVATURES, 3, "curvature")


@pytest.mark.parametrize("epsilon", [1e-8, 1e-10, 1e-40])
@pytest.mark.parametrize("passes", [2, 3, 64])
def test_steps_of_small_promises_keep_their_share(epsilon, passes):
    one = Budget(epsilon, epsilon, 0.1, Adjacency.ADD_REMOVE)
    steps = CLIPS / scales(one.steps(CLIPS, CURVATURES, passes, "curvature"))
    assert passes * steps @ steps == pytest.approx(0.9 * one.mu**2, rel=1e-8)
