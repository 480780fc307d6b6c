"""Certified means certified: lower <= truth <= upper against closed forms, and a narrow bracket."""

import itertools
import math
from fractions import Fraction
from functools import partial

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import accounting as oracles
from oracles.engines import (
    OpaqueGaussian,
    answer_delta,
    answer_epsilon,
    check_delta,
    check_epsilon,
)

import taut
from taut.accounting import stability_release, variance_pair
from taut.accounting._answers.answer import Engine
from taut.accounting._pairs.finite import binary_pair
from taut.accounting._pairs.gaussian import GaussianPair

DELTAS = [1e-1, 1e-3, 1e-6, 1e-10, 1e-15, 1e-20, 1e-30]
TOLERANCES = [1e-3, 1e-5]

# (mu, count) of each kind of Gaussian in the sum; one to a million copies, epsilon 0.01 to 1e6.
GAUSSIAN_SUMS = {
    "one": [(1.0, 1)],
    "two": [(0.3, 2)],
    "ten loud": [(2.0, 10)],
    "hundred": [(0.1, 100)],
    "thousand": [(0.02, 1_000)],
    "mixed": [(0.5, 3), (0.05, 200), (0.001, 5_000)],
    "ten thousand": [(0.03, 10_000)],
    "million faint": [(1e-5, 1_000_000)],
    "million": [(0.002, 1_000_000)],
    "million loud": [(0.1, 1_000_000)],
}


@pytest.fixture(params=GAUSSIAN_SUMS.values(), ids=GAUSSIAN_SUMS.keys())
def gaussians(request):
    return request.param


class TestGaussianSums:
    @pytest.mark.parametrize("delta", DELTAS)
    def test_merged(self, gaussians, delta):
        loss = sum(n * taut.gaussian(1.0, mu) for mu, n in gaussians)
        truth = partial(oracles.gaussian_delta, oracles.gaussian_sum_mu(gaussians))
        check_epsilon(loss.epsilon_bounds(delta, 1e-9), delta, truth, 1e-9)

    @pytest.mark.parametrize("tolerance", TOLERANCES)
    @pytest.mark.parametrize("delta", DELTAS)
    def test_lattice(self, gaussians, delta, tolerance):
        if sum(n for _, n in gaussians) == 1:
            gaussians = [(mu / math.sqrt(2), 2 * n) for mu, n in gaussians]
        terms = [(OpaqueGaussian(mu), n) for mu, n in gaussians]
        truth = partial(oracles.gaussian_delta, oracles.gaussian_sum_mu(gaussians))
        answer = answer_epsilon(terms, delta, tolerance)
        assert answer.engine in (Engine.LATTICE, Engine.ORDER, Engine.CHERNOFF)
        check_epsilon(answer.bounds, delta, truth, tolerance)

    @pytest.mark.parametrize("delta", DELTAS)
    def test_contour(self, gaussians, delta):
        if sum(n for _, n in gaussians) == 1:
            gaussians = [(mu / math.sqrt(2), 2 * n) for mu, n in gaussians]
        terms = [(GaussianPair(mu), n) for mu, n in gaussians]
        truth = partial(oracles.gaussian_delta, oracles.gaussian_sum_mu(gaussians))
        answer = answer_epsilon(terms, delta, 1e-5)
        if delta >= 1e-20:  # below, rounding may leave it to the lattice
            assert answer.engine in (Engine.CONTOUR, Engine.CHERNOFF)
        check_epsilon(answer.bounds, delta, truth, 1e-5)

    @pytest.mark.parametrize("pair", [OpaqueGaussian, GaussianPair])
    @pytest.mark.parametrize("deviations", [None, 1.0, 5.0, 11.0])
    def test_delta(self, gaussians, deviations, pair):
        terms = [(pair(m / math.sqrt(2)), 2 * n) for m, n in gaussians]
        mu = oracles.gaussian_sum_mu([(p.mu, n) for p, n in terms])
        epsilon = 0.0 if deviations is None else float(mu**2 / 2 + deviations * mu)
        truth = oracles.gaussian_delta(mu, epsilon)
        check_delta(answer_delta(terms, epsilon, 1e-3).bounds, truth, 1e-3)

    @pytest.mark.parametrize("pair", [OpaqueGaussian, GaussianPair])
    @pytest.mark.parametrize("name", ["hundred", "mixed", "ten thousand", "million"])
    def test_delta_to_five_digits(self, name, pair):
        terms = [(pair(mu), n) for mu, n in GAUSSIAN_SUMS[name]]
        mu = oracles.gaussian_sum_mu(GAUSSIAN_SUMS[name])
        epsilon = float(mu**2 / 2 + 3 * mu)
        truth = oracles.gaussian_delta(mu, epsilon)
        check_delta(answer_delta(terms, epsilon, 1e-5).bounds, truth, 1e-5)


