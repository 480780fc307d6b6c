"""Doubling in convex order against closed forms, enumeration, and laws added term by term."""

import itertools
import math
from fractions import Fraction
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import accounting as oracles
from oracles.engines import OpaqueGaussian, check_delta, check_epsilon
from scipy import integrate, stats

import taut
from taut.accounting._adjacency import Half
from taut.accounting._answers.of_pairs import EpsilonOfPairs, upper_epsilons
from taut.accounting._engines.convex_order import ConvexOrder
from taut.accounting._engines.dyadic import (
    Dyadic,
    MergedLosses,
    MergedRatios,
    SpreadLosses,
    SpreadRatios,
    power,
)
from taut.accounting._engines.half_sum import HalfSum
from taut.accounting._pairs.discretisation import BeyondLattice
from taut.accounting._pairs.finite import FailingPair, FinitePair, finite_pair
from taut.accounting._pairs.sampled import SampledPair


def engine(terms, tail=1e-60):
    return ConvexOrder(HalfSum(Half.REMOVE, tuple(terms)), tail)


class TestGaussianSums:
    @pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-10, 1e-30, 1e-100])
    @pytest.mark.parametrize(
        "gaussians",
        [[(0.3, 2)], [(2.0, 10)], [(0.5, 3), (0.05, 200), (0.001, 5000)], [(1e-3, 10**6)]],
    )
    def test_epsilon(self, gaussians, delta):
        truth = partial(oracles.gaussian_delta, oracles.gaussian_sum_mu(gaussians))
        terms = [(OpaqueGaussian(mu), n) for mu, n in gaussians]
        count = sum(n for _, n in gaussians)
        bounds = engine(terms, 1e-6 * delta / count).epsilon(delta, 1e-3, 1.0)
        check_epsilon(bounds, delta, truth, 1e-3)

    @pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0, 8.0])
    def test_delta(self, epsilon):
        terms = [(OpaqueGaussian(0.1), 37)]
        found = engine(terms, 1e-20).curve(epsilon, 1e-3)
        truth = oracles.gaussian_delta(oracles.gaussian_sum_mu([(0.1, 37)]), epsilon)
        bounds = taut.Bounds(found.delta_lower(epsilon), found.delta_upper(epsilon))
        check_delta(bounds, truth, 1e-3)

    def test_cut_mass_is_lowered_where_delta_is_far_below_a_first_guess(self):
        found = engine([(OpaqueGaussian(0.1), 4)], 1e-12).curve(3.0, 1e-3)
        truth = oracles.gaussian_delta(oracles.gaussian_sum_mu([(0.1, 4)]), 3.0)
        assert truth < 1e-40
        check_delta(taut.Bounds(found.delta_lower(3.0), found.delta_upper(3.0)), truth, 1e-2)


class TestUpperBoundsAlone:
    @pytest.mark.parametrize("gaussians", [[(0.3, 2)], [(0.5, 3), (0.05, 200)], [(1e-3, 10**6)]])
    def test_many_deltas_of_one_sum(self, gaussians):
        mu = oracles.gaussian_sum_mu(gaussians)
        terms = [(OpaqueGaussian(each), n) for each, n in gaussians]
        deltas = [1e-12, 1e-9, 1e-5]
        found = engine(terms, 1e-24).upper_epsilons(deltas, 1e-3, [math.inf] * 3)
        for delta, upper in zip(deltas, found, strict=True):
            assert oracles.gaussian_delta(mu, upper) <= delta
            assert oracles.gaussian_delta(mu, upper * (1 - 1e-3)) > delta

    def test_no_bound_is_above_its_ceiling(self):
        free, capped = (
            engine([(OpaqueGaussian(0.3), 4)]).upper_epsilons([1e-6], 1e-3, [most])[0]
            for most in (math.inf, 0.5)
        )
        assert capped == 0.5 < free

    def test_a_sum_beyond_floats_is_bounded_by_chernoff(self, monkeypatch):
        def beyond(*_):
            raise BeyondLattice("too far apart")

        part = HalfSum(Half.REMOVE, ((OpaqueGaussian(0.3), 4),))
        sharp = upper_epsilons(part, [1e-6], 1e-3)
        monkeypatch.setattr(ConvexOrder, "upper_epsilons", beyond)
        assert upper_epsilons(part, [1e-6], 1e-3) == [EpsilonOfPairs(part, 1e-6, 1e-3).ceiling]
        assert upper_epsilons(part, [1e-6], 1e-3) > sharp


HALVES = {"add": Half.ADD, "remove": Half.REMOVE}


