"""Rates and claims: known numbers, and bounds on the safe side of exact ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

import taut
from taut.audit._attacks.attack import rate_at_least, rate_at_most
from taut.audit._attacks.claim import Claim, epsilon_at_least
from taut.errors import UnsoundConfiguration


def test_no_hit_in_a_hundred():
    assert rate_at_most(0, 100, 0.05) == pytest.approx(1 - 0.05**0.01, rel=1e-12)
    assert rate_at_least(0, 100, 0.05) == 0.0


def test_all_hits():
    assert rate_at_least(100, 100, 0.05) == pytest.approx(0.05**0.01, rel=1e-12)
    assert rate_at_most(100, 100, 0.05) == 1.0


@given(st.integers(1, 400), st.data())
def test_bounds_are_those_of_clopper_and_pearson(trials, data):
    hits = data.draw(st.integers(0, trials))
    exact = binomtest(hits, trials).proportion_ci(0.98, "exact")
    assert rate_at_least(hits, trials, 0.01) == pytest.approx(exact.low, abs=1e-9)
    assert rate_at_most(hits, trials, 0.01) == pytest.approx(exact.high, abs=1e-9)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_claim_of_a_gaussian_covers_its_tradeoff(sigma):
    claim = Claim(taut.gaussian(sigma), 1e-6)
    fpr = np.linspace(0.001, 0.999, 200)
    best = norm.cdf(norm.ppf(fpr) + 1 / sigma)
    slack = claim.allowed(fpr) - best
    assert slack.min() >= -1e-9
    assert slack.max() < 0.03


def test_claim_covers_both_orders_of_a_sampled_gaussian():
    loss = 5 * taut.gaussian(0.5).poisson(0.2)
    claim = Claim(loss, 1e-6)
    for fpr in (0.01, 0.1, 0.5, 0.9):
        assert 1 - loss.tradeoff(fpr) <= claim.allowed(fpr) + 1e-9
    assert claim.allowed(0.0) <= 1 - 0.8**5 + 1e-3  # without sampling nothing can be seen


@pytest.mark.parametrize(
    ("tpr", "fpr", "delta", "epsilon"),
    [
        (0.8, 0.1, 0.0, np.log(8)),
        (0.8, 0.1, 0.3, np.log(5)),
        (0.9, 0.8, 0.0, np.log(2)),  # the complement: 0.2 against 0.1
        (0.1, 0.1, 0.0, 0.0),
        (0.05, 0.1, 0.2, 0.0),
        (0.5, 0.0, 0.1, np.inf),
    ],
)
def test_epsilon_of_rates(tpr, fpr, delta, epsilon):
    assert epsilon_at_least(tpr, fpr, delta) == pytest.approx(epsilon)


def test_one_half_is_refused():
    with pytest.raises(UnsoundConfiguration, match="both orders"):
        Claim(taut.gaussian(1.0, adjacency="add"), 1e-5)


def test_claim_without_promise_is_refused():
    with pytest.raises(ValueError, match="promises nothing"):
        Claim(taut.approximate(1.0, 1e-3), 1e-5)