class TestRandomizedResponse:
    @pytest.mark.parametrize(
        ("p", "count"),
        [(0.75, 1), (0.75, 2), (0.9, 10), (0.52, 100), (0.51, 10_000), (0.5005, 1_000_000)],
    )
    @pytest.mark.parametrize("delta", DELTAS)
    def test_epsilon(self, p, count, delta):
        bounds = (count * taut.randomized_response(p)).epsilon_bounds(delta)
        check_epsilon(bounds, delta, partial(oracles.randomized_response_delta, p, count))

    @pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-10])
    @pytest.mark.parametrize(("single", "failure", "count"), [(0.1, 1e-12, 50), (1.0, 1e-4, 7)])
    def test_with_failure(self, single, failure, count, delta):
        loss = count * taut.approximate(single, failure)
        if delta < 1 - (1 - failure) ** count:
            assert loss.epsilon_bounds(delta) == (math.inf, math.inf)
            return
        truth = partial(oracles.failing_response_delta, single, failure, count)
        check_epsilon(loss.epsilon_bounds(delta), delta, truth)

    @pytest.mark.parametrize("delta", DELTAS)
    @pytest.mark.parametrize("tolerance", TOLERANCES)
    @pytest.mark.parametrize(
        ("sigma", "gaussians", "p", "responses"),
        [(5.0, 50, 0.52, 50), (1.0, 1, 0.9, 3), (30.0, 1_000_000, 0.6, 20), (3.0, 1, 0.5001, 200)],
    )
    def test_with_gaussians(self, sigma, gaussians, p, responses, delta, tolerance):
        loss = gaussians * taut.gaussian(sigma) + responses * taut.randomized_response(p)
        mu = oracles.gaussian_sum_mu([(1 / sigma, gaussians)])
        truth = partial(oracles.gaussian_and_response_delta, mu, p, responses)
        check_epsilon(loss.epsilon_bounds(delta, tolerance), delta, truth, tolerance)

    @pytest.mark.parametrize("delta", DELTAS)
    def test_with_gaussians_on_the_lattice(self, delta):
        terms = [(OpaqueGaussian(0.25), 16), (binary_pair(math.log(0.6 / 0.4)), 20)]
        truth = partial(oracles.gaussian_and_response_delta, mp.mpf(1), 0.6, 20)
        answer = answer_epsilon(terms, delta, 1e-3)
        # binary_pair takes the rounded log-odds, hence the oracle's p is off by one part in 1e16.
        check_epsilon(answer.bounds, delta, truth, 1e-3, oracle_error=1e-13)


class TestDiscreteGaussian:
    @pytest.mark.parametrize(
        ("sigma", "shift", "count"),
        [(2.0, 1, 1), (2.0, 1, 10), (0.5, 1, 10), (5.0, 3, 20), (2.0, 1, 1_000), (8.0, 1, 100)],
    )
    @pytest.mark.parametrize(
        "delta",
        [1e-5, 1e-30, *(pytest.param(delta, marks=pytest.mark.slow) for delta in (1e-1, 1e-12))],
    )
    def test_epsilon(self, sigma, shift, count, delta):
        bounds = (count * taut.discrete_gaussian(sigma, shift)).epsilon_bounds(delta)
        truth = partial(oracles.discrete_gaussian_delta, sigma, shift, count)
        check_epsilon(bounds, delta, truth)

    @pytest.mark.slow
    @pytest.mark.parametrize("delta", [1e-3, 1e-30])
    def test_a_million(self, delta):
        bounds = (1_000_000 * taut.discrete_gaussian(5.0)).epsilon_bounds(delta)
        check_epsilon(bounds, delta, partial(oracles.discrete_gaussian_delta, 5.0, 1, 1_000_000))


