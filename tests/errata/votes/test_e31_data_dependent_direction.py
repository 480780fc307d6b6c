"""E31: the data-dependent bounds on a noisy winner hold in one direction only."""

import math

import pytest
from scipy.special import ndtr

import taut
from taut.accounting.diagnostics import data_dependent_gnmax, data_dependent_lnmax


def divergence(p, q, order):
    """Return the divergence of one bit from another, given its rarer outcome."""
    return math.log(p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)) / (
        order - 1
    )


def theorem_6(q, sigma, order):
    """Return the bound of Papernot et al. (2018) where its conditions hold."""
    mu_2 = sigma * math.sqrt(-math.log(q))
    mu_1 = mu_2 + 1
    e_1, e_2 = mu_1 / sigma**2, mu_2 / sigma**2
    turns = math.log(mu_1 / (mu_1 - 1)) + math.log(mu_2 / (mu_2 - 1))
    assert mu_2 > 1
    assert order <= mu_1
    assert math.log(q) <= (mu_2 - 1) * e_2 - mu_2 * turns
    a = (1 - q) / (1 - (q * math.exp(e_2)) ** ((mu_2 - 1) / mu_2))
    b = math.exp(e_1) * q ** (-1 / (mu_1 - 1))
    return math.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1)


def theorem_3(q, scale, order):
    """Return the bound of Papernot et al. (2017) where its condition holds."""
    loss, moment = 2 / scale, order - 1
    assert q < math.expm1(loss) / math.expm1(2 * loss)
    stay = (1 - q) * ((1 - q) / (1 - math.exp(loss) * q)) ** moment
    return math.log(stay + q * math.exp(loss * moment)) / moment


def test_gaussian_noise():
    sigma, order = 1.23, 2
    here, there = (float(ndtr(-gap / (math.sqrt(2) * sigma))) for gap in (196 - 187, 195 - 188))
    bound = theorem_6(here, sigma, order)
    assert divergence(here, there, order) <= bound
    assert divergence(there, here, order) > 37 * bound
    one_sided = data_dependent_gnmax([196, 187], sigma, [order]).private_value()[1][0]
    reverse = data_dependent_gnmax([196, 187], sigma, [order], reverse=True)
    assert one_sided == pytest.approx(bound, rel=1e-9)
    assert divergence(there, here, order) <= reverse.private_value()[1][0]


def test_laplace_noise():
    scale, order = 2.0, 4
    # The difference of two Laplace variables exceeds g scales with probability (2 + g) e^-g / 4.
    here, there = ((2 + gap / scale) / 4 * math.exp(-gap / scale) for gap in (30 - 10, 29 - 11))
    bound = theorem_3(here, scale, order)
    assert bound == pytest.approx(0.001099, abs=1e-6)
    assert divergence(here, there, order) <= bound
    assert divergence(there, here, order) == pytest.approx(0.001431, abs=1e-6)
    reverse = data_dependent_lnmax([30, 10], scale, [order], reverse=True)
    assert divergence(there, here, order) <= reverse.private_value()[1][0]


def test_no_guarantee_is_made_of_the_value():
    secret = data_dependent_gnmax([196, 187], 1.23, [2.0])
    with pytest.raises(taut.errors.UnsoundConfiguration, match="no guarantee"):
        taut.gaussian(1.0) + secret
