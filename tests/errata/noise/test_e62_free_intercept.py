"""E62: logistic regression whose intercept has no penalty, and a norm in place of its square."""

import math

import numpy as np
import pytest

EPSILON, STRENGTH, NORM = 1.0, 1.0, 1.0  # as released: epsilon, C and the norm of rows
PENALTY = 1 / STRENGTH
LENGTH = math.hypot(NORM, 1.0)  # of a row with the one of the intercept
COMMON = [(0.0, 0.0), (0.0, 1.0)]  # feature and label of the records of both tables
WITH, INSTEAD = [*COMMON, (1.0, 1.0)], [*COMMON, (0.0, 1.0)]


def log_density(table, point, *, penalties, curvature):
    """Return the logarithm of the density of fitted coefficients, up to a public constant.

    The noise of length r in the objective has the density exp(-r / scale), and the coefficients
    that minimise it determine it: densities differ by the determinant of the Hessian.
    """
    rows = np.array([[feature, 1.0] for feature, _ in table])
    labels = np.array([label for _, label in table])
    chances = 1 / (1 + np.exp(-(rows @ point)))
    noise = -((chances - labels) @ rows + penalties * point)
    hessian = (rows.T * chances * (1 - chances)) @ rows + np.diag(penalties)
    left = EPSILON - 2 * math.log1p(curvature / PENALTY)
    assert left > 0  # the branch without a further penalty
    return np.linalg.slogdet(hessian)[1] - np.linalg.norm(noise) * left / (2 * LENGTH)


def loss(point, *, penalties, curvature):
    found = [
        log_density(table, np.array(point), penalties=np.array(penalties), curvature=curvature)
        for table in (WITH, INSTEAD)
    ]
    return found[0] - found[1]


PRINTED = {"penalties": (PENALTY, 0.0), "curvature": 0.25 * LENGTH}
RIGHT = {"penalties": (PENALTY, PENALTY), "curvature": 0.25 * LENGTH**2}


@pytest.mark.parametrize(("size", "least"), [(3.0, 1.07), (5.0, 2.6), (10.0, 7.5), (20.0, 17.5)])
def test_loss_exceeds_epsilon_and_grows_without_bound(size, least):
    assert loss((size, -size), **PRINTED) > least > EPSILON


def test_with_a_penalty_on_all_and_the_square_it_is_below_epsilon():
    points = np.random.default_rng(0).normal(size=(2_000, 2)) * 10
    losses = [abs(loss(point, **RIGHT)) for point in [*points, (3.0, -3.0), (20.0, -20.0)]]
    assert max(losses) <= EPSILON


def test_the_norm_in_place_of_its_square_is_too_small_for_long_rows():
    """The determinant grows by the squared norm: one feature, no intercept, rows up to 100."""
    norm = 100.0
    penalty = 0.25 * norm / math.expm1(EPSILON / 4)  # as released, where epsilon is small
    at_zero = math.log1p(0.25 * norm**2 / penalty) - (EPSILON / 2) * (norm / 2) / (2 * norm)
    assert at_zero > 3 * EPSILON
    penalty = 0.25 * norm**2 / math.expm1(EPSILON / 4)
    assert math.log1p(0.25 * norm**2 / penalty) <= EPSILON / 4 * (1 + 1e-9)
