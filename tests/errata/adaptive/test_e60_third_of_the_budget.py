"""E60: noise of AdaSSP and AdaOPS that is said to cost a third of the budget."""

import math

import pytest

from taut.accounting import gaussian

DELTA = 1e-6


def excess(epsilon):
    """Return by which factor a release exceeds its third of delta."""
    sigma = math.sqrt(math.log(6 / DELTA)) / (epsilon / 3)
    return gaussian(sigma).delta_bounds(epsilon / 3).lower / (DELTA / 3)


@pytest.mark.parametrize(("epsilon", "factor"), [(1.0, 2.7), (3.0, 11.0), (10.0, 110.0)])
def test_delta_is_exceeded(epsilon, factor):
    assert excess(epsilon) == pytest.approx(factor, rel=0.05)


def test_small_epsilons_are_safe():
    assert excess(0.3) < 1
