"""E51: normal noise in proportion to a smooth sensitivity costs more than is printed."""

import math

import pytest
from scipy import integrate, stats

from taut.adaptive import smooth_noise_rdp


def divergence(order, smoothness, sigma):
    """Return that of a neighbour with the smaller smooth sensitivity, by quadrature."""
    ratio = math.exp(-smoothness)

    def integrand(x):
        p = stats.norm.logpdf(x, 0.0, sigma)
        return math.exp(order * p + (1 - order) * stats.norm.logpdf(x, ratio, ratio * sigma))

    total = integrate.quad(integrand, -600, 600, limit=4000, points=[-200, -50, 0, 50])[0]
    return math.log(total) / (order - 1)


def printed(order, sigma):
    """Return the part of Lemma 6.4.12 for the loss itself."""
    return (order + 1) / sigma**2


@pytest.mark.parametrize(("order", "smoothness", "sigma"), [(40, 0.01, 15), (20, 0.01, 100)])
def test_printed_cost_is_below_the_truth_within_its_range(order, smoothness, sigma):
    assert order < 1 / (2 * smoothness)
    exact = smooth_noise_rdp(order, smoothness, sigma)
    assert exact > 2 * printed(order, sigma)
    if sigma == 15:
        assert divergence(order, smoothness, sigma) == pytest.approx(exact, rel=1e-6)
        assert exact == pytest.approx(0.428873, rel=1e-5)


def test_published_theorem_is_below_the_truth_as_well():
    """Theorem 23 of Papernot et al. (2018), at the first of these."""
    order, smoothness, sigma = 40, 0.01, 15
    stated = order * math.exp(2 * smoothness) / sigma**2 + (
        smoothness * order - 0.5 * math.log(1 - 2 * order * smoothness)
    ) / (order - 1)
    assert smooth_noise_rdp(order, smoothness, sigma) > 1.5 * stated


def test_parameters_of_the_algorithm_are_safe():
    for budget in (0.3, 0.58, 1.0, 4.0):
        order = 2 * math.log(2e5) / budget + 1
        sigma = math.sqrt((3 * order + 2) / budget)
        assert smooth_noise_rdp(order, 0.2 / order, sigma) < printed(order, sigma)