class TestFiniteSums:
    @settings(max_examples=40, deadline=None)
    @given(
        weights=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=2, max_size=4),
        count=st.integers(2, 5),
        rate=st.fractions(Fraction(1, 1000), Fraction(1), max_denominator=1000),
        half=st.sampled_from(["add", "remove"]),
        epsilon=st.floats(0.0, 4.0),
    )
    def test_enumeration(self, weights, count, rate, half, epsilon):
        p, q = ([Fraction(w[i], sum(v[i] for v in weights)) for w in weights] for i in (0, 1))
        # Rounded to floats, and exact from there on.
        first, second = (
            [Fraction(float(x)) for x in part] for part in oracles.mixed(p, q, rate, half)
        )
        truth = oracles.finite_delta([(first, second)] * count, epsilon)
        pair = finite_pair(*(np.array([float(x) for x in part]) for part in (first, second)))
        found = engine([(pair, count)]).compose(64)
        assert found.delta_lower(epsilon) <= truth <= found.delta_upper(epsilon)

    def test_sampled_response(self):
        p, q = [Fraction(9, 10), Fraction(1, 10)], [Fraction(1, 10), Fraction(9, 10)]
        for name, half in HALVES.items():
            exact = oracles.mixed(p, q, Fraction(1, 50), name)
            base = finite_pair(np.array([0.1, 0.9]), np.array([0.9, 0.1]))
            if name == "add":
                base = base.swapped()
            found = engine([(SampledPair(base, 0.02, half), 12)]).compose(256)
            for epsilon in (0.0, 0.01, 0.05, 0.3):
                truth = oracles.finite_delta([exact] * 12, epsilon)
                assert found.delta_lower(epsilon) <= truth <= found.delta_upper(epsilon)

    def test_infinite_mass(self):
        pair = FailingPair(OpaqueGaussian(0.2), 1e-6)
        found = engine([(pair, 9)]).compose(256)
        with mp.workdps(50):
            failed = 1 - (1 - mp.mpf(1e-6)) ** 9
        for epsilon in (0.5, 2.0, 6.0):
            rest = oracles.gaussian_delta(mp.mpf(0.6), epsilon)
            with mp.workdps(50):
                truth = failed + (1 - failed) * rest
            assert found.delta_lower(epsilon) <= truth <= found.delta_upper(epsilon)
            assert found.delta_upper(epsilon) <= 1.01 * truth

    def test_constant_beside_noise(self):
        terms = [(FinitePair((2000.0,), (0.0,)), 1), (OpaqueGaussian(1e-3), 5)]
        bounds = engine(terms, 1e-15).epsilon(1e-6, 1e-3, 2000.0)
        assert 2000.0 <= bounds.lower <= bounds.upper <= 2000.02


# From the table of a prototype of this engine and from dp-accounting's upper bounds at two grids.
TINY_RATES = [
    (1e-6, 0.5, 10**4, 1e-10, 0.29585, 0.29652),
    (1e-5, 0.6, 10**5, 1e-8, 0.26291, 0.26379),
    (1e-4, 1.0, 10**4, 1e-10, 0.07971, 0.08004),
    (1e-2, 1.0, 10**3, 1e-5, 1.82727, 1.82863),
]


class TestTinyRates:
    @pytest.mark.parametrize(("rate", "sigma", "steps", "delta", "low", "high"), TINY_RATES)
    def test_known_brackets(self, rate, sigma, steps, delta, low, high):
        bounds = (steps * taut.gaussian(sigma).poisson(rate)).epsilon_bounds(delta)
        assert bounds.lower <= high
        assert bounds.upper >= low
        assert bounds.gap <= 1e-3 * bounds.upper

    @pytest.mark.parametrize("rate", [1e-9, 1e-6, 1e-3])
    @pytest.mark.parametrize("steps", [2, 300, 10**5])
    def test_delta_of_1e_30(self, rate, steps):
        bounds = (steps * taut.gaussian(0.8).poisson(rate)).epsilon_bounds(1e-30)
        assert bounds.lower > 0
        assert bounds.gap <= 1e-2 * bounds.upper

    @pytest.mark.parametrize("half", list(HALVES.values()))
    def test_two_steps_by_quadrature(self, half):
        rate, sigma, epsilon = 1e-4, 0.7, 0.4 if half is Half.REMOVE else 1e-4
        pair = SampledPair(OpaqueGaussian(1 / sigma), rate, half)
        found = engine([(pair, 2)], 1e-40).compose(512)
        truth = two_sampled_gaussians(rate, sigma, epsilon, half)
        assert found.delta_lower(epsilon) <= truth * (1 + 1e-9)
        assert found.delta_upper(epsilon) >= truth * (1 - 1e-9)
        assert found.delta_upper(epsilon) <= found.delta_lower(epsilon) * 1.002

    def test_explain_names_the_engine(self):
        loss = 10**4 * taut.gaussian(0.5).poisson(1e-6)
        assert str(loss.explain(1e-10).engine) == "doubling in convex order"


