"""E44: with a shuffled order, other examples that are zero are not the worst."""

import pytest
from oracles.shuffled_tree import exact_delta, sampled_delta

import taut
from taut.matrix import shuffled_tree_bounds

SIGMA, EPSILON = 2.0, 2.0


def test_another_example_doubles_delta():
    assert exact_delta([1.0, 0.0], SIGMA, EPSILON) == pytest.approx(0.00027714, rel=2e-3)
    assert exact_delta([1.0, -1.0], SIGMA, EPSILON) == pytest.approx(0.0007392, rel=2e-3)


def test_draws_agree_with_the_grid():
    for other in (0.0, -1.0):
        found, error = sampled_delta([1.0, other], SIGMA, EPSILON)
        assert found == pytest.approx(exact_delta([1.0, other], SIGMA, EPSILON), abs=4 * error)


def test_two_steps_stay_within_the_bounds_of_taut():
    lower, upper = shuffled_tree_bounds(2, SIGMA).delta_bounds(EPSILON)
    assert 0 < lower <= exact_delta([1.0, -1.0], SIGMA, EPSILON) <= upper
    assert upper == pytest.approx(taut.gaussian(SIGMA, 2**0.5).delta(EPSILON))


@pytest.mark.parametrize("others", [[0.0, 0.0, 0.0], [-1.0, -1.0, -1.0], [-1.0, 1.0, -1.0]])
def test_four_steps_stay_within_the_bounds_of_taut(others):
    found, error = sampled_delta([1.0, *others], SIGMA, EPSILON, draws=60_000)
    lower, upper = shuffled_tree_bounds(4, SIGMA).delta_bounds(EPSILON)
    assert error < 0.05 * found
    assert lower <= found + 4 * error
    assert found - 4 * error <= upper
