"""E45: how likely a loss above 2 epsilon is, with the data and without."""

import math

import numpy as np
import pytest

EPSILON = 0.5
# Losses 2 epsilon and a bit below zero: a release with two outcomes.
WITH = np.array([0.1, 0.9])
WITHOUT = np.array([0.1 * math.exp(-2 * EPSILON), 1 - 0.1 * math.exp(-2 * EPSILON)])


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def test_the_printed_bound_fails_with_the_data():
    losses = np.log(WITH / WITHOUT)
    delta = hockey_stick(WITH, WITHOUT, EPSILON)
    printed = delta / (EPSILON * math.exp(EPSILON))
    large = losses >= 2 * EPSILON * (1 - 1e-12)
    assert WITH[large].sum() == pytest.approx(0.1)
    assert printed == pytest.approx(0.0477, abs=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_the_right_bounds_hold(seed):
    random = np.random.default_rng(seed)
    p, q = random.dirichlet(np.full(12, 0.3), size=2) + 1e-12
    p, q = p / p.sum(), q / q.sum()
    for epsilon in (0.1, 0.5, 1.5):
        large = np.log(p / q) > 2 * epsilon
        delta = hockey_stick(p, q, epsilon)
        assert p[large].sum() <= delta / -math.expm1(-epsilon) + 1e-12
        assert q[large].sum() <= delta / (epsilon * math.exp(epsilon)) + 1e-12
