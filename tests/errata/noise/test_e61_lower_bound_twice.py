"""E61: a coefficient of linear regression without noise, as its scale takes a lower bound twice."""

import math

import numpy as np
import pytest

import taut

LOWER, UPPER = 0.0, 100.0  # public bounds of the only feature
EPSILON, FEATURES, TARGETS = 1.0, 1, 1
# One part of the budget for every coefficient of the objective: y², xy, x².
PART = EPSILON / (1 + FEATURES * TARGETS + FEATURES * (FEATURES + 1) // 2)


def printed_scale(lower, upper):  # noqa: ARG001  # the upper bound is what is forgotten
    """Return the scale of Laplace noise on the sum of squares of a feature, as released."""
    return max(abs(lower), abs(lower)) ** 2 / PART


def right_scale(lower, upper):
    return max(abs(lower), abs(upper)) ** 2 / PART


def test_ages_and_incomes_have_no_noise_on_their_squares():
    assert printed_scale(LOWER, UPPER) == 0
    assert right_scale(LOWER, UPPER) == 3e4


def test_an_answer_without_noise_tells_a_record():
    """Two tables that differ in one record have different sums of squares, always."""
    random = np.random.default_rng(0)
    ages = np.append(random.uniform(LOWER, UPPER, 50), 37.0)
    sums = [float(np.sum(table**2)) for table in (ages, ages[:-1])]
    draws = {
        one + printed_scale(LOWER, UPPER) * float(random.laplace())
        for one in sums
        for _ in range(5)
    }
    assert draws == set(sums)


@pytest.mark.parametrize("lower", [-1.0, -10.0, -50.0])
def test_bounds_around_zero_have_too_little(lower):
    """The loss is the largest square over the scale: far beyond its part of the budget."""
    spent = UPPER**2 / printed_scale(lower, UPPER)
    loss = taut.laplace(scale=printed_scale(lower, UPPER), sensitivity=UPPER**2)
    assert loss.epsilon(delta=0) == pytest.approx(spent, rel=1e-9)
    assert spent == pytest.approx(PART * (UPPER / lower) ** 2)
    assert spent > EPSILON


def test_right_scale_keeps_its_part():
    loss = taut.laplace(scale=right_scale(LOWER, UPPER), sensitivity=UPPER**2)
    assert loss.epsilon(delta=0) <= PART * (1 + 1e-9)
    assert math.isclose(3 * PART, EPSILON)
