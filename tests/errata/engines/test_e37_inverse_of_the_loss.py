"""E37: a threshold that is rounded up makes delta too small, not too large."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from taut.accounting import mixture_of_gaussians

WEIGHTS, SHIFTS = np.array([0.9, 0.1]), np.array([1.0, 2.0])


def loss(x):
    return math.log(float(WEIGHTS @ np.exp(SHIFTS * x - SHIFTS**2 / 2)))


def delta_at(epsilon, x):
    """Return P(S) - e^epsilon Q(S) for the set S of outputs beyond x."""
    return float(WEIGHTS @ ndtr(SHIFTS - x)) - math.exp(epsilon) * ndtr(-x)


@pytest.mark.parametrize(
    ("epsilon", "precision", "missing"),
    [(2.0, 1e-2, 1.04e-5), (0.7, 0.1, 1.13e-3), (4.0, 0.1, 3.49e-5)],
)
def test_over_estimating_the_inverse_is_not_pessimistic(epsilon, precision, missing):
    exact = brentq(lambda x: loss(x) - epsilon, -20.0, 20.0, xtol=1e-13)
    truth = delta_at(epsilon, exact)
    rounded = math.ceil(exact / precision) * precision
    assert truth - delta_at(epsilon, rounded) == pytest.approx(missing, rel=5e-3)
    for x in np.linspace(exact - 2, exact + 2, 81):
        assert delta_at(epsilon, x) <= truth + 1e-15
    bounds = mixture_of_gaussians(WEIGHTS, SHIFTS, sigma=1.0).delta_bounds(epsilon)
    assert bounds.lower <= truth * (1 + 1e-12)
    assert bounds.upper >= truth * (1 - 1e-12)
