"""Zhu (2023), Theorem 6.4.11: a bound at one order, printed as if it were a curve."""

import math

import numpy as np
import pytest
from scipy.special import erfc, ndtr

from taut.accounting.diagnostics import data_dependent_gnmax

VOTES, SIGMA = (60, 30, 10), 10.0


def printed(sigma, order):
    """Return the bound as it stands there, the order being a free variable."""
    return math.exp(-2 * order / sigma**2) / order


def winners(votes, sigma):
    """Return how likely every class is to win, by quadrature over its own noise."""
    x, width = np.linspace(-12, 12, 2401, retstep=True)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * width
    found = []
    for i, count in enumerate(votes):
        others = [other for j, other in enumerate(votes) if j != i]
        below = np.prod([ndtr((count - other) / sigma + x) for other in others], axis=0)
        found.append(float(density @ below))
    return np.array(found)


def exact(votes, sigma, order, *, reverse=False):
    """Return the largest divergence over all moves of one vote."""
    here, worst = winners(votes, sigma), 0.0
    for source in range(len(votes)):
        for target in range(len(votes)):
            if source == target:
                continue
            moved = list(votes)
            moved[source], moved[target] = votes[source] - 1, votes[target] + 1
            there = winners(moved, sigma)
            p, q = (there, here) if reverse else (here, there)
            worst = max(worst, math.log((p**order * q ** (1 - order)).sum()) / (order - 1))
    return worst


def test_a_curve_that_falls_is_below_the_truth():
    for order, falls_short in ((20.0, 4), (60.0, 50)):
        truth = exact(VOTES, SIGMA, order)
        assert printed(SIGMA, order) < truth / falls_short
        assert truth <= order / SIGMA**2
    # Divergences rise with the order; the printed expression falls to zero.
    orders = np.array([2.0, 8.0, 20.0, 60.0])
    assert (np.diff([exact(VOTES, SIGMA, a) for a in orders]) > 0).all()
    assert (np.diff([printed(SIGMA, a) for a in orders]) < 0).all()


def test_shipped_bound_holds_at_every_order():
    # By the union bound over both rivals; integrals by mpmath give the forward and reverse values.
    chance = sum(0.5 * erfc((60 - other) / (2 * SIGMA)) for other in (30, 10))
    assert math.log(chance) == pytest.approx(-4.06570446704324)
    for order, forward, backward in (
        (5.0, 0.008446363694448185, 0.010460246042587761),
        (7.5, 0.018295235019905924, 0.021878931157618207),
    ):
        assert exact(VOTES, SIGMA, order) == pytest.approx(forward, rel=1e-6)
        assert exact(VOTES, SIGMA, order, reverse=True) == pytest.approx(backward, rel=1e-6)
    shipped = data_dependent_gnmax(VOTES, SIGMA, [5.0, 7.5, 20.0, 60.0]).private_value()[1]
    # Theorem 6 of Papernot et al. (2018) by hand, and never below the truth.
    assert shipped[:2] == pytest.approx([0.025230639121974496, 0.03917784653778811], rel=1e-6)
    for order, bound in zip((5.0, 7.5, 20.0, 60.0), shipped, strict=True):
        assert exact(VOTES, SIGMA, order) <= bound
