"""The factories: exact profiles of single releases, limit cases, and a test per refusal."""

import math
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import accounting as oracles
from oracles.engines import check_delta, check_epsilon

import taut
from taut.accounting import stability_release, variance_pair
from taut.errors import UnsoundConfiguration

EPSILONS = [0.0, 1e-9, 0.01, 0.3, 1.0, 2.5, 7.0, 30.0]


def _finite_pair_delta(losses_and_masses, epsilon):
    with mp.workdps(40):
        return mp.fsum(
            mass * -mp.expm1(mp.mpf(epsilon) - at) for at, mass in losses_and_masses if at > epsilon
        )


def _discrete_laplace_outcomes(scale, shift):
    """Return (loss, mass) by summing the geometric masses over all integers far enough."""
    with mp.workdps(40):
        decay = mp.exp(-1 / mp.mpf(scale))
        norm = (1 - decay) / (1 + decay)
        reach = int(100 * scale) + shift
        return [
            ((abs(x - shift) - abs(x)) / mp.mpf(scale), norm * decay ** abs(x))
            for x in range(-reach, reach + shift + 1)
        ]


SINGLE = {
    "gaussian": (taut.gaussian(2.0, 3.0), partial(oracles.gaussian_delta, 1.5)),
    "faint gaussian": (taut.gaussian(1e4), partial(oracles.gaussian_delta, mp.mpf(1) / 10**4)),
    "loud gaussian": (taut.gaussian(0.02), partial(oracles.gaussian_delta, 1 / mp.mpf(0.02))),
    "laplace": (taut.laplace(0.8, 2.0), partial(oracles.laplace_delta, mp.mpf(0.8) / 2)),
    "faint laplace": (taut.laplace(1e4), partial(oracles.laplace_delta, 1e4)),
    "loud laplace": (taut.laplace(0.001), partial(oracles.laplace_delta, 0.001)),
    "response": (
        taut.randomized_response(0.8),
        partial(oracles.randomized_response_delta, 0.8, 1),
    ),
    "mirrored response": (
        taut.randomized_response(0.25),
        partial(oracles.randomized_response_delta, 0.75, 1),
    ),
    "pure": (taut.pure(1.5), partial(oracles.failing_response_delta, 1.5, 0.0, 1)),
    "approximate": (
        taut.approximate(1.5, 1e-3),
        partial(oracles.failing_response_delta, 1.5, 1e-3, 1),
    ),
    "discrete gaussian": (
        taut.discrete_gaussian(1.5, 2),
        partial(oracles.discrete_gaussian_delta, 1.5, 2, 1),
    ),
    "discrete laplace": (
        taut.discrete_laplace(1.5, 3),
        partial(_finite_pair_delta, _discrete_laplace_outcomes(1.5, 3)),
    ),
    "exponential": (taut.exponential(1.2), partial(oracles.exponential_delta, 1.2)),
    "variance, shrinking": (
        variance_pair(2.0, 1.0, adjacency="add"),
        partial(oracles.variance_delta, 2.0, 1.0),
    ),
    "variance, growing": (
        variance_pair(2.0, 1.0, adjacency="remove"),
        partial(oracles.variance_delta, 1.0, 2.0),
    ),
    "finite": (
        taut.finite([0.5, 0.25, 0.25], [0.25, 0.25, 0.5], adjacency="add"),
        partial(_finite_pair_delta, [(mp.log(2), mp.mpf(1) / 2)]),
    ),
}


@pytest.fixture(params=SINGLE.values(), ids=SINGLE.keys())
def single(request):
    return request.param


class TestSingleReleases:
    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_delta_is_exact(self, single, epsilon):
        loss, truth = single
        if truth(epsilon) < oracles.FLOOR:
            assert loss.delta(epsilon) < 2 * oracles.FLOOR
            return
        check_delta(loss.delta_bounds(epsilon), mp.mpf(truth(epsilon)), 1e-6, oracle_error=1e-25)

    @pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-5, 1e-12, 1e-30])
    def test_epsilon_is_exact(self, single, delta):
        loss, truth = single
        bounds = loss.epsilon_bounds(delta)
        if math.isfinite(bounds.upper):
            check_epsilon(bounds, delta, truth, 1e-8, oracle_error=1e-25)
        else:
            assert bounds.lower == math.inf
            assert truth(1e6) > delta

    @pytest.mark.parametrize("threshold", [1e-6, 0.1, 0.5, 0.99])
    def test_profile_below_one_follows_the_swap_rule(self, single, threshold):
        loss, truth = single
        swapped = {"add": "remove", "remove": "add", "add_remove": "add_remove"}[loss.adjacency]
        backward = taut.PrivacyLoss(loss.terms, swapped)
        with mp.workdps(40):
            expected = 1 - mp.mpf(threshold) * (1 - truth(-mp.log(mp.mpf(threshold))))
        # The answer is near one, so it is a double to one unit in the last place.
        assert expected - 2**-52 <= backward.profile(threshold) <= expected + 1e-9