class TestLaplaceSums:
    @pytest.mark.parametrize("tolerance", TOLERANCES)
    @pytest.mark.parametrize("delta", DELTAS)
    @pytest.mark.parametrize(("scale", "count"), [(1.0, 1), (0.5, 2), (2.0, 3), (10.0, 12)])
    def test_epsilon(self, scale, count, delta, tolerance):
        bounds = (count * taut.laplace(scale)).epsilon_bounds(delta, tolerance)
        truth = partial(oracles.laplace_sum_delta, scale, count)
        check_epsilon(bounds, delta, truth, tolerance)

    @pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 5.5])
    def test_delta(self, epsilon):
        truth = oracles.laplace_sum_delta(2.0, 12, epsilon)
        for tolerance in TOLERANCES:
            bounds = (12 * taut.laplace(2.0)).delta_bounds(epsilon, tolerance)
            check_delta(bounds, truth, tolerance)


# --- two releases of any kind: E over the first loss of the second profile -----------------------


def _normal(x):
    return mp.exp(-(x**2) / 2) / mp.sqrt(2 * mp.pi)


def _law_of_laplace(scale):
    reach = 1 / mp.mpf(scale)
    return oracles.Law(
        lambda x: mp.exp((x - reach) / 2) / 4,
        lambda x: x,
        [-reach, reach],
        [(reach, mp.mpf(1) / 2), (-reach, mp.exp(-reach) / 2)],
    )


def _law_of_sampled_gaussian(mu, rate, half, epsilon):
    """P without the record is N(0, 1), Q with it is N(mu, 1).

    Integration is split where the second profile, at epsilon minus this loss, has its kink.
    """
    mu, rate = mp.mpf(mu), mp.mpf(rate)
    sign = -1 if half == "add" else 1
    kink = mp.exp(sign * mp.mpf(epsilon)) / (1 - rate) - 1 + rate
    pieces = {-14, -6, -2, 0, mu / 2, mu, mu + 2, mu + 6, mu + 14}
    if kink > 0:
        pieces.add((mp.log(kink / rate) + mu**2 / 2) / mu)

    def ratio(x):  # mixture / base
        return 1 - rate + rate * mp.exp(mu * x - mu**2 / 2)

    if half == "add":
        return oracles.Law(_normal, lambda x: -mp.log(ratio(x)), sorted(pieces))
    return oracles.Law(lambda x: _normal(x) * ratio(x), lambda x: mp.log(ratio(x)), sorted(pieces))


def _sampled_gaussian_profile(mu, rate, half):
    base = partial(oracles.gaussian_delta, mu)
    return oracles.sampled_delta(base, base, rate, half)


