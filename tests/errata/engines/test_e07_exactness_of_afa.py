"""E7: without discretising the loss the quadrature itself is a discretisation, and can stall."""

import math

import numpy as np
import pytest
from scipy import special

import taut


def test_lattice_losses_have_no_decaying_characteristic_function():
    loss = taut.randomized_response(0.75)
    truth = 0.75 - 0.25 * math.exp(0.05)
    assert loss.delta_bounds(0.05).upper == pytest.approx(truth, rel=1e-9)
    assert loss.estimate_delta(0.05, method="afa") < 0  # 700 nodes; more do not help


@pytest.mark.parametrize(
    ("rate", "sigma", "error"), [(0.01, 2.0, 1e-9), (0.01, 0.5, 4e-4), (0.5, 0.5, 0.04)]
)
def test_inner_quadrature_does_not_resolve_the_oscillation(rate, sigma, error):
    def phi(s, x, weight):
        base = np.exp(-0.5 * (x / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
        moved = np.exp(-0.5 * ((x - 1) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
        loss = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * sigma**2))
        return (weight * ((1 - rate) * base + rate * moved) * np.exp(1j * s * loss)).sum()

    y, weight = special.roots_legendre(700)
    x = y / (1 - y**2)
    jacobian = (1 + y**2) / (1 - y**2) ** 2
    fine = np.linspace(-40 * sigma, 1 + 40 * sigma, 200_001)
    with np.errstate(under="ignore"):
        printed = phi(100.0, x, weight * jacobian)
        reference = phi(100.0, fine, np.full(fine.size, fine[1] - fine[0]))
    found = abs(printed - reference)
    assert found < error if error < 1e-6 else found > error
