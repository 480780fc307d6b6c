"""Where rounding, wide cells and limits once lied: each case against an independent value."""

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import accounting as oracles
from oracles.engines import check_delta

import taut
from taut.accounting import group_poisson, mixed_gaussian, variance_pair
from taut.accounting._adjacency import Half
from taut.accounting._pairs.discretisation import Placement, discretise
from taut.accounting._pairs.finite import binary_pair


class TestWideCells:
    @pytest.mark.parametrize("width", [10.0, 36.0, 37.0, 60.0, 300.0])
    def test_atoms_are_not_raised_when_rounding_down(self, width):
        lower = discretise(binary_pair(1e-3), Placement(width, 0.5), 1e-12).lower
        # E exp(-L) of a bound from below is at least that of the pair, which is one.
        assert (lower.masses * np.exp(-lower.losses)).sum() >= 1 - 1e-9

    @settings(max_examples=60)
    @given(
        parts=st.lists(st.integers(1, 30), min_size=6, max_size=6),
        tiny=st.floats(1e-12, 1e-3),
        epsilon=st.floats(0, 2),
    )
    def test_a_large_and_a_tiny_loss(self, parts, tiny, epsilon):
        p = [Fraction(x, sum(parts[:3])) for x in parts[:3]]
        q = [Fraction(x, sum(parts[3:])) for x in parts[3:]]
        half = Fraction(1, 2)
        shift = Fraction(tiny)
        r, s = [half, half], [half - shift, half + shift]
        loss = taut.finite([float(x) for x in p], [float(x) for x in q], adjacency="add")
        loss += taut.finite([0.5, 0.5], [0.5 - tiny, 0.5 + tiny], adjacency="add")
        truth = oracles.finite_delta([(p, q), (r, s)], epsilon)
        lower, upper = loss.delta_bounds(epsilon)
        assert lower <= truth * (1 + mp.mpf(1e-9)) + mp.mpf(1e-13)
        assert upper >= truth * (1 - mp.mpf(1e-9)) - mp.mpf(1e-13)


class TestDust:
    """Losses far below the tolerance neither spoil a bracket nor disappear from it."""

    @pytest.mark.parametrize("dust", [taut.pure(1e-9), taut.laplace(1e9), taut.exponential(1e-10)])
    @pytest.mark.parametrize("delta", [0.1, 1e-5])
    def test_bracket_stays_narrow(self, dust, delta):
        base = 3 * taut.laplace(1.0)
        bounds, alone = (base + dust).epsilon_bounds(delta), base.epsilon_bounds(delta)
        assert bounds.gap <= 1e-3 * bounds.upper
        assert bounds.upper >= alone.lower
        assert bounds.lower <= alone.upper + 1e-8

    def test_many_grains_count(self):
        grains = 10**9 * taut.pure(1e-6)
        total = taut.laplace(1.0) + grains
        assert total.epsilon_bounds(1e-6).lower > 0.9 * grains.epsilon_bounds(1e-6).lower


class TestLimits:
    def test_largest_loss_of_a_sampled_release(self):
        epsilon, rate = 6.215375337245e-06, 0.21776863936088256
        with mp.workdps(40):
            truth = mp.log1p(mp.mpf(rate) * mp.expm1(mp.mpf(epsilon)))
        lower, upper = taut.pure(epsilon).poisson(rate).epsilon_bounds(0)
        assert lower <= truth <= upper
        assert upper - lower <= 2e-13 * upper

    @settings(max_examples=60)
    @given(p=st.floats(0.5000001, 0.9999))
    def test_randomized_response(self, p):
        with mp.workdps(40):
            truth = mp.log(mp.mpf(p) / (1 - mp.mpf(p)))
        lower, upper = taut.randomized_response(p).epsilon_bounds(0)
        assert lower <= truth <= upper

    @settings(max_examples=60)
    @given(scale=st.floats(1e-3, 1e3), sensitivity=st.floats(1e-3, 1e3))
    def test_laplace(self, scale, sensitivity):
        truth = Fraction(sensitivity) / Fraction(scale)
        lower, upper = taut.laplace(scale, sensitivity).epsilon_bounds(0)
        assert Fraction(lower) <= truth <= Fraction(upper)

    def test_infinite_mass_within_rounding_is_left_open(self):
        loss = 1000 * taut.approximate(1.0, 1e-5)
        with mp.workdps(40):
            mass = float(1 - (1 - mp.mpf(1e-5)) ** 1000)
        lower, upper = loss.epsilon_bounds(mass)
        assert math.isfinite(lower)
        assert upper == math.inf
        assert loss.epsilon(mass * (1 - 1e-12)) == math.inf
        assert math.isfinite(loss.epsilon(mass * (1 + 1e-12)))

    def test_no_negative_zero(self):
        loss = taut.finite([0.25, 0.75, 0.0], [0.125, 0.25, 0.625], adjacency="add").poisson(0.5)
        for value in loss.delta_bounds(1.0):
            assert math.copysign(1.0, value) == 1.0


