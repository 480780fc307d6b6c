"""Expectations over the threshold are upper bounds, hardly above quadrature."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from taut.adaptive._sparse_vector.floored import Floored


def log_expectation(log_function, mean, deviation):
    """Return the logarithm of an expectation over a normal number, by a fine trapezoidal rule."""
    z = np.linspace(mean - 15 * deviation, mean + 40 * deviation, 200_001)
    logs = stats.norm.logpdf(z, mean, deviation) + log_function(z) + math.log(z[1] - z[0])
    return float(logsumexp(logs))


@pytest.mark.parametrize(
    ("margin", "s1", "s2", "expected"),
    [(0.0, 1.0, math.sqrt(3), 12.964361602524075), (1.0, 1.0, 2.0, 39.9590397884098)],
)
def test_length_moment(margin, s1, s2, expected):
    found = math.exp(Floored(s1, s2, margin).log_length_moment(2.0))
    assert expected * (1 - 1e-9) <= found <= expected * (1 + 1e-4)
    quadrature = log_expectation(lambda z: -2 * stats.norm.logsf((margin + z) / s2), 0.0, s1)
    assert math.exp(quadrature) == pytest.approx(expected, rel=1e-7)


def test_length_moment_is_infinite_where_it_is():
    assert Floored(1.0, 1.4, 1.0).log_length_moment(2.0) == math.inf


@pytest.mark.parametrize("margin", [-5.0, 0.0, 20.0])
@pytest.mark.parametrize(("s1", "s2", "shift", "power"), [(5, 10, 0.2, 1), (1, 1, 1.0, 6)])
def test_ratio_moment(margin, s1, s2, shift, power):
    mean = 3.0
    found = Floored(s1, s2, margin).log_ratio_moment(mean, shift, power)

    def log_ratio(z):
        u = (margin + z) / s2
        return power * (stats.norm.logsf(u - shift) - stats.norm.logsf(u))

    truth = log_expectation(log_ratio, mean, s1)
    assert truth - 1e-12 <= found <= truth + 1e-3
