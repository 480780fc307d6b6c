"""The law of the number of trials: generating functions against sums, and draws against both."""

import math
import random
import secrets
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import taut
from taut.accounting import Trials, best_of

LAWS = [
    Trials.geometric(10),
    Trials.logarithmic(7),
    Trials.negative_binomial(12, 2.5),
    Trials.negative_binomial(3, -0.5),
    Trials.poisson(6),
    Trials.geometric(10).capped(15),
    Trials.poisson(3).capped(4),
    Trials.geometric(1),
]


@cache
def masses(trials, most=1_500):
    return np.array([trials.probability(k) for k in range(trials.cap + 1 if trials.cap else most)])


@pytest.mark.parametrize("trials", LAWS, ids=str)
def test_probabilities_add_up_and_have_the_mean(trials):
    p = masses(trials)
    assert math.isclose(p.sum(), 1, rel_tol=1e-9)
    assert math.isclose(np.arange(p.size) @ p, trials.expected, rel_tol=1e-8)


@pytest.mark.parametrize("trials", LAWS, ids=str)
@pytest.mark.parametrize("x", [0.0, 0.3, 0.9, 1.0])
def test_slope_is_that_of_the_generating_function(trials, x):
    p = masses(trials)
    k = np.arange(1, p.size)
    expected = float((k * p[1:]) @ x ** (k - 1.0))
    assert math.isclose(float(trials.slope(np.array([x]))[0]), expected, rel_tol=1e-8)


@pytest.mark.parametrize("trials", LAWS, ids=str)
@pytest.mark.parametrize("delta", [0.0, 1e-12, 0.01, 1.0])
def test_failure_is_that_of_one_run_at_least(trials, delta):
    p = masses(trials)
    expected = float(p @ -np.expm1(np.arange(p.size) * np.log1p(-min(delta, 1 - 1e-16))))
    assert math.isclose(trials.failure(delta), expected, rel_tol=1e-6, abs_tol=1e-25)


@pytest.mark.parametrize("trials", LAWS, ids=str)
def test_draws_follow_the_law(trials):
    bits = random.Random(3).getrandbits
    drawn = np.array([trials.draw(bits) for _ in range(1_000)])
    most = int(drawn.max())
    counts = np.bincount(drawn, minlength=most + 1)
    expected = np.array([trials.probability(k) for k in range(most + 1)]) * drawn.size
    common = expected > 5
    rest = counts[~common].sum(), max(drawn.size - expected[common].sum(), 1e-9)
    chi2 = ((counts - expected)[common] ** 2 / expected[common]).sum()
    chi2 += (rest[0] - rest[1]) ** 2 / max(rest[1], 1.0)
    assert stats.chi2.sf(chi2, common.sum()) > 1e-4


def test_cap_takes_all_that_is_beyond():
    geometric = Trials.geometric(10)
    assert geometric.capped(5).probability(5) == pytest.approx(0.9**4)
    assert geometric.capped(5).probability(6) == 0
    assert max(geometric.capped(3).draw(secrets.randbits) for _ in range(50)) <= 3


@settings(max_examples=30)
@given(st.floats(1.0, 1_000.0), st.floats(0.0, 5.0))
def test_maker_finds_the_mean(mean, shape):
    assert Trials.negative_binomial(mean, shape).expected == pytest.approx(mean, rel=1e-9)


def test_at_most_adds_up():
    assert Trials.geometric(10).at_most(3) == pytest.approx(1 - 0.9**3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Trials.geometric(0.5), "always one trial"),
        (lambda: Trials.geometric(math.nan), "mean must be"),
        (lambda: Trials.geometric(1e6), "from 1 to 10000"),
        (lambda: Trials.negative_binomial(5, -1.0), "shape must be in"),
        (lambda: Trials.negative_binomial(500, -0.9), "choose a larger shape"),
        (lambda: Trials.poisson(0), "mean must be"),
        (lambda: Trials.poisson(1e5), "at most 500"),
        (lambda: Trials("zeta", 0.5), "law must be one of"),
        (lambda: Trials("negative_binomial", 1e-9), "probability of stopping"),
        (lambda: Trials.geometric(10).capped(0), "at least 1"),
        (lambda: Trials.geometric(10).capped(10**9), "leave it out"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("shape", [5e-324, -1e-318, 1e-75, 1e-40, -1e-13])
def test_least_shapes_are_those_of_the_logarithmic_law(shape):
    """Powers of such shapes are one but for denormal numbers, and failures seemed to cost none."""
    near, zero = (Trials("negative_binomial", 0.01, eta) for eta in (shape, 0.0))
    for delta in (1e-300, 1e-9, 0.5, 1.0):
        assert near.failure(delta) == pytest.approx(zero.failure(delta), rel=1e-11, abs=0)
    run = taut.approximate(0.5, 1e-9)
    assert best_of(run, near).epsilon(1e-12) == best_of(run, zero).epsilon(1e-12) == math.inf
    source = random.Random(3)
    numbers = [source.getrandbits(192) for _ in range(50)]
    draws = [[law.draw(lambda _, n=n: n) for n in numbers] for law in (near, zero)]
    assert draws[0] == draws[1]


@pytest.mark.parametrize("mean", [1e-14, 3e-9, 1e-3])
@pytest.mark.parametrize("cap", [1, 2, 5])
def test_rare_trials_under_a_cap_keep_their_digits(mean, cap):
    """The mean is a sum of P(K >= k), each of them a sum of positive terms."""
    terms = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(1, 12)]
    expected = math.fsum(min(k, cap) * term for k, term in enumerate(terms, start=1))
    assert Trials.poisson(mean).capped(cap).expected == pytest.approx(expected, rel=1e-13, abs=0)
