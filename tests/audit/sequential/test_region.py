"""Bets against a claim are fair at best, whatever the true rates are that it allows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import taut
from taut.audit._attacks.claim import Claim
from taut.audit._sequential.region import Region

rates = st.floats(1e-6, 1 - 1e-6)
CLAIMS = {
    "gaussian": (taut.gaussian(1.0), 1e-5),
    "sampled": (5 * taut.gaussian(0.5).poisson(0.2), 1e-3),
    "pure": (taut.laplace(1.0), 0.0),
    "large": (taut.gaussian(0.2), 1e-5),
}
REGIONS = {name: Region.of(Claim(*claim)) for name, claim in CLAIMS.items()}


def mean_payoff(bet, fpr, tpr):
    without = (1 - fpr) * bet.payoffs[0, 0] + fpr * bet.payoffs[0, 1]
    including = (1 - tpr) * bet.payoffs[1, 0] + tpr * bet.payoffs[1, 1]
    return (without + including) / 2


@given(st.sampled_from(sorted(CLAIMS)), rates, rates)
def test_mean_is_at_most_one_on_the_whole_region(name, tpr, fpr):
    region = REGIONS[name]
    bet = region.bet(tpr, fpr)
    if bet is None:
        assert tpr <= region.most(np.array(fpr)) + 1e-12
        return
    everywhere = np.linspace(0, 1, 2_001)
    top = region.most(everywhere)
    for share in (0.0, 0.5, 1.0):
        assert mean_payoff(bet, everywhere, share * top).max() <= 1 + 1e-12
    assert bet.payoffs.min() >= 0


@given(rates, rates)
def test_mean_is_at_most_one_on_the_exact_curve_of_a_gaussian(tpr, fpr):
    bet = REGIONS["gaussian"].bet(tpr, fpr)
    alpha = np.linspace(1e-6, 1 - 1e-6, 1_001)
    exact = norm.cdf(norm.ppf(alpha) + 1.0)
    if bet is not None:
        assert mean_payoff(bet, alpha, exact).max() <= 1 + 1e-12


def test_growth_is_that_of_the_best_bet_by_brute_force():
    """Against one line, over all fair payoffs: three numbers, found on a fine grid."""
    region = Region.of_epsilon(1.0, 0.1)
    tpr, fpr = 0.8, 0.1
    slope, most = np.e, -np.inf
    for moved in np.linspace(-2, 1, 61):
        for stake in np.linspace(0.01, 2, 200):
            payoff = (
                1 + stake * np.array([[-moved, -slope - moved], [moved, 1 + moved]]) - stake * 0.05
            )
            if payoff.min() <= 0:
                continue
            chances = np.array([[1 - fpr, fpr], [1 - tpr, tpr]]) / 2
            most = max(most, (chances * np.log(payoff)).sum())
    assert region.bet(tpr, fpr).growth == pytest.approx(most, rel=0.01)


def test_claim_that_allows_everything_is_never_bet_against():
    region = Region.of_epsilon(1.0, 1.0)
    assert region.bet(0.999, 1e-6) is None