class TestTwoReleases:
    @pytest.mark.parametrize("half", ["add", "remove"])
    @pytest.mark.parametrize(
        ("sigma", "rate"),
        [
            (1.0, 0.1),
            pytest.param(0.6, 0.03, marks=pytest.mark.slow),
            pytest.param(2.0, 0.5, marks=pytest.mark.slow),
        ],
    )
    def test_sampled_gaussian(self, sigma, rate, half):
        loss = 2 * taut.gaussian(sigma, adjacency=half).poisson(rate)
        profile = _sampled_gaussian_profile(1 / mp.mpf(sigma), rate, half)
        for share in (0.02, 0.5, 0.9):
            epsilon = share * loss.epsilon(1e-9)
            law = _law_of_sampled_gaussian(1 / mp.mpf(sigma), rate, half, epsilon)
            truth = oracles.composed_delta(law, profile, epsilon)
            check_delta(loss.delta_bounds(epsilon), truth, oracle_error=1e-9)
            check_delta(loss.delta_bounds(epsilon, 1e-5), truth, 1e-5, oracle_error=1e-9)

    def test_laplace_and_selection(self):
        # No single release attains the profile of a selection, so only one side is sharp.
        loss = taut.laplace(2.0) + taut.exponential(0.8)
        profile = partial(oracles.exponential_delta, 0.8)
        for epsilon in (0.0, 0.3, 0.8, 1.2):
            law = _law_of_laplace(2.0)
            cuts = (
                max(min(mp.mpf(epsilon) + e, law.pieces[1]), law.pieces[0]) for e in (-0.8, 0.8)
            )
            law.pieces = sorted({*law.pieces, *cuts})
            truth = oracles.composed_delta(law, profile, epsilon)
            lower, upper = loss.delta_bounds(epsilon)
            assert lower <= upper <= truth * (1 + mp.mpf(1e-3))

    @pytest.mark.parametrize("half", ["add", "remove"])
    def test_variances(self, half):
        loss = taut.laplace(2.0, adjacency=half) + variance_pair(1.0, 1.3, adjacency=half)
        sigmas = (1.0, 1.3) if half == "add" else (1.3, 1.0)
        profile = partial(oracles.variance_delta, *sigmas)
        kink = mp.log(mp.mpf(sigmas[1]) / mp.mpf(sigmas[0]))
        for epsilon in (0.0, 0.2, 0.5):
            law = _law_of_laplace(2.0)
            cut = max(min(epsilon - kink, mp.mpf(1) / 2), -mp.mpf(1) / 2)
            law.pieces = [-mp.mpf(1) / 2, cut, mp.mpf(1) / 2]
            truth = oracles.composed_delta(law, profile, epsilon)
            check_delta(loss.delta_bounds(epsilon), truth, oracle_error=1e-9)

    def test_stability_release(self):
        loss = stability_release(1.0, 1e-3) + taut.laplace(1.0)
        failure = mp.mpf(1e-3) / 2
        reach = 1 + 2 * mp.log(1 - failure)

        def profile(epsilon):
            return failure + (1 - failure) * oracles.laplace_delta(1 / reach, epsilon)

        for epsilon in (0.0, 0.7, 1.5):
            law = _law_of_laplace(1.0)
            law.pieces = [-1, max(min(epsilon - reach, 1), -1), 1]
            truth = oracles.composed_delta(law, profile, epsilon)
            check_delta(loss.delta_bounds(epsilon), truth, oracle_error=1e-12)


# --- finitely many outcomes, by enumeration ------------------------------------------------------

_PARTS = 64


@st.composite
def distributions(draw, size):
    """Return masses k/64, zeros included: exact in floating point."""
    cuts = sorted(draw(st.lists(st.integers(0, _PARTS), min_size=size - 1, max_size=size - 1)))
    edges = [0, *cuts, _PARTS]
    return [Fraction(b - a, _PARTS) for a, b in itertools.pairwise(edges)]


@st.composite
def finite_pairs(draw):
    size = draw(st.integers(2, 4))
    return draw(distributions(size)), draw(distributions(size))


def _floats(masses):
    return [float(mass) for mass in masses]


deltas = st.floats(math.log(1e-30), math.log(0.9)).map(math.exp)
HALVES = st.sampled_from(["add", "remove"])
SURE = ([Fraction(1), Fraction(0)], [Fraction(1, 2), Fraction(1, 2)])


def _check_finite(bounds, delta, pairs):
    """Compare with the enumeration; where the infinite mass exceeds delta so must the answer."""
    mass_inf = oracles.finite_delta(pairs, 500.0)
    if mass_inf > delta:
        assert bounds == (math.inf, math.inf)
    else:
        # Masses are exact, so are products; log and exp of the losses are not.
        check_epsilon(bounds, delta, partial(oracles.finite_delta, pairs), oracle_error=1e-14)


