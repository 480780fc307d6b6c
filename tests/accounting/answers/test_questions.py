"""Trade-off curves, Renyi divergences, cumulants and estimates."""

import cmath
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import accounting as oracles
from scipy.special import ndtr, ndtri

import taut
from taut.accounting import stability_release, variance_pair

GAUSSIAN_AND_RESPONSE = taut.gaussian(2.0) + 3 * taut.randomized_response(0.6)


class TestTradeoff:
    @settings(max_examples=50)
    @given(sigma=st.floats(0.3, 10), fpr=st.floats(1e-6, 1 - 1e-6))
    def test_single_gaussian(self, sigma, fpr):
        exact = ndtr(ndtri(1 - fpr) - 1 / sigma)
        value = taut.gaussian(sigma).tradeoff(fpr)
        assert value <= exact + 1e-12
        assert value == pytest.approx(exact, abs=1e-6, rel=1e-6)

    @settings(max_examples=50)
    @given(p=st.floats(0.5, 0.99), fpr=st.floats(0, 1))
    def test_randomized_response(self, p, fpr):
        exact = max(0.0, 1 - fpr * p / (1 - p), (1 - p) / p * (1 - fpr))
        value = taut.randomized_response(p).tradeoff(fpr)
        assert value <= exact + 1e-12
        assert value == pytest.approx(exact, abs=1e-6)

    @pytest.mark.parametrize("loss", [GAUSSIAN_AND_RESPONSE, 10 * taut.gaussian(2.0).poisson(0.1)])
    def test_sum_is_the_best_line_below_the_profile(self, loss):
        epsilons = np.linspace(-4, 6, 61)
        profile = {e: loss.profile(math.exp(e)) for e in epsilons.tolist()}
        for fpr in (1e-3, 0.05, 0.3, 0.7, 0.99):
            best = max(1 - math.exp(e) * fpr - h for e, h in profile.items())
            # No line may lie above the curve; between the lines there is little room.
            assert best - 1e-3 <= loss.tradeoff(fpr) <= best + 1e-2

    @settings(max_examples=30)
    @given(fpr=st.floats(0, 1))
    def test_free_release(self, fpr):
        assert taut.zero().tradeoff(fpr) == pytest.approx(1 - fpr, abs=1e-12)

    def test_ends(self):
        assert taut.gaussian(1.0).tradeoff(0) == 1
        assert taut.gaussian(1.0).tradeoff(1) == 0
        assert taut.approximate(1.0, 0.1).tradeoff(0) == pytest.approx(0.9)
        assert taut.randomized_response(1.0).tradeoff(0.3) == 0

    @settings(max_examples=15)
    @given(first=st.floats(0, 1), second=st.floats(0, 1))
    def test_falls_with_the_false_positive_rate(self, first, second):
        small, large = sorted((first, second))
        assert GAUSSIAN_AND_RESPONSE.tradeoff(large) <= GAUSSIAN_AND_RESPONSE.tradeoff(small) + 1e-9


def _renyi_of_sampled_gaussian(mu, rate, order, half):
    """Return the divergence by 30-digit quadrature."""
    with mp.workdps(30):
        mu, rate, order = mp.mpf(mu), mp.mpf(rate), mp.mpf(order)
        centre = max(mu * order, 1)
        pieces = [-15, -3, 0, mu / 2, mu, centre, centre + 3, centre + 15]

        def integrand(x):
            ratio = 1 - rate + rate * mp.exp(mu * x - mu**2 / 2)
            power = ratio**order if half == "remove" else ratio ** (1 - order)
            return mp.exp(-(x**2) / 2) / mp.sqrt(2 * mp.pi) * power

        return float(mp.log(mp.quad(integrand, sorted(set(pieces)))) / (order - 1))