class TestLimits:
    @pytest.mark.parametrize("p", [0.0, 1.0])
    def test_a_certain_answer_hides_nothing(self, p):
        loss = taut.randomized_response(p)
        assert loss.epsilon_bounds(0.999) == (math.inf, math.inf)
        assert loss.delta_bounds(50.0) == (1.0, 1.0)

    def test_a_fair_coin_hides_everything(self):
        assert taut.randomized_response(0.5).epsilon_bounds(0) == (0.0, 0.0)

    def test_pure_zero_is_free(self):
        assert (5 * taut.pure(0.0)).epsilon_bounds(0) == (0.0, 0.0)

    def test_equal_variances_are_free(self):
        assert variance_pair(2.0, 2.0).epsilon(0) == 0

    @pytest.mark.parametrize(
        ("loss", "expected"),
        [
            (taut.gaussian(1.0), math.inf),
            (taut.discrete_gaussian(1.0), math.inf),
            (taut.laplace(2.0), 0.5),
            (taut.discrete_laplace(2.0, 3), 1.5),
            (taut.exponential(0.7), 0.7),
            (taut.pure(0.7), 0.7),
            (taut.approximate(0.7, 1e-9), math.inf),
            (taut.approximate(0.7, 0.0), 0.7),
            (stability_release(1.0, 1e-6), math.inf),
        ],
    )
    def test_delta_zero_is_the_pure_epsilon(self, loss, expected):
        assert loss.epsilon(0) == pytest.approx(expected, rel=1e-12)

    def test_delta_at_the_infinite_mass_exactly(self):
        loss = taut.approximate(0.7, 0.25)
        assert loss.epsilon(0.25) == pytest.approx(0.7, rel=1e-9)
        assert loss.epsilon(0.2499) == math.inf

    def test_delta_above_the_distance_is_free(self):
        assert taut.gaussian(1.0).epsilon_bounds(0.39) == (0.0, 0.0)

    @given(
        outcomes=st.integers(2, 5).flatmap(
            lambda n: st.tuples(
                *(st.lists(st.integers(0, 20), min_size=n, max_size=n) for _ in range(2))
            )
        ),
        delta=st.floats(0, 0.99),
        half=st.sampled_from(["add", "remove", "add_remove", "replace"]),
    )
    def test_epsilon_of_finite_pairs_is_never_negative(self, outcomes, delta, half):
        p, q = (np.array(masses, dtype=float) for masses in outcomes)
        if not (p.sum() and q.sum()):
            return
        lower, upper = taut.finite(p / p.sum(), q / q.sum(), adjacency=half).epsilon_bounds(delta)
        assert 0 <= lower <= upper

    def test_stability_release_fails_with_half_of_its_delta(self):
        loss = stability_release(1.0, 1e-3)
        assert loss.delta(20.0) == pytest.approx(5e-4, rel=1e-9)
        assert loss.epsilon(4e-4) == math.inf


POSITIVE = [0, -1.0, math.nan, math.inf, -math.inf]
NOT_A_NUMBER = [True, "1", None, [1.0], 1j]
PROBABILITY = [-0.1, 1.1, math.nan, math.inf, -math.inf]

POSITIVE_ARGUMENTS = {
    "gaussian-sigma": lambda x: taut.gaussian(x),
    "gaussian-sensitivity": lambda x: taut.gaussian(1.0, sensitivity=x),
    "laplace-scale": lambda x: taut.laplace(x),
    "laplace-sensitivity": lambda x: taut.laplace(1.0, sensitivity=x),
    "discrete_gaussian-sigma": lambda x: taut.discrete_gaussian(x),
    "discrete_laplace-scale": lambda x: taut.discrete_laplace(x),
    "exponential-epsilon": lambda x: taut.exponential(x),
    "variance_pair-sigma_p": lambda x: variance_pair(x, 1.0),
    "variance_pair-sigma_q": lambda x: variance_pair(1.0, x),
    "stability_release-epsilon": lambda x: stability_release(x, 1e-3),
}
PROBABILITY_ARGUMENTS = {
    "randomized_response-p": lambda x: taut.randomized_response(x),
    "approximate-delta": lambda x: taut.approximate(1.0, x),
    "stability_release-delta": lambda x: stability_release(1.0, x),
    "poisson-rate": lambda x: taut.gaussian(1.0).poisson(x),
}
COUNT_ARGUMENTS = {
    "discrete_gaussian-sensitivity": lambda x: taut.discrete_gaussian(1.0, x),
    "discrete_laplace-sensitivity": lambda x: taut.discrete_laplace(1.0, x),
}