def two_sampled_gaussians(rate, sigma, epsilon, half):
    """Return delta of two steps: the closed profile of one, averaged over the other's output.

    The integrand is smooth, for which the trapezoid rule converges exponentially.
    """
    x = np.linspace(-12 * sigma, 1 + 12 * sigma, 40_001)
    without = stats.norm.pdf(x, 0, sigma)
    mixture = (1 - rate) * without + rate * stats.norm.pdf(x, 1, sigma)
    if half is Half.REMOVE:
        t = np.exp(epsilon) * without / mixture
        inner, first = np.maximum(t - (1 - rate), 0.0) / rate, mixture
        with np.errstate(divide="ignore"):
            at = 0.5 + sigma**2 * np.log(inner)
        one = rate * stats.norm.sf(at, 1, sigma) - (t - 1 + rate) * stats.norm.sf(at, 0, sigma)
    else:
        t = np.exp(epsilon) * mixture / without
        inner, first = np.maximum(1 / t - (1 - rate), 0.0) / rate, without
        with np.errstate(divide="ignore"):
            at = 0.5 + sigma**2 * np.log(inner)
        kept = 1 - t * (1 - rate)
        one = kept * stats.norm.cdf(at, 0, sigma) - t * rate * stats.norm.cdf(at, 1, sigma)
    return float((first * one).sum() * (x[1] - x[0]))


def test_atoms_above_and_below_keep_their_order():
    """A pair that dominates, and one that is reached, bound the truth from both sides."""
    step = taut.gaussian(2.0) + taut.laplace(3.0)
    bounds = (1000 * step.poisson(0.01)).epsilon_bounds(1e-5)
    assert bounds.lower <= 0.7685 + 3e-4
    assert bounds.upper >= 0.7685 - 3e-4
    assert bounds.gap <= 1e-3 * bounds.upper


def law(scale, half, points, exponent):
    """Return a law on the lowest level, all masses on nodes."""
    values = np.zeros((scale.rows, 2 * half + 1))
    for place, mass in points:
        values[0, half + place] += mass
        if isinstance(scale, MergedLosses):
            values[1, half + place] += mass
    return Dyadic(scale, half, 0.0, {exponent: values}, 0.0, 0.0)


points = st.lists(st.tuples(st.integers(-8, 8), st.floats(0.01, 1.0)), min_size=1, max_size=6)


class TestDyadic:
    @settings(max_examples=40, deadline=None)
    @given(first=points, second=points, rounds=st.integers(1, 5), exponent=st.integers(-6, 0))
    @pytest.mark.parametrize(
        "scale", [SpreadLosses(), SpreadRatios(fine_centre=False), SpreadRatios(fine_centre=True)]
    )
    def test_spread_keeps_mass_and_mean_and_raises_convex_functions(
        self, scale, first, second, rounds, exponent
    ):
        total, exact = sums(scale, first, second, rounds, exponent)
        where, rows = total.nodes()
        moment = (lambda x: np.exp(-x)) if isinstance(scale, SpreadLosses) else (lambda x: x)
        assert rows[0].sum() == pytest.approx(exact[1].sum(), rel=1e-12)
        scale_of = np.abs(moment(exact[0])) @ exact[1]
        assert rows[0] @ moment(where) == pytest.approx(
            exact[1] @ moment(exact[0]), rel=1e-10, abs=1e-10 * scale_of
        )
        for at in np.linspace(exact[0].min(), exact[0].max(), 9):
            up, down = hinges(scale, at)
            for hinge in (up, down):
                truth = exact[1] @ hinge(exact[0])
                size = truth + scale_of + exact[1].sum()
                assert rows[0] @ hinge(where) >= truth - 1e-12 * size

    @settings(max_examples=40, deadline=None)
    @given(first=points, second=points, rounds=st.integers(1, 5), exponent=st.integers(-6, 0))
    @pytest.mark.parametrize(
        "scale", [MergedLosses(), MergedRatios(fine_centre=False), MergedRatios(fine_centre=True)]
    )
    def test_merged_keeps_mass_and_mean_and_lowers_convex_functions(
        self, scale, first, second, rounds, exponent
    ):
        total, exact = sums(scale, first, second, rounds, exponent)
        where, rows = total.nodes()
        losses = isinstance(scale, MergedLosses)
        at = where - np.log(rows[1] / rows[0]) if losses else where + rows[1] / rows[0]
        moment = (lambda x: np.exp(-x)) if losses else (lambda x: x)
        assert rows[0].sum() == pytest.approx(exact[1].sum(), rel=1e-12)
        scale_of = np.abs(moment(exact[0])) @ exact[1]
        for place in np.linspace(exact[0].min(), exact[0].max(), 9):
            for hinge in hinges(scale, place):
                truth = exact[1] @ hinge(exact[0])
                assert rows[0] @ hinge(at) <= truth + 1e-10 * (truth + scale_of + exact[1].sum())

    def test_too_many_levels_are_refused(self):
        scale = SpreadLosses()
        near, far = law(scale, 8, [(1, 1.0)], -800), law(scale, 8, [(1, 1.0)], 800)
        with pytest.raises(BeyondLattice):
            near.plus(far, 0.0)

    def test_a_moment_too_small_for_a_float_is_no_infinite_loss(self):
        """Losses a thousand apart: exp(-1000) is zero, and zero would stand for infinity."""
        scale = MergedLosses()
        loss = law(scale, 8, [(1, 0.5), (7, 0.5)], 10)
        total = power(loss, 3, 0.0)
        where, rows = total.nodes()
        assert (rows[1] > 0).all()
        assert (where - np.log(rows[1] / rows[0])).max() <= 3 * 7 * 2.0**10


