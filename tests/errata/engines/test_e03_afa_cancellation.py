"""E3: the Fourier accountant subtracts numbers of size exp(epsilon) times its quadrature error."""

import math

import pytest

import taut


@pytest.mark.parametrize(
    ("loss", "epsilon", "estimate"),
    [
        (taut.gaussian(10.0), 2.0, -4.3e-9),  # truth 3.7e-91
        (1000 * taut.gaussian(100.0), 2.0, 1.6288e-11),  # truth 1.6291e-11
        (100 * taut.laplace(10.0), 3.0, -4.7e-4),  # truth 1.17e-3
        (taut.gaussian(1 / 3), 25.0, 7.11e-4),  # truth 1.24e-12
    ],
    ids=["negative", "too low", "negative, laplace", "too high"],
)
def test_estimate_is_off_where_the_certified_bounds_are_not(loss, epsilon, estimate):
    value = loss.estimate_delta(epsilon, method="afa")
    bounds = loss.delta_bounds(epsilon)
    assert value == pytest.approx(estimate, rel=0.02)
    assert not bounds.lower <= value <= bounds.upper
    assert 0 < bounds.lower <= bounds.upper < 1


def test_certified_delta_is_right_where_the_estimate_fails():
    mu, epsilon = 3.0, 25.0
    bounds = taut.gaussian(1 / mu).delta_bounds(epsilon)
    # 50-digit value of Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu).
    assert math.isclose(bounds.lower, 1.2357420714313e-12, rel_tol=1e-9)
    assert math.isclose(bounds.upper, 1.2357420714313e-12, rel_tol=1e-9)