class TestFinite:
    def test_masses_are_normalised(self):
        p, q = [0.5 - 9e-10, 0.5], [0.5 - 9e-10 + 1e-5, 0.5 - 1e-5 + 9e-10]
        loss = 10**9 * taut.finite(p, q, adjacency="add")
        exact = [x / math.fsum(p) for x in p]
        same = 10**9 * taut.finite(exact, q, adjacency="add")
        assert loss.delta(0) == pytest.approx(same.delta(0), rel=1e-2)

    def test_nearly_equal_pairs(self):
        p = [0.4891955368029812, 0.5108044631970188]
        q = [0.4891955408411377, 0.5108044591588623]
        pair = [[Fraction(x) for x in vector] for vector in (p, q)]
        truth = oracles.finite_delta([tuple(pair)] * 3, 0.0)
        check_delta((3 * taut.finite(p, q)).delta_bounds(0), truth, tolerance=1e-6)

    def test_equal_losses_are_one(self):
        loss = 2 * taut.finite([0.5, 0.5, 0.0], [0.25, 0.25, 0.5])
        assert loss.delta(0.1) == pytest.approx(0.75)

    @pytest.mark.parametrize("epsilon", [1.0, 1.9, 1.999, 1.9999999])
    def test_two_coins_up_to_their_largest_loss(self, epsilon):
        with mp.workdps(40):
            truth = (mp.e / (1 + mp.e)) ** 2 * -mp.expm1(mp.mpf(epsilon) - 2)
        check_delta((2 * taut.pure(1.0)).delta_bounds(epsilon), truth, tolerance=1e-6)

    def test_sampled_rare_failures(self):
        loss = taut.approximate(0.000358833, 3.97e-16).poisson(0.5)
        loss += 2 * taut.approximate(4.226e-6, 4.9e-16).poisson(0.5)
        bounds = loss.epsilon_bounds(6.2e-15)
        assert bounds.gap <= 1e-3 * bounds.upper


class TestDivergences:
    @pytest.mark.parametrize("order", [2, pytest.param(32, marks=pytest.mark.slow)])
    @pytest.mark.parametrize(("mu", "batch"), [(2.0, 500), (0.5, 100)])
    def test_fixed_size_under_replace(self, mu, batch, order):
        # E_P exp(z L) = 1 + z (z + 1) times the integral of exp(z e) h(e) less the trivial profile.
        rate = mp.mpf(batch) / 1000
        z = order - 1

        def above(e):
            inner = mp.log1p(mp.expm1(e) / rate)
            return rate * oracles.gaussian_delta(mu, inner)

        with mp.workdps(30):
            peak = mp.mpf(mu) ** 2 * (order + 1)
            nodes = [0, 0.1, 0.5, 1, 2, 4, *(peak * mp.mpf(k) / 8 for k in range(3, 14)), peak * 3]
            nodes = sorted({mp.mpf(node) for node in nodes})
            up = mp.quad(lambda e: mp.exp(z * e) * above(e), nodes)
            down = mp.quad(lambda e: mp.exp(-(z + 1) * e) * above(e), nodes)
            truth = mp.log(1 + z * (z + 1) * (up + down)) / z
        base = taut.gaussian(1 / mu, adjacency="replace")
        value = base.fixed_size(batch, 1000, adjacency="replace").rdp(order)
        assert value == pytest.approx(float(truth), rel=1e-5)

    @pytest.mark.parametrize("sigma", [1.0, 1e-3, 1e-7])
    def test_kullback_leibler_of_a_gaussian(self, sigma):
        assert taut.gaussian(sigma).rdp(1) == pytest.approx(0.5 / sigma**2, rel=1e-9)

    def test_kullback_leibler_of_a_loud_sampled_gaussian(self):
        assert taut.gaussian(1e-6).poisson(0.5).rdp(1) == pytest.approx(2.5e11, rel=1e-6)

    @pytest.mark.parametrize(
        "loss",
        [taut.gaussian(1.0).poisson(0.01), taut.laplace(20.0), taut.exponential(0.01)],
        ids=repr,
    )
    def test_near_order_one(self, loss):
        orders = [1, 1 + 1e-15, 1 + 1e-12, 1 + 1e-9, 1 + 1e-6, 1.001, 1.00999, 1.0101, 1.1]
        values = [loss.rdp(order) for order in orders]
        assert values[0] > 0
        assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(values))
        assert values[-1] == pytest.approx(values[0] * 1.1, rel=0.05)

    def test_infinite_moments_of_the_sampled_addition(self):
        loss = variance_pair(1.0, 2.0).poisson(0.1)
        assert loss.log_mgf(-5, "add").real == math.inf


