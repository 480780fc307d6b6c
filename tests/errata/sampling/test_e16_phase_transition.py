"""E16: where the Rényi curve of a sampled Gaussian turns."""

import math

import pytest
from scipy import optimize

import taut


@pytest.mark.parametrize(
    ("rate", "sigma", "printed"), [(0.001, 1.0, 21.5), (0.001, 5.0, 392.2), (0.01, 1.0, 13.3)]
)
def test_the_moment_doubles_at_one_plus_two_sigma_squared_log_of_inverse_rate(rate, sigma, printed):
    loss = taut.gaussian(sigma).poisson(rate)

    def log_moment(order):
        return (order - 1) * loss.rdp(order)

    turn = 1 + 2 * sigma**2 * math.log(1 / rate)
    measured = optimize.brentq(lambda a: log_moment(a) - math.log(2), turn / 2, 2 * turn, xtol=1e-3)
    rule = optimize.brentq(
        lambda a: math.log(a * rate) + a / (2 * sigma**2) + math.log(rate), 1.0001, 10 * turn
    )
    assert rule == pytest.approx(printed, abs=0.1)
    assert measured == pytest.approx(turn, abs=0.1)
    assert rule > 1.1 * measured


def test_before_the_turn_the_curve_is_linear_in_the_order():
    rate = 0.001
    loss = taut.gaussian(1.0).poisson(rate)
    slope = rate**2 * math.expm1(1.0) / 2
    for order in (2.0, 4.0, 8.0):
        assert loss.rdp(order) == pytest.approx(order * slope, rel=0.02)
