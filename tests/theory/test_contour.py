"""docs/theory/contour.md: the formula, its one-sided aliases, and the certified bounds."""

import math

import mpmath as mp
import numpy as np
import pytest

import taut
from taut.accounting._pairs.gaussian import GaussianPair


def trapezoid(mu, epsilon, tilt, spacing):
    """Return the untruncated trapezoid rule for one Gaussian loss, from the formula."""
    y = spacing * np.arange(-4000, 4001)
    z = tilt + 1j * y
    integrand = np.exp(0.5 * mu**2 * z * (z + 1) - z * epsilon) / (z * (z + 1))
    return float(integrand.sum().real) * spacing / (2 * math.pi)


@pytest.mark.parametrize("spacing", [0.7, 1.5, 3.0])
def test_rule_equals_delta_plus_every_alias(spacing):
    mu, epsilon, tilt = 1.0, 1.2, 0.8
    period = 2 * math.pi / spacing
    shifts = period * np.arange(-60, 61)
    profile = GaussianPair(mu).profile(epsilon + shifts)
    aliases = np.exp(tilt * shifts) * profile
    value = trapezoid(mu, epsilon, tilt, spacing)
    assert value == pytest.approx(aliases.sum(), rel=1e-11)
    assert value >= profile[60]


def mixture(mu, count, p, epsilon):
    """Return delta of a Gaussian and ``count`` randomized responses, a binomial mixture."""
    mu, p, step = mp.mpf(mu), mp.mpf(p), mp.log(mp.mpf(p) / (1 - mp.mpf(p)))
    total = mp.mpf(0)
    for k in range(count + 1):
        e = mp.mpf(epsilon) - (2 * k - count) * step
        gaussian = mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)
        total += mp.binomial(count, k) * p**k * (1 - p) ** (count - k) * gaussian
    return total


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 8.0, 14.0])
def test_bounds_hold_the_value_of_a_mixture_with_forty_digits(epsilon):
    loss = 4 * taut.gaussian(2.0) + 6 * taut.randomized_response(0.6)
    bounds = loss.delta_bounds(epsilon, tolerance=1e-6)
    with mp.workdps(40):
        truth = mixture(1.0, 6, 0.6, epsilon)
        assert bounds.lower <= truth <= bounds.upper
    assert bounds.gap <= 1e-6 * bounds.upper


def test_failure_mass_enters_once():
    loss = taut.gaussian(1.0) + 2 * taut.approximate(0.3, 1e-3)
    with mp.workdps(40):
        p = 1 / (1 + mp.exp(mp.mpf("-0.3")))
        finite = (1 - mp.mpf(1e-3)) ** 2
        truth = 1 - finite + finite * mixture(1.0, 2, p, 1.5)
        bounds = loss.delta_bounds(1.5, tolerance=1e-6)
        assert bounds.lower <= truth * (1 + mp.mpf(1e-14))
        assert bounds.upper >= truth * (1 - mp.mpf(1e-14))
