"""Calibration: the least noise, or the most use, that a budget allows."""

import math
from functools import partial

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import accounting as oracles

import taut
from taut.errors import InfeasibleBudget


def sampled(sigma, rate=0.01, steps=1000):
    return steps * taut.gaussian(sigma).poisson(rate)


class TestNoise:
    @settings(max_examples=25)
    @given(
        epsilon=st.floats(0.05, 30),
        delta=st.floats(math.log(1e-20), math.log(0.05)).map(math.exp),
        tolerance=st.sampled_from([1e-2, 1e-4, 1e-6]),
    )
    def test_gaussian_against_the_closed_form(self, epsilon, delta, tolerance):
        found = taut.calibrate(taut.gaussian, epsilon=epsilon, delta=delta, tolerance=tolerance)
        assert found.epsilon.upper <= epsilon
        # Safe: the true delta is within the budget. Sharp: with a bit less noise it is not.
        assert oracles.gaussian_delta(1 / mp.mpf(found.value), epsilon) <= delta
        smaller = mp.mpf(found.value) * (1 - 1.01 * mp.mpf(tolerance))
        assert oracles.gaussian_delta(1 / smaller, epsilon) > delta

    @pytest.mark.parametrize("steps", [1000, 10_000])
    def test_sampled_gaussian_to_four_digits(self, steps):
        make = partial(sampled, steps=steps)
        found = taut.calibrate(make, epsilon=3, delta=1e-5)
        assert found.epsilon.upper <= 3
        assert make(found.value).epsilon(1e-5, 1e-5) <= 3
        assert make(found.value * (1 - 2e-4)).epsilon_bounds(1e-5, 1e-5).lower > 3

    def test_result_describes_itself(self):
        found = taut.calibrate(sampled, epsilon=3, delta=1e-5)
        assert float(found) == found.value
        assert found.loss == sampled(found.value)
        assert found.delta == 1e-5
        assert found.epsilon.lower <= found.loss.epsilon(1e-5)

    @pytest.mark.parametrize("bracket", [(0.5, 2.0), (2.0, 0.5), (0.01, 1000.0)])
    def test_bracket(self, bracket):
        found = taut.calibrate(taut.gaussian, epsilon=5, delta=1e-5, bracket=bracket)
        assert found.value == pytest.approx(
            taut.calibrate(taut.gaussian, epsilon=5, delta=1e-5).value, rel=3e-4
        )

    @pytest.mark.parametrize("epsilon", [1e-3, 0.1, 100.0])
    def test_far_from_the_starting_point(self, epsilon):
        found = taut.calibrate(taut.laplace, epsilon=epsilon, delta=0)
        assert found.value == pytest.approx(1 / epsilon, rel=2e-4)
        assert found.epsilon.upper <= epsilon

    def test_any_parameter_of_any_sum(self):
        def make(p):
            return 10 * taut.randomized_response(p) + taut.gaussian(5.0)

        found = taut.calibrate(make, epsilon=2, delta=1e-6, bracket=(0.5001, 0.9))
        assert found.epsilon.upper <= 2
        assert make(found.value * 1.001).epsilon_bounds(1e-6).lower > 2


class TestUse:
    @pytest.mark.parametrize("bracket", [None, (0.001, 0.5)])
    def test_rate(self, bracket):
        make = partial(sampled, 1.0)
        found = taut.calibrate(make, epsilon=1, delta=1e-5, bracket=bracket)
        assert found.epsilon.upper <= 1
        assert make(found.value * (1 + 3e-4)).epsilon_bounds(1e-5, 1e-5).lower > 1

    @pytest.mark.parametrize("bracket", [None, (1, 10**6), (1, 300)])
    def test_steps(self, bracket):
        found = taut.calibrate(
            lambda n: n * taut.gaussian(1.0).poisson(0.01),
            epsilon=1,
            delta=1e-5,
            integer=True,
            bracket=bracket,
        )
        assert isinstance(found.value, int)
        assert found.epsilon.upper <= 1
        assert sampled(1.0, steps=found.value + 1).epsilon(1e-5) > 1
        assert sampled(1.0, steps=found.value + 2).epsilon_bounds(1e-5).lower > 0.995

    def test_steps_against_the_closed_form(self):
        found = taut.calibrate(
            lambda n: n * taut.gaussian(50.0), epsilon=2, delta=1e-4, integer=True
        )

        def delta(n):
            return oracles.gaussian_delta(oracles.gaussian_sum_mu([(1 / mp.mpf(50), n)]), 2)

        assert delta(found.value) <= 1e-4 < delta(found.value + 1)

    def test_population_falls(self):
        base = taut.gaussian(4.0, 2.0, adjacency="replace")
        found = taut.calibrate(
            lambda n: 100 * base.fixed_size(10, n),
            epsilon=1,
            delta=1e-5,
            integer=True,
            bracket=(11, 10_000),
        )
        assert isinstance(found.value, int)
        assert found.epsilon.upper <= 1
        assert (100 * base.fixed_size(10, found.value - 1)).epsilon(1e-5) > 1

    def test_count_of_one_is_the_answer(self):
        found = taut.calibrate(
            lambda n: n * taut.pure(0.6), epsilon=1, delta=0, integer=True, bracket=(1, 50)
        )
        assert found.value == 1


