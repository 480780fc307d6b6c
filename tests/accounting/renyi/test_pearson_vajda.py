"""Pearson-Vajda divergences in sufficient precision."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from taut.accounting import renyi


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=2, max_size=4).filter(
        lambda rows: any(p for p, _ in rows)
    )
)
def test_finite_pairs_against_exact_sums(rows):
    p, q = ([Fraction(x, sum(column)) for x in column] for column in zip(*rows, strict=True))
    found = renyi.pearson_vajda(p, q, 6)
    for order in range(2, 7):
        truth = sum(b * (a / b - 1) ** order for a, b in zip(p, q, strict=True))
        assert found[order] == float(truth)


def test_finite_pairs_obey_the_recurrence():
    """chi_l(p || q) is the mean of (p/q - 1)^(l-1) under p less that under q."""
    p, q = np.array([0.2, 0.5, 0.3]), np.array([0.4, 0.4, 0.2])
    found = renyi.pearson_vajda(p.tolist(), q.tolist(), 9)
    for order in range(3, 10):
        power = (p / q - 1) ** (order - 1)
        assert found[order] == pytest.approx(p @ power - q @ power, rel=1e-10)


@pytest.mark.parametrize("p", [0.6, 0.9])
def test_randomized_response(p):
    found = renyi.pearson_vajda([p, 1 - p], [1 - p, p], 9)
    third = (2 * p - 1) ** 3 * (1 / (1 - p) ** 2 - 1 / p**2)
    assert found[3] == pytest.approx(third, rel=1e-12)
    assert min(found.values()) > 0


def test_poisson_counts_fail_the_condition_in_one_direction():
    x = np.arange(40)
    without, with_ = (stats.poisson.pmf(x, mean).tolist() for mean in (1.0, 0.6))
    found = renyi.pearson_vajda(with_, without, 5)
    assert found[3] == pytest.approx(-0.004647, rel=1e-3)
    assert found[5] == pytest.approx(-0.009413, rel=1e-3)
    reverse = renyi.pearson_vajda(without, with_, 5)
    assert reverse[3] == pytest.approx(0.7417, rel=1e-3)
    assert reverse[5] == pytest.approx(127.4, rel=1e-3)


def test_impossible_outcomes():
    assert renyi.pearson_vajda([0.5, 0.5], [1.0, 0.0], 3) == {2: math.inf, 3: math.inf}
    assert renyi.pearson_vajda([1.0, 0.0], [0.5, 0.5], 3) == {2: 1.0, 3: 0.0}
    assert renyi.pearson_vajda([0.3, 0.7, 0.0], [0.3, 0.7, 0.0], 2) == {2: 0.0}


def test_results_beyond_floats_are_infinite():
    assert renyi.pearson_vajda([1.0, 1.0], [1.0, 1e-200], 4)[4] == math.inf
    assert renyi.pearson_vajda_gaussian(0.05, 40)[40] == math.inf


@pytest.mark.parametrize(
    "sigma",
    [
        pytest.param(0.5, marks=pytest.mark.slow),
        1.0,
        5.0,
        pytest.param(100.0, marks=pytest.mark.slow),
    ],
)
def test_gaussian_against_quadrature(sigma):
    found = renyi.pearson_vajda_gaussian(sigma, 9)
    for order in (2, 3, 7, 9):
        with mp.workdps(50):
            s = mp.mpf(sigma)

            def integrand(x, s=s, order=order):
                return mp.npdf(x, 0, s) * mp.expm1((2 * x - 1) / (2 * s * s)) ** order

            middle = mp.mpf(order)
            pieces = [-40 * s, -6 * s, 0, middle / 2, middle, middle + 6 * s, middle + 40 * s]
            truth = mp.quad(integrand, pieces)
        assert found[order] == pytest.approx(float(truth), rel=1e-12)
        assert found[order] > 0


@pytest.mark.parametrize("scale", [0.3, 2.0, 100.0])
def test_laplace_against_quadrature(scale):
    found = renyi.pearson_vajda_laplace(scale, 9)
    for order in (2, 3, 7, 9):
        with mp.workdps(50):
            b = mp.mpf(scale)

            def integrand(x, b=b, order=order):
                return mp.exp(-x / b) / (2 * b) * mp.expm1((2 * x - 1) / b) ** order

            ends = mp.expm1(-1 / b) ** order / 2 + mp.exp(-1 / b) * mp.expm1(1 / b) ** order / 2
            truth = ends + mp.quad(integrand, [0, mp.mpf(1) / 2, 1])
        assert found[order] == pytest.approx(float(truth), rel=1e-12)
        assert found[order] > 0


def test_sensitivity_is_a_unit():
    assert renyi.pearson_vajda_gaussian(2.0, 5, 4.0) == renyi.pearson_vajda_gaussian(0.5, 5)
    assert renyi.pearson_vajda_laplace(2.0, 5, 4.0) == renyi.pearson_vajda_laplace(0.5, 5)


def test_weak_noise_at_high_order_needs_many_digits():
    """chi_l of a small shift is t^(l/2) l! / ((l/2)! 2^(l/2)) to first order, for even l."""
    sigma, order = 1e4, 20
    expected = sigma**-order * math.prod(range(1, order, 2))
    assert renyi.pearson_vajda_gaussian(sigma, order)[order] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: renyi.pearson_vajda([1.0], [0.5, 0.5], 3), ValueError, "one entry per outcome"),
        (lambda: renyi.pearson_vajda([], [], 3), ValueError, "p must be probabilities"),
        (lambda: renyi.pearson_vajda([0.5, 0.5], [1.5, -0.5], 3), ValueError, "q must be"),
        (lambda: renyi.pearson_vajda([0.5, math.nan], [0.5, 0.5], 3), ValueError, "finite"),
        (lambda: renyi.pearson_vajda([0.5, "x"], [0.5, 0.5], 3), TypeError, "real numbers"),
        (lambda: renyi.pearson_vajda([0.5, True], [0.5, 0.5], 3), TypeError, "real numbers"),
        (lambda: renyi.pearson_vajda([0.5, 0.5], [0.5, 0.5], 1), ValueError, "at least 2"),
        (lambda: renyi.pearson_vajda([0.5, 0.5], [0.5, 0.5], 2.0), TypeError, "largest_order"),
        (lambda: renyi.pearson_vajda_gaussian(0.0, 3), ValueError, "sigma must be"),
        (lambda: renyi.pearson_vajda_gaussian(1.0, 3, -1.0), ValueError, "sensitivity must be"),
        (lambda: renyi.pearson_vajda_laplace(math.inf, 3), ValueError, "scale must be"),
        (lambda: renyi.pearson_vajda_laplace(1.0, 3, 0.0), ValueError, "sensitivity must be"),
    ],
)
def test_bad_arguments(ask, error, message):
    with pytest.raises(error, match=message):
        ask()