class TestQuietExtremes:
    @pytest.mark.parametrize(
        "loss",
        [
            3 * taut.laplace(1e-4).poisson(0.1),
            2 * taut.pure(1e6),
            taut.discrete_gaussian(0.01),
            taut.gaussian(0.02),
        ],
        ids=repr,
    )
    def test_no_warning_reaches_the_caller(self, loss):
        assert loss.epsilon(1e-5) >= 0
        assert loss.rdp(1.5) >= 0

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: taut.gaussian(1e-200), "sensitivity / sigma"),
            (lambda: variance_pair(1e-200, 1e200), "sigma_p / sigma_q"),
            (lambda: 10**400 * taut.pure(1.0), r"10\^18"),
            (lambda: taut.discrete_laplace(1e5, 10**7).epsilon(1e-5), "common unit"),
            (lambda: taut.gaussian(0.02).estimate_delta(800, "afa"), "exp"),
            (lambda: taut.pure(1.0).log_mgf(math.nan), "z must be a number"),
            (lambda: taut.pure(1e308), "must lie between 0 and 1e\\+06, got 1e\\+308"),
            (lambda: taut.approximate(1e155, 1e-5), "hides nothing"),
            (lambda: taut.from_profile({0.0: 0.1}, [1.0]), "keys of profile"),
        ],
    )
    def test_refusals(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()

    def test_wrong_types_are_value_errors_too(self):
        for wrong in (True, "1", None, [1.0]):
            with pytest.raises(ValueError, match="sigma"):
                taut.gaussian(wrong)
            with pytest.raises(TypeError, match="sigma"):
                taut.gaussian(wrong)
        with pytest.raises(TypeError, match="make_loss"):
            taut.calibrate(lambda _: 3, epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize(
    "make",
    [taut.gaussian, lambda sigma: 100 * taut.gaussian(sigma).poisson(1e-3)],
    ids=["alone", "sampled"],
)
def test_calibration_starts_where_nothing_is_lost(make):
    found = taut.calibrate(make, epsilon=1.0, delta=0.3 if make is taut.gaussian else 1e-2)
    assert found.value < 1
    assert found.epsilon.upper <= 1


def test_tradeoff_of_a_coin_and_dust():
    coin = taut.randomized_response(0.02)
    assert coin.tradeoff(0.01) == pytest.approx(0.51, abs=1e-6)
    assert (coin + taut.pure(1e-6)).tradeoff(0.01) == pytest.approx(0.51, abs=1e-4)


class TestSecondLook:
    """Findings of a later look at the same places."""

    @pytest.mark.parametrize(
        ("loss", "largest"),
        [
            (2000 * taut.pure(0.1), 200.0),
            (100 * taut.finite([1e-3, 0.999], [1e-4, 0.9999], adjacency="add"), 230.2585093),
            (100 * taut.pure(2.0).poisson(0.1), 100 * math.log1p(0.1 * math.expm1(2.0))),
        ],
        ids=["lattice", "enumerated", "sampled"],
    )
    def test_the_largest_loss_survives_underflow(self, loss, largest):
        assert loss.epsilon(0) == pytest.approx(largest, rel=1e-8)
        assert loss.rdp(math.inf) == pytest.approx(largest, rel=1e-8)
        assert loss.delta(0.99 * largest) > 0

    def test_calibration_without_delta(self):
        found = taut.calibrate(lambda e: 2000 * taut.pure(e), epsilon=10.0, delta=0.0)
        assert 2000 * found.value <= 10

    @settings(max_examples=60)
    @given(
        parts=st.lists(st.integers(1, 999), min_size=6, max_size=6),
        count=st.integers(1, 4),
        epsilon=st.floats(0, 2),
    )
    def test_replace_one_of_finite_mechanisms(self, parts, count, epsilon):
        p = [Fraction(x, sum(parts[:3])) for x in parts[:3]]
        q = [Fraction(x, sum(parts[3:])) for x in parts[3:]]
        release = taut.finite([float(x) for x in p], [float(x) for x in q], adjacency="replace")
        pair = release.terms[0][0].pair(Half.REPLACE)
        assert math.fsum(pair.atoms(0.0).masses) + pair.mass_inf == pytest.approx(1, abs=1e-9)
        lower, upper = (count * release).delta_bounds(epsilon)
        assert 0 <= lower <= upper <= 1
        for one_way in ((p, q), (q, p)):
            truth = oracles.finite_delta([one_way] * count, epsilon)
            assert upper >= truth * (1 - mp.mpf(1e-9)) - mp.mpf(1e-12)
        if count == 1:
            worst = max(oracles.finite_delta([x], epsilon) for x in ((p, q), (q, p)))
            assert upper <= worst * (1 + mp.mpf(1e-6)) + mp.mpf(1e-9)

    @pytest.mark.parametrize("epsilon", [85.0, 90.0, 150.0])
    def test_delta_beyond_floating_point(self, epsilon):
        lower, upper = (10 * taut.pure(6.5) + taut.gaussian(1.75)).delta_bounds(epsilon)
        assert 0 <= lower <= upper <= 1e-260

    def test_a_contour_without_width(self):
        assert (100 * taut.pure(21.8) + taut.gaussian(1.0)).delta(3218.0, 0.01) < 1e-200

    def test_certain_failure_among_others(self):
        betrayal = taut.finite([0.9, 0.1, 0.0], [0.0, 0.9, 0.1])
        assert (20 * betrayal + taut.pure(0.1)).delta(1.0) == 1
        assert (12 * betrayal + taut.randomized_response(0.6)).epsilon(1e-6) == math.inf

    def test_lower_bounds_come_from_what_is_reached(self):
        x = taut.gaussian(1.0, sensitivity=2.0, adjacency="replace")
        x = x.poisson(0.5, removal=taut.gaussian(1.0))
        joint = (x + taut.laplace(1e4, adjacency="replace")).fixed_size(9, 9, adjacency="replace")
        # Sampled records on either side of the unsampled mean, by quadrature.
        assert joint.delta_bounds(2.0).lower <= 0.012956
        nested = ((taut.laplace(0.5) + taut.laplace(0.8)).poisson(0.1) + taut.laplace(3.0)).poisson(
            0.9
        )
        assert nested.delta_bounds(0.8).lower <= 0.0152169597

    @pytest.mark.parametrize(("rate", "size"), [(0.9, 10), (0.9, 12), (0.8, 20)])
    def test_nobody_of_a_group_is_sampled(self, rate, size):
        with mp.workdps(30):
            truth = -size * mp.log1p(-mp.mpf(rate))
        lower, upper = group_poisson(0.2, rate, size, adjacency="add").epsilon_bounds(0)
        assert lower <= truth * (1 + mp.mpf(1e-14))
        assert upper >= truth * (1 - mp.mpf(1e-14))
        assert upper - lower <= 1e-12 * upper

    def test_filters_charge_the_faintest_steps(self):
        faint = taut.gaussian(1.0).poisson(1e-9)
        budget = taut.PrivacyFilter(1.0, 1e-6, kind="renyi", orders=[17.0])
        assert not budget.can_spend(10**18 * faint)

    @pytest.mark.parametrize("rate", [1e-3, 1e-6, 1e-9])
    @pytest.mark.parametrize("sigma", [0.7, 20.0])
    def test_divergences_of_faint_steps(self, rate, sigma):
        exact = taut.from_rdp(lambda a: a / (2 * sigma**2)).poisson(rate)
        loss = taut.gaussian(sigma).poisson(rate)
        for order in (2, 3, 17):
            assert loss.rdp(order) == pytest.approx(exact.rdp(order), rel=1e-8)

    def test_products_have_finite_divergences(self):
        step = (taut.gaussian(2.0) + taut.laplace(3.0)).poisson(0.01)
        assert 0 < step.rdp(2) < 1e-3

    def test_orders_below_two_are_found(self):
        by_hand = 0.1 + math.log1p(-1 / 1.5) - math.log(1.5 * 1e-5) / 0.5
        assert taut.from_rdp({1.5: 0.1}).epsilon(1e-5) == pytest.approx(by_hand, rel=1e-6)

    @pytest.mark.parametrize("loss", [taut.gaussian(1.0), taut.laplace(1.0)], ids=repr)
    def test_misses_are_not_rounded_up(self, loss):
        assert loss.tradeoff(1e-20) < 1

    def test_shuffled_epochs_without_the_last_batch(self):
        runs = taut.compare_samplers(5.0, batch_size=4, examples=11, steps=100, delta=1e-5)
        assert runs["shuffled"].loss == 50 * taut.gaussian(5.0, adjacency="zero_out")

    def test_explain_names_what_is_not_proven(self):
        loss = mixed_gaussian(0.5, 4.0, sensitivity_inf=0.1, rate=0.05)
        assert "not by proof" in str((10 * loss).explain(1e-5))
        assert "caution" not in str(taut.gaussian(1.0).explain(1e-5))