def hinges(scale, at):
    """Return convex functions of the variable in the order of the scale."""
    if isinstance(scale, SpreadLosses | MergedLosses):
        return (
            lambda x: np.maximum(1 - np.exp(at - x), 0.0),
            lambda x: np.maximum(np.exp(at - x) - 1, 0.0),
        )
    return lambda x: np.maximum(x - at, 0.0), lambda x: np.maximum(at - x, 0.0)


def sums(scale, first, second, rounds, exponent):
    """Return a sum of squares and others on eight nodes to a side, and the exact law."""
    half = 8
    left, right = (law(scale, half, part, exponent) for part in (first, second))
    total, exact = left, exactly(first, exponent)
    other = exactly(second, exponent)
    for i in range(rounds):
        total = total.plus(total, 0.0) if i % 2 else total.plus(right, 0.0)
        exact = added(exact, exact if i % 2 else other)
    return total, exact


def exactly(part, exponent):
    return np.array([math.ldexp(float(i), exponent) for i, _ in part]), np.array(
        [m for _, m in part]
    )


def added(left, right):
    where = np.add.outer(left[0], right[0]).ravel()
    masses = np.multiply.outer(left[1], right[1]).ravel()
    places, inverse = np.unique(where, return_inverse=True)
    return places, np.bincount(inverse, masses)


def test_products_of_all_pairs_agree_with_itertools():
    """The exact sums above are themselves checked by plain enumeration."""
    left, right = ([0.0, 1.0], [0.25, 0.75]), ([2.0, 3.0], [0.5, 0.5])
    where, masses = added(*(tuple(map(np.array, part)) for part in (left, right)))
    expected: dict[float, float] = {}
    for (a, p), (b, q) in itertools.product(zip(*left, strict=True), zip(*right, strict=True)):
        expected[a + b] = expected.get(a + b, 0.0) + p * q
    assert dict(zip(where.tolist(), masses.tolist(), strict=True)) == expected


def one_large_step(rate, sigma, steps, epsilon):
    """Return a lower bound on delta by hand: one step is large, and the others are their mean.

    Removal is E (R - exp(epsilon))_+ for the product R of ratios under Q. Outcomes with exactly one
    step beyond five deviations are some of all; given that step, R is linear in the rest, and the
    function is convex.
    """
    far = 5 * sigma
    inside = stats.norm.cdf(far, 0, sigma)
    rest = (1 + rate * (stats.norm.cdf(far, 1, sigma) / inside - 1)) ** (steps - 1)

    def surplus(x):
        ratio = 1 + rate * math.expm1((x - 0.5) / sigma**2)
        return stats.norm.pdf(x, 0, sigma) * max(rest * ratio - math.exp(epsilon), 0.0)

    begin = 0.5 + sigma**2 * math.log1p((math.exp(epsilon) / rest - 1) / rate)
    part = integrate.quad(surplus, max(begin, far), begin + 12 * sigma, epsabs=0.0, epsrel=1e-10)[0]
    return steps * inside ** (steps - 1) * part


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "elsewhere"),
    # Last, what dp-accounting 0.6 calls an upper bound, at a grid of 1e-5.
    [(1e-6, 0.5, 10_000, 0.2951268), (1e-6, 0.5, 100_000, 0.5524035)],
)
def test_rare_large_steps_against_a_bound_by_hand(rate, sigma, steps, elsewhere):
    bounds = (steps * taut.gaussian(sigma).poisson(rate)).epsilon_bounds(1e-10)
    assert one_large_step(rate, sigma, steps, bounds.upper) <= 1e-10
    assert one_large_step(rate, sigma, steps, bounds.lower) >= 0.95e-10
    assert one_large_step(rate, sigma, steps, elsewhere) > 1e-10
    assert elsewhere < bounds.lower
