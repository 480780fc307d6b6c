"""E10: the example of Figure 3.1 has half the zCDP printed, and does not prove optimality."""

import math

import numpy as np
import pytest

import taut

RESPONSE = taut.pure(1.0)  # randomized response with p = e / (1 + e)


def worst_epsilon(order, delta):
    """Return the largest epsilon of a two-point pair with Rényi divergence order / 2."""
    p = np.linspace(delta + 1e-4, 1 - 1e-9, 2001)
    budget = math.exp((order - 1) * order / 2)
    low, high = np.full_like(p, 1e-30), p.copy()
    for _ in range(120):
        q = np.sqrt(low * high)
        fits = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order) <= budget
        low, high = np.where(fits, low, q), np.where(fits, q, high)
    return np.log((p - delta) / high).max()


def test_both_mechanisms_satisfy_half_zcdp_and_not_only_one():
    orders = np.linspace(1.001, 20.0, 200)
    ratio = max(RESPONSE.rdp(float(a)) / (a / 2) for a in orders)
    assert ratio == pytest.approx(0.924, abs=1e-3)
    assert taut.gaussian(1.0).rdp(7.0) == pytest.approx(3.5)  # order / 2: 1/2-zCDP


def test_the_conversion_used_can_be_improved():
    delta = 0.3
    orders = 1 + np.geomspace(1e-2, 100, 4001)
    used = orders / 2 + np.log(1 - 1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    assert used.min() == pytest.approx(0.8176, abs=1e-4)
    assert worst_epsilon(1.3, delta) == pytest.approx(0.647, abs=2e-3)
    assert RESPONSE.epsilon(delta) == pytest.approx(0.47175, abs=1e-5)
    assert taut.gaussian(1.0).epsilon(delta) == pytest.approx(0.276617, abs=1e-6)