class TestFinitePairs:
    @given(pair=finite_pairs(), count=st.integers(1, 4), half=HALVES, delta=deltas)
    def test_repeated(self, pair, count, half, delta):
        p, q = pair
        loss = count * taut.finite(_floats(p), _floats(q), adjacency=half)
        ordered = (p, q) if half == "add" else (q, p)
        _check_finite(loss.epsilon_bounds(delta), delta, [ordered] * count)

    @settings(max_examples=25)
    @given(
        first=finite_pairs(),
        second=finite_pairs(),
        delta=deltas,
        tolerance=st.sampled_from(TOLERANCES),
    )
    def test_two_kinds_in_both_directions(self, first, second, delta, tolerance):
        loss = sum(n * taut.finite(*map(_floats, pair)) for pair, n in ((first, 2), (second, 1)))
        pairs = [first, first, second]
        bounds = loss.epsilon_bounds(delta, tolerance)
        reversed_pairs = [(q, p) for p, q in pairs]
        worst_inf = max(oracles.finite_delta(order, 500.0) for order in (pairs, reversed_pairs))
        if worst_inf > delta:
            assert bounds == (math.inf, math.inf)
            return

        def truth(epsilon):
            return max(oracles.finite_delta(order, epsilon) for order in (pairs, reversed_pairs))

        check_epsilon(bounds, delta, truth, tolerance, oracle_error=1e-14)

    @given(pair=finite_pairs(), count=st.integers(1, 4), epsilon=st.floats(0, 6))
    def test_delta(self, pair, count, epsilon):
        loss = count * taut.finite(*map(_floats, pair), adjacency="add")
        truth = oracles.finite_delta([pair] * count, epsilon)
        check_delta(loss.delta_bounds(epsilon), truth, oracle_error=1e-13)

    @given(
        pair=finite_pairs(),
        rate=st.integers(1, 31).map(lambda k: Fraction(k, 32)),
        count=st.integers(1, 4),
        half=HALVES,
        delta=deltas,
    )
    def test_poisson_sampled(self, pair, rate, count, half, delta):
        loss = taut.finite(*map(_floats, pair), adjacency=half).poisson(float(rate))
        sampled = oracles.mixed(*pair, rate, half)
        _check_finite((count * loss).epsilon_bounds(delta), delta, [sampled] * count)

    @pytest.mark.parametrize("count", [1, 2, 4])
    @pytest.mark.parametrize("delta", [1e-3, 0.01, 0.1, 0.5, 0.6, 0.75, 0.9, 0.95])
    @pytest.mark.parametrize("half", ["add", "remove"])
    @pytest.mark.parametrize("rate", [None, Fraction(1, 8)])
    def test_an_outcome_that_betrays(self, rate, half, delta, count):
        p, q = SURE
        loss = taut.finite(_floats(p), _floats(q), adjacency=half)
        pair = (p, q) if half == "add" else (q, p)
        if rate is not None:
            loss, pair = loss.poisson(float(rate)), oracles.mixed(p, q, rate, half)
        _check_finite((count * loss).epsilon_bounds(delta), delta, [pair] * count)

    @pytest.mark.parametrize("count", [1, 2, 4])
    def test_delta_at_the_largest_loss(self, count):
        # The float below count * log(2) leaves a positive delta, the one above leaves none.
        loss = count * taut.finite(*map(_floats, SURE), adjacency="add")
        for epsilon in (count * math.log(2), math.nextafter(count * math.log(2), 9)):
            truth = oracles.finite_delta([SURE] * count, epsilon)
            assert loss.delta_bounds(epsilon).lower <= truth <= loss.delta(epsilon) <= 1e-12

    @pytest.mark.parametrize("offset", [4e-10, -4e-10])
    def test_an_atom_a_hair_off_the_lattice_is_not_moved(self, offset):
        # Three almost equispaced losses; the middle one is off by less than a billionth of a step.
        q = [0.3, 0.3, 0.4]
        p = [q[0] * math.exp(-0.5), q[1] * math.exp(offset), q[2] * math.exp(0.5)]
        p = [mass / math.fsum(p) for mass in p]
        pair = [Fraction(mass) for mass in p], [Fraction(mass) for mass in q]
        loss = 4 * taut.finite(p, q, adjacency="add")
        for delta in (1e-1, 1e-2, 1e-3):
            truth = partial(oracles.finite_delta, [pair] * 4)
            check_epsilon(loss.epsilon_bounds(delta, 1e-9), delta, truth, 1e-9, oracle_error=1e-14)