class TestRefusals:
    def test_too_little_privacy_everywhere(self):
        with pytest.raises(InfeasibleBudget) as caught:
            taut.calibrate(taut.gaussian, epsilon=0.5, delta=1e-5, bracket=(0.5, 2.0))
        for word in ("epsilon=0.5", "delta=1e-05", "0.5 and 2", "exceeds", "widen the bracket"):
            assert word in str(caught.value)

    def test_budget_that_does_not_bind(self):
        with pytest.raises(InfeasibleBudget) as caught:
            taut.calibrate(taut.gaussian, epsilon=50, delta=1e-5, bracket=(1.0, 2.0))
        for word in ("epsilon=50", "1 and 2", "meets", "does not bind"):
            assert word in str(caught.value)

    def test_a_chance_of_failure_no_noise_removes(self):
        def make(sigma):
            return taut.gaussian(sigma) + taut.approximate(0.1, 1e-3)

        with pytest.raises(InfeasibleBudget, match="exceeds"):
            taut.calibrate(make, epsilon=5, delta=1e-5)

    def test_a_parameter_without_effect(self):
        with pytest.raises(InfeasibleBudget):
            taut.calibrate(lambda _: taut.pure(1.0), epsilon=2, delta=0)

    def test_not_even_one_step(self):
        with pytest.raises(InfeasibleBudget):
            taut.calibrate(lambda n: n * taut.pure(2.0), epsilon=1, delta=0, integer=True)

    @pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
    def test_epsilon(self, value):
        with pytest.raises(ValueError, match="epsilon must be finite and greater than 0") as e:
            taut.calibrate(taut.gaussian, epsilon=value, delta=1e-5)
        assert repr(value) in str(e.value)

    @pytest.mark.parametrize("value", [-1e-5, 1.0, math.nan])
    def test_delta(self, value):
        with pytest.raises(ValueError, match=r"delta must be in \[0, 1\)") as e:
            taut.calibrate(taut.gaussian, epsilon=1, delta=value)
        assert repr(value) in str(e.value)

    @pytest.mark.parametrize("value", [0, -1e-3, math.nan, math.inf, 1e-12])
    def test_tolerance(self, value):
        with pytest.raises(ValueError, match="tolerance must be") as e:
            taut.calibrate(taut.gaussian, epsilon=1, delta=1e-5, tolerance=value)
        assert repr(value) in str(e.value)

    @pytest.mark.parametrize("value", [True, "3", None])
    def test_no_number(self, value):
        with pytest.raises(TypeError, match="epsilon must be a real number"):
            taut.calibrate(taut.gaussian, epsilon=value, delta=1e-5)
        with pytest.raises(TypeError, match="delta must be a real number"):
            taut.calibrate(taut.gaussian, epsilon=1, delta=value)

    @pytest.mark.parametrize("bracket", [(0.0, 1.0), (-1.0, 1.0), (1.0, math.nan), (1.0, math.inf)])
    def test_bracket_ends(self, bracket):
        with pytest.raises(ValueError, match="bracket must be"):
            taut.calibrate(taut.gaussian, epsilon=1, delta=1e-5, bracket=bracket)

    @pytest.mark.parametrize("bracket", [(1.0,), (1.0, 2.0, 3.0), 5])
    def test_bracket_of_another_shape(self, bracket):
        with pytest.raises((TypeError, ValueError), match="bracket"):
            taut.calibrate(taut.gaussian, epsilon=1, delta=1e-5, bracket=bracket)

    def test_errors_of_the_loss_itself_pass_through(self):
        def make(_):
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            taut.calibrate(make, epsilon=1, delta=1e-5)


def mixed(sigma):
    """Return a loss that has no lower bound: its bounds stay apart, whatever is asked."""
    return 500 * taut.accounting.mixed_gaussian(sigma, 3.0, sensitivity_inf=1.0, rate=0.01)


@pytest.mark.parametrize(("make", "sharpest"), [(sampled, 1e-2 / 8), (mixed, 1e-2)])
def test_nothing_is_computed_more_sharply_than_the_tolerance_takes(monkeypatch, make, sharpest):
    asked = []
    bounds = taut.PrivacyLoss.epsilon_bounds

    def recorded(self, delta, tolerance=1e-3):
        asked.append(tolerance)
        return bounds(self, delta, tolerance)

    monkeypatch.setattr(taut.PrivacyLoss, "epsilon_bounds", recorded)
    found = taut.calibrate(make, epsilon=3.0, delta=1e-5, tolerance=1e-2)
    assert min(asked) >= sharpest
    assert found.epsilon.upper <= 3.0
    assert make(found.value / 1.02).epsilon(1e-5, 1e-2) > 3.0


@pytest.mark.parametrize(("tolerance", "gap"), [(1e-4, 1e-3), (1e-3, 1e-3), (1e-1, 1.25e-2)])
def test_bounds_beside_the_parameter_are_as_close_as_said(tolerance, gap):
    for epsilon in (0.3, 1.0, 3.0, 8.0):
        found = taut.calibrate(sampled, epsilon=epsilon, delta=1e-5, tolerance=tolerance)
        assert found.epsilon.gap <= gap * found.epsilon.upper
        assert found.epsilon.upper <= epsilon