class TestRenyi:
    @given(mu=st.floats(0.01, 10), order=st.floats(1, 100))
    def test_gaussian(self, mu, order):
        assert taut.gaussian(1.0, mu).rdp(order) == pytest.approx(order * mu**2 / 2, rel=1e-10)

    @pytest.mark.parametrize("half", ["add", "remove"])
    @pytest.mark.parametrize("order", [1.25, 2, 3.7, 16])
    @pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.01), (0.5, 0.1), (0.1, 0.3), (3.0, 0.9)])
    def test_sampled_gaussian(self, sigma, rate, order, half):
        exact = _renyi_of_sampled_gaussian(1 / mp.mpf(sigma), rate, order, half)
        loss = taut.gaussian(sigma, adjacency=half).poisson(rate)
        assert loss.rdp(order) == pytest.approx(exact, rel=1e-8)

    @pytest.mark.parametrize(
        ("loss", "pure"),
        [
            (taut.laplace(0.5), 2.0),
            (taut.randomized_response(0.75), math.log(3)),
            (taut.exponential(1.5), 1.5),
            (taut.discrete_laplace(2.0, 3), 1.5),
            (taut.gaussian(1.0), math.inf),
            (taut.laplace(0.5).poisson(0.1), math.log(0.9 + 0.1 * math.exp(2))),
            (3 * taut.pure(0.5), 1.5),
        ],
    )
    def test_order_infinity_is_pure(self, loss, pure):
        assert loss.rdp(math.inf) == pytest.approx(pure, rel=1e-12)

    @pytest.mark.parametrize(
        "loss",
        [taut.approximate(1.0, 1e-9), stability_release(1.0, 1e-3)],
        ids=repr,
    )
    def test_infinite_with_a_chance_of_failure(self, loss):
        assert loss.rdp(2) == math.inf

    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("order", [1.1, 1.3, 1.4, 5.0, 100.0])
    def test_variances(self, order, count):
        loss = count * variance_pair(2.0, 1.0, adjacency="add")
        precision = order / 4 - (order - 1)
        if precision <= 0:
            assert loss.rdp(order) == math.inf
            return
        exact = (-order * math.log(2.0) - 0.5 * math.log(precision)) / (order - 1)
        assert loss.rdp(order) == pytest.approx(count * exact, rel=1e-9)

    def test_sampling_keeps_an_infinite_divergence_infinite(self):
        assert variance_pair(1.0, 2.0, adjacency="remove").poisson(0.1).rdp(10) == math.inf

    @pytest.mark.parametrize(
        "loss",
        [
            taut.laplace(0.7),
            taut.discrete_gaussian(1.5, 2),
            taut.exponential(0.9),
            variance_pair(1.0, 1.05),
            taut.gaussian(0.8).poisson(0.2),
            taut.gaussian(2.0, 2.0, adjacency="replace").fixed_size(20, 100, adjacency="replace"),
            taut.finite([0.2, 0.3, 0.5], [0.5, 0.3, 0.2]),
        ],
        ids=repr,
    )
    def test_shape(self, loss):
        orders = [1, 1.01, 1.5, 2, 3, 5, 8]
        values = [loss.rdp(order) for order in orders]
        assert values == sorted(values)
        assert values[1] == pytest.approx(values[0], rel=0.03)
        # (order - 1) rdp(order) is convex
        scaled = [(order - 1) * value for order, value in zip(orders, values, strict=True)]
        slopes = np.diff(scaled) / np.diff(orders)
        assert (np.diff(slopes) >= -1e-9).all()

    @settings(max_examples=30)
    @given(n=st.integers(0, 1000), order=st.floats(1, 30))
    def test_composition_adds(self, n, order):
        a, b = taut.laplace(2.0), taut.gaussian(3.0)
        expected = n * a.rdp(order) + b.rdp(order)
        assert (n * a + b).rdp(order) == pytest.approx(expected, rel=1e-10)

    @given(order=st.floats(1.01, 20))
    def test_is_the_cumulant(self, order):
        loss = taut.laplace(0.7) + taut.randomized_response(0.7)
        expected = loss.log_mgf(order - 1).real / (order - 1)
        assert loss.rdp(order) == pytest.approx(expected, rel=1e-9)


CUMULANTS = {
    "gaussian": (taut.gaussian(2.0), lambda z: z * (z + 1) / 8),
    "laplace": (
        taut.laplace(0.7),
        lambda z: mp.log(
            (
                mp.exp(z / 0.7)
                + mp.exp(-(z + 1) / 0.7)
                + (mp.exp(z / 0.7) - mp.exp(-(z + 1) / 0.7)) / (2 * z + 1)
            )
            / 2
        ),
    ),
    "response": (
        taut.randomized_response(0.75),
        lambda z: mp.log(0.75 * mp.exp(z * mp.log(3)) + 0.25 * mp.exp(-z * mp.log(3))),
    ),
    "selection": (
        taut.exponential(1.3),
        lambda z: mp.log(mp.sinh((z + 0.5) * 1.3) / (2 * (z + 0.5) * mp.sinh(0.65))),
    ),
    "variance": (
        variance_pair(1.0, 1.5, adjacency="add"),
        lambda z: z * mp.log(1.5) - mp.log((1 + z) - z / 2.25) / 2,
    ),
}