def refuses(call, value, error, *words):
    """Assert that ``call(value)`` raises ``error`` with a message that shows the value."""
    with pytest.raises(error) as caught:
        call(value)
    for word in (repr(value), *words):
        assert word in str(caught.value)


class TestRefusals:
    @pytest.mark.parametrize("value", POSITIVE)
    @pytest.mark.parametrize("name", POSITIVE_ARGUMENTS)
    def test_not_positive(self, name, value):
        argument = name.split("-")[1]
        refuses(
            POSITIVE_ARGUMENTS[name], value, ValueError, f"{argument} must be", "greater than 0"
        )

    @pytest.mark.parametrize("value", PROBABILITY)
    @pytest.mark.parametrize("name", PROBABILITY_ARGUMENTS)
    def test_not_a_probability(self, name, value):
        argument = name.split("-")[1]
        refuses(PROBABILITY_ARGUMENTS[name], value, ValueError, f"{argument} must be", "[0, 1")

    @pytest.mark.parametrize("value", NOT_A_NUMBER)
    @pytest.mark.parametrize("name", [*POSITIVE_ARGUMENTS, *PROBABILITY_ARGUMENTS])
    def test_not_a_number(self, name, value):
        call = (POSITIVE_ARGUMENTS | PROBABILITY_ARGUMENTS)[name]
        refuses(call, value, TypeError, f"{name.split('-')[1]} must be a real number")

    @pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
    def test_pure_epsilon_not_finite_or_negative(self, value):
        refuses(taut.pure, value, ValueError, "epsilon must be", "at least 0")
        refuses(lambda x: taut.approximate(x, 0.1), value, ValueError, "epsilon", "at least 0")

    @pytest.mark.parametrize("value", [0, -3])
    @pytest.mark.parametrize("name", COUNT_ARGUMENTS)
    def test_not_a_positive_integer(self, name, value):
        refuses(COUNT_ARGUMENTS[name], value, ValueError, "sensitivity must be at least 1")

    @pytest.mark.parametrize("value", [True, 1.5, 2.0, "1", None, math.nan])
    @pytest.mark.parametrize("name", COUNT_ARGUMENTS)
    def test_not_an_integer(self, name, value):
        refuses(COUNT_ARGUMENTS[name], value, TypeError, "sensitivity", "convert it with int(...)")

    @pytest.mark.parametrize("value", [10**400, -(10**400)])
    def test_an_integer_beyond_floating_point(self, value):
        with pytest.raises(ValueError, match="sigma must be"):
            taut.gaussian(value)

    def test_certain_failure(self):
        refuses(lambda x: taut.approximate(1.0, x), 1.0, ValueError, "delta must be in [0, 1)")

    def test_stability_without_failure(self):
        refuses(
            lambda x: stability_release(1.0, x),
            0.0,
            ValueError,
            "delta must be greater than 0",
        )

    def test_finite_masses_that_do_not_sum_to_one(self):
        with pytest.raises(ValueError, match=r"p must sum to 1, got .*0\.9.*divide by the sum"):
            taut.finite([0.5, 0.4], [0.5, 0.5])
        with pytest.raises(ValueError, match="q must sum to 1"):
            taut.finite([0.5, 0.5], [0.5, 0.6])

    @pytest.mark.parametrize("bad", [-0.5, 1.5, math.nan])
    def test_finite_masses_that_are_no_probabilities(self, bad):
        refuses(lambda x: taut.finite([x, 1.0 - x], [0.5, 0.5]), bad, ValueError, "p must be")

    def test_finite_of_different_lengths(self):
        with pytest.raises(ValueError, match="same outcomes, got 2 and 3"):
            taut.finite([0.5, 0.5], [0.5, 0.25, 0.25])

    @pytest.mark.parametrize("bad", [[], [[0.5, 0.5]], 1.0])
    def test_finite_that_is_no_vector(self, bad):
        refuses(lambda x: taut.finite(x, [1.0]), bad, ValueError, "p must be a non-empty vector")

    @pytest.mark.parametrize("bad", [["a", "b"], ["0.5", "0.5"], [None, 1.0], [1j, 1.0]])
    def test_finite_of_something_else(self, bad):
        with pytest.raises((TypeError, ValueError), match="p must be"):
            taut.finite(bad, [0.5, 0.5])

    def test_variance_pair_under_replace(self):
        with pytest.raises(
            UnsoundConfiguration, match=r"variance_pair is not symmetric.*add_remove"
        ):
            variance_pair(1.0, 2.0, adjacency="replace")

    def test_discrete_gaussian_that_would_not_fit_into_memory(self):
        with pytest.raises(ValueError, match="divide sigma and sensitivity by a common unit"):
            taut.discrete_gaussian(1e9).epsilon(1e-5)
