"""E19: discrete and continuous Gaussian noise are not interchangeable, in either direction."""

import numpy as np
import pytest

import taut


@pytest.mark.parametrize(
    ("count", "discrete", "continuous"), [(1, 2.01134, 1.99309), (10, 7.49525, 7.51128)]
)
def test_either_can_be_the_larger(count, discrete, continuous):
    integer = (count * taut.discrete_gaussian(2.0)).epsilon(1e-5, tolerance=1e-6)
    real = (count * taut.gaussian(2.0)).epsilon(1e-5, tolerance=1e-6)
    assert integer == pytest.approx(discrete, abs=2e-5)
    assert real == pytest.approx(continuous, abs=2e-5)
    assert (integer > real) == (count == 1)


def test_discrete_values_match_a_direct_convolution():
    x = np.arange(-80, 81)
    mass = np.exp(-(x**2) / 8.0)
    mass /= mass.sum()
    total = mass
    for _ in range(9):
        total = np.convolve(total, mass)
    losses = (10 - 2 * np.arange(-800, 801)) / 8.0
    epsilon = (10 * taut.discrete_gaussian(2.0)).epsilon(1e-5, tolerance=1e-6)
    delta = -(total * np.expm1(np.minimum(epsilon - losses, 0.0))).sum()
    assert delta == pytest.approx(1e-5, rel=1e-4)
    assert delta <= 1e-5