class TestCumulant:
    @pytest.mark.parametrize("z", [0.3, 2.0, 1j, 0.5 + 3j, -0.25 + 1j])
    @pytest.mark.parametrize("name", CUMULANTS)
    def test_closed_forms(self, name, z):
        loss, exact = CUMULANTS[name]
        value = cmath.exp(loss.log_mgf(z))
        assert value == pytest.approx(complex(mp.exp(exact(mp.mpc(z)))), rel=1e-11)

    def test_laplace_at_its_removable_singularity(self):
        exact = math.log((2 * math.exp(-1 / 1.4) + math.exp(-1 / 1.4) / 0.7) / 2)
        assert taut.laplace(0.7).log_mgf(-0.5).real == pytest.approx(exact, rel=1e-12)

    @pytest.mark.parametrize("name", CUMULANTS)
    def test_zero_and_minus_one(self, name):
        loss, _ = CUMULANTS[name]
        assert abs(loss.log_mgf(0)) < 1e-12
        assert abs(loss.log_mgf(-1)) < 1e-12

    def test_discrete_gaussian_against_its_masses(self):
        x = np.arange(-80, 81)
        mass = np.exp(-(x**2) / (2 * 1.5**2))
        losses = (4 - 4 * x) / (2 * 1.5**2)
        for z in (0.4, 2.0, 0.7 + 2j):
            exact = np.log(np.sum(mass / mass.sum() * np.exp(z * losses)))
            value = taut.discrete_gaussian(1.5, 2).log_mgf(z)
            assert cmath.exp(value) == pytest.approx(complex(np.exp(exact)), rel=1e-11)

    def test_finite_mass_only(self):
        loss = taut.approximate(1.0, 0.25)
        assert loss.log_mgf(0).real == pytest.approx(math.log(0.75), rel=1e-12)

    @pytest.mark.parametrize("half", ["add", "remove"])
    def test_halves_of_a_sampled_release(self, half):
        loss = taut.randomized_response(0.75).poisson(0.5)
        first = {"add": [0.75, 0.25], "remove": [0.5, 0.5]}[half]
        second = {"add": [0.5, 0.5], "remove": [0.75, 0.25]}[half]
        for z in (1.0, 2.5, 1j):
            exact = sum(p * (p / q) ** z for p, q in zip(first, second, strict=True))
            assert cmath.exp(loss.log_mgf(z, half=half)) == pytest.approx(exact, rel=1e-11)

    def test_profile_is_its_inverse_transform(self):
        # E exp(z L) = z (z + 1) times the integral of exp(z e) h(exp(e))
        loss, z = taut.gaussian(1.0), 2.0
        with mp.workdps(20):
            integral = mp.quad(
                lambda e: mp.exp(z * e) * oracles.gaussian_delta(1, e), [-40, -10, 0, 3, 10, 40]
            )
        assert z * (z + 1) * float(integral) == pytest.approx(math.exp(loss.log_mgf(z).real))


class TestEstimates:
    @pytest.mark.parametrize("method", ["contour", "afa"])
    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_gaussians_and_responses(self, epsilon, method):
        loss = 50 * taut.gaussian(5.0) + 50 * taut.randomized_response(0.52)
        mu = oracles.gaussian_sum_mu([(0.2, 50)])
        exact = float(oracles.gaussian_and_response_delta(mu, 0.52, 50, epsilon))
        assert loss.estimate_delta(epsilon, method=method) == pytest.approx(exact, rel=1e-6)

    @pytest.mark.slow
    def test_sampled_gaussian(self):
        loss = 1000 * taut.gaussian(2.0).poisson(0.01)
        assert loss.estimate_delta(0.6220303088, method="afa") == pytest.approx(1e-5, rel=1e-4)

    def test_afa_inverts_to_epsilon(self):
        loss = 10 * taut.gaussian(5.0)
        lower, upper = loss.epsilon_bounds(1e-5)
        assert loss.estimate_epsilon(1e-5, method="afa") == pytest.approx(upper, rel=1e-5)
        assert lower <= upper

    def test_contour_is_accurate_at_tiny_delta(self):
        loss = taut.gaussian(1.0) + taut.laplace(2.0)
        lower, upper = loss.epsilon_bounds(1e-25, 1e-6)
        assert loss.estimate_epsilon(1e-25) == pytest.approx((lower + upper) / 2, rel=1e-6)

    def test_contour_of_a_sampled_run_is_refused(self):
        # No closed-form cumulant; the certified bracket is the better answer anyway.
        loss = 1000 * taut.gaussian(1.0).poisson(0.01)
        with pytest.raises(ValueError, match="closed-form"):
            loss.estimate_epsilon(1e-5)
        lower, upper = loss.epsilon_bounds(1e-5, 1e-6)
        assert lower <= 1.8282366665 <= upper

    def test_afa_is_unsafe_at_large_epsilon(self):
        # The subtraction multiplies quadrature errors by exp(epsilon): why it is no default.
        exact = float(oracles.gaussian_delta(3, 25.0))
        error = abs(taut.gaussian(1.0, 3.0).estimate_delta(25.0, method="afa") - exact)
        assert error > 1e4 * exact
        assert taut.gaussian(1.0, 3.0).delta(25.0) == pytest.approx(exact, rel=1e-9)

    def test_free_release(self):
        assert taut.zero().estimate_epsilon(1e-5) == pytest.approx(0, abs=1e-9)
        assert taut.zero().estimate_delta(1.0) == pytest.approx(0, abs=1e-9)
