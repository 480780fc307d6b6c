"""E15: toggling the datasets beats the amplification formula only for one-sided divergences."""

import math

import numpy as np
import pytest
from oracles.divergences import divergence
from scipy import stats

import taut

RATE, OUTCOMES = 0.1, np.arange(50)
P, Q = stats.poisson.pmf(OUTCOMES, 1.0), stats.poisson.pmf(OUTCOMES, 0.6)


def formula(order, renyi):
    total = (1 - RATE) ** (order - 1) * (order * RATE - RATE + 1)
    for j in range(2, order + 1):
        weight = math.comb(order, j) * (1 - RATE) ** (order - j) * RATE**j
        total += weight * math.exp((j - 1) * renyi(j))
    return math.log(total) / (order - 1)


def test_formula_is_exceeded_one_sidedly_and_holds_with_both_orders():
    toggled = divergence(P, (1 - RATE) * P + RATE * Q, 3)
    one_sided = formula(3, lambda j: divergence(Q, P, j))
    both = formula(3, lambda j: max(divergence(P, Q, j), divergence(Q, P, j)))
    assert toggled == pytest.approx(0.0026184, rel=1e-4)
    assert one_sided == pytest.approx(0.0025936, rel=1e-4)
    assert both == pytest.approx(0.0049306, rel=1e-4)
    assert one_sided < toggled < both


def test_taut_takes_the_larger_direction():
    p, q = P / P.sum(), Q / Q.sum()
    loss = taut.finite(p, q).poisson(RATE)
    toggled = divergence(p, (1 - RATE) * p + RATE * q, 3)
    assert loss.rdp(3.0) == pytest.approx(toggled, rel=1e-9)
