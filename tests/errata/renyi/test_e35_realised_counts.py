"""E35: the epsilon of what happened to be released is no guarantee."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

import taut

DELTA, STEP = 1e-5, 0.01
LOSSES = np.arange(-12.0, 25.0, STEP)


def gaussian_epsilon(mu):
    def surplus(epsilon):
        tail = math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        return ndtr(mu / 2 - epsilon / mu) - tail - DELTA

    return brentq(surplus, 0.0, 60.0)


def loss_density(points, square):
    """Return the masses of the loss N(mu^2 / 2, mu^2) of Gaussian steps with total mu^2."""
    z = (points - square / 2) ** 2 / (2 * square)
    return np.exp(-z) / math.sqrt(2 * math.pi * square) * STEP


def true_delta(reports):
    """Return the delta of stopping as soon as the loss exceeds the epsilon that one would report.

    The steps double in number from one look to the next; ``reports`` are the squares of mu so far.
    """
    alive, delta = loss_density(LOSSES, reports[0]), 0.0
    for here, after in zip(reports, [*reports[1:], None], strict=True):
        epsilon = gaussian_epsilon(math.sqrt(here))
        stopped = epsilon < LOSSES
        delta += float(-(alive[stopped] * np.expm1(epsilon - LOSSES[stopped])).sum())
        if after is not None:
            more = after - here
            steps = np.arange(-8 * math.sqrt(more), 8 * math.sqrt(more) + more, STEP)
            moved = np.convolve(np.where(stopped, 0.0, alive), loss_density(steps, more))
            first = round(-steps[0] / STEP)
            alive = moved[first : first + LOSSES.size]
    return delta


def test_whoever_chooses_when_to_stop_spends_more_than_is_reported():
    fixed, chosen = (true_delta([0.25 * 2**i for i in range(looks)]) for looks in (1, 6))
    assert fixed == pytest.approx(DELTA, rel=1e-3)
    assert chosen == pytest.approx(5.26 * DELTA, rel=5e-3)


def test_a_filter_refuses_and_an_odometer_reads_higher():
    step = taut.gaussian(sigma=2.0)  # mu^2 = 0.25
    budget = taut.PrivacyFilter(epsilon=gaussian_epsilon(1.0) * (1 + 1e-9), delta=DELTA)
    for _ in range(4):
        budget.spend(step)
    with pytest.raises(taut.errors.BudgetExceeded):
        budget.spend(step)
    odometer = taut.PrivacyOdometer(delta=DELTA)
    for _ in range(4):
        odometer.spend(step)
    assert odometer.epsilon > gaussian_epsilon(1.0)
