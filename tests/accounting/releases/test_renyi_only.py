"""Losses that are known by their Renyi divergences only, alone and in sums."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import taut
from taut.accounting import stability_release, variance_pair
from taut.accounting._adjacency import Half
from taut.accounting._releases.renyi_only import Renyi, divergences
from taut.accounting._releases.sampled_renyi import FixedSizeRenyi, JointRenyi, PoissonRenyi
from taut.errors import AdjacencyMismatch, UnsoundConfiguration

ORDERS = np.array([1.01, 1.5, 2.0, 2.5, 3.0, 7.3, 16.0, 63.0])


def improved(rdp, delta):
    """Return the improved conversion by an independent search over orders."""

    def objective(log_excess):
        a = 1 + math.exp(log_excess)
        return rdp(a) + math.log1p(-1 / a) - math.log(a * delta) / (a - 1)

    starts = np.linspace(-6, 12, 60)
    best = min(starts, key=objective)
    found = minimize_scalar(objective, bounds=(best - 1, best + 1), method="bounded")
    return max(min(found.fun, objective(best)), 0.0)


class TestAlone:
    @settings(max_examples=40)
    @given(rho=st.floats(1e-6, 50), exponent=st.floats(1, 30))
    def test_conversion_of_a_gaussian_curve(self, rho, exponent):
        delta = 10**-exponent
        epsilon = taut.from_rdp(lambda a: rho * a).epsilon(delta)
        exact = improved(lambda a: rho * a, delta)
        assert epsilon >= exact * (1 - 1e-9) - 1e-12
        assert epsilon <= exact * 1.01 + 1e-9

    @settings(max_examples=40)
    @given(sigma=st.floats(0.1, 50), delta=st.floats(1e-12, 0.5))
    def test_never_below_the_truth(self, sigma, delta):
        curve = taut.from_rdp(lambda a: a / (2 * sigma**2))
        assert curve.epsilon(delta) >= taut.gaussian(sigma).epsilon_bounds(delta).lower

    @settings(max_examples=40)
    @given(rho=st.floats(1e-4, 5), epsilon=st.floats(0, 20))
    def test_delta_is_a_bound_that_epsilon_undoes(self, rho, epsilon):
        loss = taut.from_rdp(lambda a: rho * a)
        delta = loss.delta(epsilon)
        assert 0 <= delta <= 1
        if 1e-250 < delta < 0.999:
            assert loss.epsilon(delta) <= epsilon * (1 + 1e-3) + 1e-6

    def test_nothing_is_known_below(self):
        assert taut.from_rdp({2.0: 1.0}).epsilon_bounds(1e-5).lower == 0
        assert taut.from_rdp({2.0: 1.0}).delta_bounds(1.0).lower == 0

    def test_without_delta_nothing_is_known_above(self):
        assert taut.from_rdp({2.0: 1.0}).epsilon(0) == math.inf

    def test_one_order_is_enough(self):
        rdp, delta = 0.3, 1e-5
        at_eight = rdp + math.log1p(-1 / 8) - math.log(8 * delta) / 7
        assert taut.from_rdp({8: rdp}).epsilon(delta) == pytest.approx(at_eight, rel=1e-6)

    def test_chords_of_the_cumulant(self):
        loss = taut.from_rdp({2: 0.1, 4: 0.2})
        assert loss.rdp(3) == pytest.approx((0.1 + 3 * 0.2) / 2 / 2)
        assert loss.rdp(1.5) == pytest.approx(0.1)
        assert loss.rdp(5) == math.inf
        assert loss.rdp(math.inf) == math.inf

    def test_a_value_above_a_chord_is_replaced(self):
        assert taut.from_rdp({2: 0.1, 3: 5.0, 4: 0.2}).rdp(3) == pytest.approx(0.175)

    def test_questions_about_distributions_are_refused(self):
        loss = taut.from_rdp({2: 0.1})
        for ask in (lambda: loss.log_mgf(1.0), lambda: loss.estimate_epsilon(1e-5)):
            with pytest.raises(ValueError, match="Renyi"):
                ask()
        with pytest.raises(UnsoundConfiguration, match="no pair"):
            loss.terms[0][0].pair(Half.ADD)

    def test_tradeoff_is_a_lower_bound(self):
        loss, exact = taut.from_rdp(lambda a: a / 8), taut.gaussian(2.0)
        for fpr in (1e-3, 0.05, 0.5, 0.9):
            assert 0 <= loss.tradeoff(fpr) <= exact.tradeoff(fpr) + 1e-9

    def test_profile_below_one_needs_both_directions(self):
        both = taut.from_rdp({2: 0.1, 8: 0.4})
        one = taut.from_rdp({2: 0.1, 8: 0.4}, adjacency="add")
        assert both.profile(0.5) < 1
        assert one.profile(0.5) == pytest.approx(1.0)

    def test_round_trip(self):
        loss = 3 * taut.from_rdp(lambda a: a / 8, orders=[2, 3, 4, 8]) + taut.gaussian(1.0)
        assert taut.PrivacyLoss.from_json(loss.to_json()) == loss


class TestSums:
    def test_contains_what_has_a_pair(self):
        known = 100 * taut.gaussian(2.0).poisson(0.1)
        bounds = (known + taut.from_rdp(lambda a: 0.01 * a)).epsilon_bounds(1e-6)
        assert bounds.lower == pytest.approx(known.epsilon_bounds(1e-6).lower, rel=1e-2)
        assert bounds.upper > known.epsilon(1e-6)

    @pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
    def test_never_below_the_truth(self, delta):
        pairs = 50 * taut.gaussian(2.0).poisson(0.1) + 3 * taut.laplace(2.0)
        hidden = taut.from_rdp(lambda a: a / 18)
        truth = pairs + taut.gaussian(3.0)
        assert (pairs + hidden).epsilon(delta) >= truth.epsilon_bounds(delta).lower

    @pytest.mark.parametrize("epsilon", [0.5, 3.0, 8.0])
    def test_delta_never_below_the_truth(self, epsilon):
        pairs = 50 * taut.gaussian(2.0).poisson(0.1)
        truth = pairs + taut.gaussian(3.0)
        hidden = taut.from_rdp(lambda a: a / 18)
        assert (pairs + hidden).delta(epsilon) >= truth.delta_bounds(epsilon).lower

    def test_renyi_route(self):
        loss = 1000 * taut.gaussian(1.0).poisson(0.01) + taut.from_rdp(lambda a: 0.01 * a)
        assert "Renyi divergences" in str(loss.explain(1e-5).engine)

    def test_split_route(self):
        # Infinite divergences leave the split only.
        stability = stability_release(1.0, 1e-9)
        loss = stability + taut.from_rdp(lambda a: 0.01 * a)
        heavy_tail = variance_pair(2.0, 1.0) + taut.from_rdp({2: 0.1, 64: 1.0})
        assert math.isfinite(loss.epsilon(1e-5))
        assert "split" in str(heavy_tail.explain(1e-5).engine)
        assert math.isfinite(heavy_tail.epsilon(1e-5))
        assert heavy_tail.delta(30.0) < 1

    def test_split_is_the_sum_of_its_parts(self):
        pair, curve = variance_pair(2.0, 1.0), taut.from_rdp({2: 0.1, 64: 1.0})
        total = (pair + curve).epsilon(1e-5)
        assert total <= pair.epsilon(5e-6) + curve.epsilon(5e-6) + 1e-9

    def test_infinite_mass(self):
        loss = taut.approximate(1.0, 1e-4) + taut.from_rdp({8: 0.1})
        assert loss.epsilon(1e-5) == math.inf
        assert math.isfinite(loss.epsilon(1e-3))

    def test_shares_add_up(self):
        loss = 100 * taut.gaussian(5.0) + 7 * taut.from_rdp(lambda a: a / 50)
        shares = loss.explain(1e-6).shares
        assert sum(share.fraction for share in shares) == pytest.approx(1)
        assert {share.count for share in shares} == {100, 7}

    def test_divergences_add_up(self):
        loss = 2 * taut.gaussian(1.0) + 3 * taut.from_rdp(lambda a: a / 2)
        assert loss.rdp(4.0) == pytest.approx(5 * 2.0, rel=1e-6)

    def test_relations_do_not_mix(self):
        with pytest.raises(AdjacencyMismatch):
            taut.from_rdp({2: 1.0}) + taut.from_rdp({2: 1.0}, adjacency="replace")


class TestSampled:
    @pytest.mark.parametrize("rate", [1e-3, 0.1, 0.9])
    @pytest.mark.parametrize("sigma", [0.5, 2.0])
    def test_gaussian_curve_at_integer_orders(self, rate, sigma):
        sampled = taut.from_rdp(lambda a: a / (2 * sigma**2)).poisson(rate)
        exact = taut.gaussian(sigma).poisson(rate)
        for order in (2, 3, 8, 33):
            assert sampled.rdp(order) == pytest.approx(exact.rdp(order), rel=1e-8)

    def test_epsilon_of_a_run(self):
        run = 1000 * taut.from_rdp(lambda a: a / 2).poisson(0.01)
        truth = 1000 * taut.gaussian(1.0).poisson(0.01)
        assert truth.epsilon_bounds(1e-5).lower <= run.epsilon(1e-5) <= 2.11

    def test_one_sided_divergences_are_refused(self):
        with pytest.raises(UnsoundConfiguration, match="both directions"):
            taut.from_rdp({2: 1.0}, adjacency="remove").poisson(0.1)

    def test_replace_one_is_refused(self):
        with pytest.raises(UnsoundConfiguration, match="fixed_size"):
            taut.from_rdp({2: 1.0}, adjacency="replace").poisson(0.1)

    def test_a_sum_on_one_sample(self):
        both = (taut.gaussian(1.0) + taut.from_rdp(lambda a: a / 2)).poisson(0.1)
        merged = taut.from_rdp(lambda a: a).poisson(0.1)
        assert both.rdp(5) == pytest.approx(merged.rdp(5), rel=1e-6)

    def test_fixed_size_is_above_the_truth(self):
        base = taut.from_rdp(lambda a: 2 * a, adjacency="replace")
        exact = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
        loss = 100 * base.fixed_size(10, 1000, adjacency="replace")
        truth = 100 * exact.fixed_size(10, 1000, adjacency="replace")
        assert loss.epsilon(1e-5) >= truth.epsilon_bounds(1e-5).lower
        for order in (2, 5, 16):
            assert loss.rdp(order) >= truth.rdp(order) * (1 - 1e-6)

    def test_fixed_size_under_add_remove_is_refused(self):
        with pytest.raises(UnsoundConfiguration, match="replace"):
            taut.from_rdp({2: 1.0}, adjacency="replace").fixed_size(10, 100)

    def test_round_trips(self):
        base = taut.from_rdp({2: 1.0, 8: 2.0}, adjacency="replace")
        for loss in (
            (taut.gaussian(1.0) + taut.from_rdp({2: 1.0, 8: 2.0})).poisson(0.1),
            base.fixed_size(10, 100, adjacency="replace"),
        ):
            assert taut.PrivacyLoss.from_json(loss.to_json()) == loss

    def test_read_like_calls(self):
        loss = taut.from_rdp({2: 1.0}).poisson(0.1)
        assert "rdp(1 orders up to 2).poisson(rate=0.1)" in repr(loss)
        batch = taut.from_rdp({2: 1.0}, adjacency="replace").fixed_size(1, 9, adjacency="replace")
        assert "fixed_size(1, 9)" in repr(batch)
        joint = (taut.gaussian(1.0) + 2 * taut.from_rdp({2: 1.0})).poisson(0.1)
        assert "2 * rdp(" in repr(joint)


class TestDivergences:
    @pytest.mark.parametrize(
        "loss", [taut.gaussian(1.5), taut.laplace(0.7), taut.randomized_response(0.8)], ids=repr
    )
    def test_of_releases_with_a_pair(self, loss):
        release = loss.terms[0][0]
        values = divergences(release, Half.REMOVE, ORDERS)
        assert values == pytest.approx([loss.rdp(a) for a in ORDERS], rel=1e-6)

    def test_infinite_mass(self):
        release = taut.approximate(1.0, 0.1).terms[0][0]
        assert np.isinf(divergences(release, Half.ADD, ORDERS)).all()


class TestRefusals:
    @pytest.mark.parametrize(
        ("curve", "message"),
        [
            ({}, "at least one|finite at one"),
            ({1.0: 0.1}, "greater than 1"),
            ({0.5: 0.1}, "greater than 1"),
            ({2.0: -0.1}, "at least 0"),
            ({2.0: math.nan}, "at least 0"),
            ({2.0: math.inf}, "finite at one"),
            (lambda _: 1.0, "one divergence per order"),
            (lambda a: a[:-1], "one divergence per order"),
        ],
    )
    def test_curves(self, curve, message):
        with pytest.raises(ValueError, match=message):
            taut.from_rdp(curve)

    def test_orders_belong_to_functions(self):
        with pytest.raises(ValueError, match="keys of curve"):
            taut.from_rdp({2: 1.0}, orders=[2])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (((), ()), "as many divergences"),
            (((2.0, 3.0), (1.0,)), "as many divergences"),
            (((3.0, 2.0), (1.0, 1.0)), "must increase"),
            (((2.0,), (-1.0,)), "divergence"),
            (((2.0,), (1.0,), "sideways"), "direction"),
        ],
    )
    def test_descriptions(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            Renyi(*arguments)

    def test_sampled_descriptions(self):
        release, gaussian = Renyi((2.0,), (1.0,)), taut.gaussian(1.0).terms[0][0]
        with pytest.raises(ValueError, match="rate"):
            PoissonRenyi(release, 1.5)
        for wrong in (lambda: PoissonRenyi(gaussian, 0.1), lambda: FixedSizeRenyi(gaussian, 1, 2)):
            with pytest.raises(ValueError, match="known by Renyi"):
                wrong()
        with pytest.raises(ValueError, match="must not exceed"):
            FixedSizeRenyi(release, 3, 2)
        with pytest.raises(ValueError, match="as many counts"):
            JointRenyi((release,), ())


def test_a_pure_guarantee_beside_a_curve():
    curve = {2.0: 0.3, 5.0: 0.6, 30.0: 0.9}
    both = taut.from_rdp(curve, pure_epsilon=1.1)
    assert both.epsilon(0) == pytest.approx(1.1)
    assert both.epsilon(1e-6) <= min(taut.from_rdp(curve).epsilon(1e-6), 1.1)
    assert both.epsilon(0.1) == pytest.approx(taut.from_rdp(curve).epsilon(0.1))
    assert both.rdp(1e6) == 1.1
    assert (5 * both).epsilon(1e-6) <= (5 * taut.pure(1.1)).epsilon(1e-6) * (1 + 1e-9)
    assert taut.PrivacyLoss.from_json(both.to_json()) == both
    assert "epsilon=1.1" in repr(both)
    with pytest.raises(ValueError, match="pure_epsilon"):
        taut.from_rdp(curve, pure_epsilon=-1.0)
