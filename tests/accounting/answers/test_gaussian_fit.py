"""Other words for a loss: mu of Gaussian differential privacy, true positives, Bayes risk."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

import taut
from taut import accounting

LOSSES = {
    "laplace": (taut.laplace(1.0), 0.0),
    "pure": (taut.pure(1.0), 0.0),
    "responses": (20 * taut.randomized_response(0.55), 0.0),
    "training": (1_000 * taut.gaussian(1.0).poisson(0.01), 1e-5),
    "mixed": (taut.gaussian(2.0) + 3 * taut.laplace(5.0), 1e-6),
    "failing": (taut.approximate(0.5, 1e-7), 1e-6),
    "batches": (10 * taut.gaussian(2.0, 2.0, adjacency="replace").fixed_size(10, 100), 1e-6),
    "exchange": (taut.laplace(2.0, adjacency="replace"), 0.0),
    "one-sided": (accounting.variance_pair(1.0, 1.1, adjacency="add"), 1e-3),
}


def gaussian_delta(mu, epsilon):
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


class TestGaussian:
    @pytest.mark.parametrize("sigma", [0.1, 1.0, 30.0])
    def test_a_gaussian_has_its_own_mu(self, sigma):
        fit = taut.gaussian(sigma).gdp()
        assert fit.mu.lower <= 1 / sigma <= fit.mu.upper
        assert fit.mu.gap <= 1e-8 / sigma
        assert fit.regret == 0

    def test_gaussians_add_up(self):
        fit = (9 * taut.gaussian(2.0)).gdp()
        assert fit.mu.upper == pytest.approx(1.5)

    def test_a_gaussian_found_again_through_its_curve(self):
        fit = taut.gaussian(1.0).gdp(delta=1e-9)
        assert fit.mu.upper == pytest.approx(1.0, rel=1e-3)
        assert fit.mu.lower <= 1.0
        assert fit.regret <= 1e-3

    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
    def test_randomized_response_in_closed_form(self, epsilon):
        """Dong, Roth and Su (2022): the corner of the trade-off decides."""
        truth = -2 * norm.ppf(1 / (1 + math.exp(epsilon)))
        fit = taut.pure(epsilon).gdp()
        assert fit.mu.lower <= truth <= fit.mu.upper
        assert fit.mu.gap <= 1e-3 * truth

    @pytest.mark.parametrize("name", LOSSES)
    def test_the_gaussian_covers_the_whole_curve(self, name):
        loss, delta = LOSSES[name]
        fit = loss.gdp(delta)
        mu = fit.mu.upper
        for epsilon in np.linspace(0, 1.2 * loss.epsilon(max(delta, 1e-12)), 15).tolist():
            lower = loss.delta_bounds(epsilon).lower
            assert lower <= gaussian_delta(mu, epsilon) + delta + 1e-9

    @pytest.mark.parametrize("name", [name for name in LOSSES if name != "one-sided"])
    def test_no_smaller_one_does(self, name):
        loss, delta = LOSSES[name]
        fit = loss.gdp(delta)
        assert 0 < fit.mu.lower <= fit.mu.upper
        mu = 0.95 * fit.mu.lower
        reach = loss.epsilon(max(delta, 1e-12))
        excess = [loss.delta(e) - gaussian_delta(mu, e) - delta for e in np.linspace(0, reach, 40)]
        assert max(excess) > 0

    @pytest.mark.parametrize("name", [name for name in LOSSES if name != "one-sided"])
    def test_regret_covers_the_difference_of_the_curves(self, name):
        loss, delta = LOSSES[name]
        fit = loss.gdp(delta)
        mu = fit.mu.upper
        for epsilon in np.linspace(0, loss.epsilon(max(delta, 1e-12)), 15).tolist():
            gap = gaussian_delta(mu, epsilon) - loss.delta(epsilon)
            assert gap / (1 + math.exp(epsilon)) <= fit.regret + 1e-9

    def test_regret_shifts_the_trade_off_below_the_gaussian(self):
        loss = taut.laplace(1.0)
        fit = loss.gdp()
        for fpr in np.linspace(0.01, 0.9, 30).tolist():
            shifted = loss.tradeoff(min(fpr + fit.regret, 1.0)) - fit.regret
            assert shifted <= norm.cdf(norm.isf(fpr) - fit.mu.upper) + 1e-6

    def test_nothing_costs_nothing(self):
        assert taut.zero().gdp().mu == (0.0, 0.0)
        assert taut.pure(1e-3).gdp(delta=0.1).mu == (0.0, 0.0)

    @pytest.mark.parametrize(
        ("loss", "delta"),
        [
            (taut.approximate(1.0, 1e-3), 1e-5),
            (taut.gaussian(1.0).poisson(0.01), 0.0),
            (taut.randomized_response(1.0), 0.5),
            (taut.pure(1e4), 1e-6),
        ],
    )
    def test_no_gaussian_covers(self, loss, delta):
        fit = loss.gdp(delta)
        assert fit.mu.upper == math.inf
        assert fit.regret == 1

    def test_known_by_divergences(self):
        fit = taut.from_rdp(lambda order: order / 2).gdp(delta=1e-5)
        assert fit.mu.lower == 0
        assert 1 < fit.mu.upper < 2

    @pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
    def test_delta_must_be_one(self, delta):
        with pytest.raises(ValueError, match="delta"):
            taut.gaussian(1.0).gdp(delta)


class TestAttackers:
    @pytest.mark.parametrize("fpr", [0.0, 0.01, 0.3, 1.0])
    def test_true_positives_of_a_gaussian(self, fpr):
        truth = norm.cdf(norm.ppf(fpr) + 1)
        found = taut.gaussian(1.0).tpr(fpr)
        assert truth <= found <= truth + 1e-3

    @settings(max_examples=25)
    @given(prior=st.floats(0.001, 0.999), mu=st.floats(0.1, 4))
    def test_bayes_risk_of_a_gaussian(self, prior, mu):
        """The likelihood ratio against (1 - prior) / prior is the best test."""
        cut = math.log((1 - prior) / prior) / mu + mu / 2
        truth = prior * norm.cdf(cut - mu) + (1 - prior) * norm.sf(cut)
        found = taut.gaussian(1 / mu).bayes_risk(prior)
        assert found <= truth * (1 + 1e-9)
        assert found == pytest.approx(truth, rel=1e-2, abs=1e-9)

    @settings(max_examples=25)
    @given(prior=st.floats(0, 1), p=st.floats(0.5, 1))
    def test_bayes_risk_of_a_response(self, prior, p):
        truth = min(prior, 1 - prior, 1 - p)
        found = taut.randomized_response(p).bayes_risk(prior)
        assert found <= truth + 1e-12
        assert found == pytest.approx(truth, abs=1e-6)

    def test_asymmetric_losses_are_covered_in_both_directions(self):
        p, q = np.array([0.7, 0.2, 0.1]), np.array([0.3, 0.3, 0.4])
        loss = taut.finite(p, q)
        for prior in (0.1, 0.4, 0.5, 0.8):
            exact = min(np.minimum(prior * a, (1 - prior) * b).sum() for a, b in ((p, q), (q, p)))
            assert loss.bayes_risk(prior) == pytest.approx(exact, abs=1e-9)

    @pytest.mark.parametrize("prior", [-0.1, 1.1, math.nan])
    def test_prior_must_be_a_probability(self, prior):
        with pytest.raises(ValueError, match="prior"):
            taut.gaussian(1.0).bayes_risk(prior)
