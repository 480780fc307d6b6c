"""E24: leaving out the remainder, or the small digits, of the worst record under-reports."""

import math

import pytest

from taut.accounting import coordinatewise


def cell(order, rate, half_square):
    terms = (
        math.comb(order, v) * (1 - rate) ** (order - v) * rate**v * math.expm1(v * (v - 1) * x)
        for v, x in ((v, half_square) for v in range(2, order + 1))
    )
    return math.log1p(math.fsum(terms)) / (order - 1)


@pytest.mark.parametrize(
    ("clip_inf", "whole", "truth"), [(0.3, 0.105481, 0.106335), (0.75, 1.92894, 2.84258)]
)
def test_rounding_down_leaves_out_a_coordinate(clip_inf, whole, truth):
    order, rate, sigma = 6, 0.1, 0.6
    count = math.floor(1 / clip_inf**2)
    rest = 1 - count * clip_inf**2
    floor = count * cell(order, rate, clip_inf**2 / (2 * sigma**2))
    exact = floor + cell(order, rate, rest / (2 * sigma**2))
    assert floor == pytest.approx(whole, rel=1e-5)
    assert exact == pytest.approx(truth, rel=1e-5)
    loss = coordinatewise(rate, sigma, clip_inf=clip_inf, dimension=1000)
    assert loss.rdp(order) == pytest.approx(exact, rel=1e-9)
    assert loss.rdp(order) >= exact * (1 - 1e-12)


def test_the_printed_sum_loses_its_digits_before_it_is_multiplied():
    order, rate, count = 8, 0.001, 10**10
    weights = [math.comb(order, v) * (1 - rate) ** (order - v) * rate**v for v in range(order + 1)]
    printed = sum(w * math.exp(v * (v - 1) / count / 2) for v, w in enumerate(weights))
    naive = count * math.log(printed) / (order - 1)
    truth = count * cell(order, rate, 1 / count / 2)
    assert truth == pytest.approx(4.0000000002e-6, rel=1e-9)
    assert naive < 0.96 * truth
    loss = coordinatewise(rate, 1.0, clip_inf=1e-5, dimension=10**11)
    assert loss.rdp(order) == pytest.approx(truth, rel=1e-8)
    assert loss.rdp(order) >= truth
