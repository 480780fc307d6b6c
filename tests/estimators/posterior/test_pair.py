"""The pair of two posteriors: exact values, rounded up, and what they cover."""

import math

import numpy as np
import pytest
from oracles.posteriors import exact_profile, hockey_stick
from scipy import integrate, stats

import taut
from taut.accounting import gaussian_mu
from taut.estimators import PosteriorPair
from taut.estimators._posterior.pair import has_shift, largest_shift

PAIRS = [(1e-3, 1e-8), (0.2, 0.01), (0.5, 1e-12), (1.0, 0.3), (3.0, 2.0), (0.0, 0.1), (1e-6, 1e-6)]


@pytest.mark.parametrize(("shift", "growth"), PAIRS)
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 2.0, 8.0])
def test_profile_is_that_of_the_densities_rounded_up(shift, growth, epsilon):
    exact = exact_profile(shift, growth, epsilon)
    ours = PosteriorPair(shift, growth).delta(epsilon)
    assert ours >= exact
    if exact > 1e-250:
        assert ours == pytest.approx(float(exact), rel=1e-4 if shift < 0.01 else 1e-9)


@pytest.mark.parametrize("growth", [0.0, 5.0, 1e12])
def test_profile_goes_on_to_the_largest_epsilon(growth):
    assert 0 < PosteriorPair(0.2, growth).delta(1e308) <= PosteriorPair(0.2, growth).delta(1e3)


def test_profile_is_that_of_a_quadrature():
    for shift, growth, epsilon in [(1.0, 0.3, 0.5), (0.4, 1.5, 1.0), (2.0, 0.01, 2.0)]:
        laws = (0.0, 1.0), (shift, 1 / math.sqrt(1 + growth))
        assert PosteriorPair(shift, growth).delta(epsilon) == pytest.approx(
            hockey_stick(*laws, epsilon), abs=1e-8
        )


def test_without_growth_the_pair_is_gaussian():
    for mu in (1e-3, 0.1, 1.0, 6.0):
        loss = taut.gaussian(1 / mu)
        for delta in (1e-3, 1e-6, 1e-12):
            known = loss.epsilon(delta)
            assert PosteriorPair(mu, 0.0).epsilon(delta) == pytest.approx(known, rel=1e-6, abs=1e-9)
    assert largest_shift(0.0, epsilon=1.0, delta=1e-6) == pytest.approx(gaussian_mu(1.0, 1e-6))


def test_no_record_costs_nothing():
    pair = PosteriorPair(0.0, 0.0)
    assert pair.delta(0.0) == 0.0
    assert pair.epsilon(1e-9) == 0.0


def test_epsilon_is_the_inverse_of_delta():
    pair = PosteriorPair(0.3, 0.05)
    for delta in (0.1, 1e-5, 1e-15, 1e-100):
        epsilon = pair.epsilon(delta)
        assert pair.delta(epsilon) <= delta
        assert pair.delta(epsilon * (1 - 1e-9)) >= delta * (1 - 1e-6)
    assert PosteriorPair(1e6, 0.0).epsilon(1e-6) == math.inf


def test_renyi_divergence_is_that_of_a_quadrature():
    for shift, growth, order in [
        (0.5, 0.1, 2.0),
        (1.0, 0.01, 20.0),
        (0.0, 0.3, 3.0),
        (2.0, 0.0, 5.0),
    ]:
        q = stats.norm(shift, 1 / math.sqrt(1 + growth))

        def integrand(x, q=q, order=order):
            return math.exp(order * stats.norm.logpdf(x) + (1 - order) * q.logpdf(x))

        total = integrate.quad(integrand, -60, 60, limit=2000, points=[-9, 0, 9])[0]
        ours = PosteriorPair(shift, growth).renyi(order)
        assert ours == pytest.approx(math.log(total) / (order - 1), rel=1e-7)
    assert PosteriorPair(0.1, 0.5).renyi(3.0) == math.inf


def test_renyi_divergence_of_next_to_nothing_is_not_negative():
    assert 0 <= PosteriorPair(0.0, 1e-9).renyi(2.0) < 1e-12


class TestLoss:
    @pytest.mark.parametrize("relation", ["add_remove", "zero_out"])
    def test_is_the_pair_with_next_to_no_slack(self, relation):
        pair = PosteriorPair(0.5, 0.1)
        loss = pair.loss(adjacency=relation, tight_at=2.0)
        assert loss.epsilon(pair.delta(2.0)) == pytest.approx(2.0, rel=1e-9)
        for delta in (1e-2, 1e-6, 1e-10):
            exact = pair.epsilon(delta)
            assert exact * (1 - 1e-9) <= loss.epsilon(delta) <= exact * (1 + 1e-3)

    def test_composes_far_below_the_sum(self):
        pair = PosteriorPair(0.1, 0.001)
        many = 100 * pair.loss(adjacency="add_remove")
        assert many.epsilon(1e-6) < 30 * pair.epsilon(1e-6)
        assert many.epsilon(1e-6) >= (100 * taut.gaussian(10.0)).epsilon(1e-6)

    def test_of_an_exchange_is_that_of_two_records(self):
        pair = PosteriorPair(0.3, 0.02)
        loss = pair.loss(adjacency="replace", tight_at=2.0)
        at = (1 + math.e) * pair.delta(1.0)
        assert loss.epsilon(at) == pytest.approx(2.0, rel=1e-9)

    def test_counts_failures_of_the_sampler(self):
        plain, failing = (
            PosteriorPair(0.3, 0.02).loss(adjacency="add_remove", failure=failure)
            for failure in (0.0, 1e-7)
        )
        assert failing.delta(1.0) >= plain.delta(1.0) + 1e-7

    def test_of_huge_pairs_stays_a_loss(self):
        assert PosteriorPair(1e5, 1e3).loss(adjacency="replace").delta(1.0) == pytest.approx(1.0)


class TestLargestShift:
    @pytest.mark.parametrize("growth", [0.0, 1e-6, 0.01, 0.05])
    def test_keeps_the_promise_and_no_larger_one_does(self, growth):
        shift = largest_shift(growth, epsilon=1.0, delta=1e-6)
        assert PosteriorPair(shift, growth).delta(1.0) <= 1e-6
        assert PosteriorPair(shift * (1 + 1e-9), growth).delta(1.0) > 1e-6 * (1 - 1e-6)

    def test_is_none_where_growth_alone_costs_more(self):
        assert largest_shift(0.3, epsilon=1.0, delta=1e-6) is None
        assert not has_shift(1e13, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    "given",
    [{"shift": -1.0}, {"growth": -1e-9}, {"shift": 2e6}, {"growth": 1e13}, {"shift": np.nan}],
)
def test_bad_bounds_are_refused(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        PosteriorPair(**{"shift": 0.1, "growth": 0.1, **given})


def test_bad_questions_are_refused():
    pair = PosteriorPair(0.1, 0.1)
    with pytest.raises(ValueError, match="epsilon"):
        pair.profile(-0.1)
    with pytest.raises(ValueError, match="delta"):
        pair.epsilon(1.0)
    with pytest.raises(ValueError, match="order"):
        pair.renyi(1.0)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_loss_that_is_to_be_tight_beyond_all_profiles_is_tight_within_them(relation):
    pair = PosteriorPair(shift=1.0, growth=0.01)
    one, other = (pair.loss(adjacency=relation, tight_at=at) for at in (1e30, 490.0))
    assert one.epsilon(1e-6) == other.epsilon(1e-6)
