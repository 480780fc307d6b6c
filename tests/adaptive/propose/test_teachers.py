"""How far votes of teachers are from a loss that is too large: the distance a proposal tests."""

import numpy as np
import pytest

import taut
from taut.accounting.diagnostics import data_dependent_gnmax

ORDERS = np.arange(2.0, 257.0)
SIGMA, DELTA = 40.0, 1e-5


def converted(divergences):
    """Return epsilon by the conversion of Canonne, Kamath and Steinke (2020)."""
    excess = np.log1p(-1 / ORDERS) - (np.log(DELTA) + np.log(ORDERS)) / (ORDERS - 1)
    return float((divergences + excess).min())


def loss_within(distance):
    """Return epsilon of twenty labels if one voter of each may be moved, so often."""
    total = np.zeros(ORDERS.size)
    for first, *others in ((380, 12, 8), (300, 60, 40)):
        votes = [first, *(count + 2 * distance for count in others)]
        total += 10 * data_dependent_gnmax(votes, SIGMA, ORDERS).private_value()[1]
    return converted(total)


def test_distances_to_three_budgets():
    # Found by a program of their own, whose distances have sensitivity one on all small histograms.
    assert loss_within(0) == pytest.approx(0.14098, rel=2e-4)
    assert converted(20 * ORDERS / SIGMA**2) == pytest.approx(0.6158015412081491, rel=2e-4)
    losses = np.array([loss_within(d) for d in range(67)])
    assert (np.diff(losses) >= 0).all()
    assert [int((losses > budget).argmax()) for budget in (0.2, 0.3, 0.4)] == [26, 50, 66]


def test_bounds_without_data_are_those_of_the_accountant():
    plain = 20 * taut.gaussian(SIGMA, 2**0.5, adjacency="replace")
    assert plain.rdp(8.0) == pytest.approx(20 * 8 / SIGMA**2)
