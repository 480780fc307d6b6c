"""Everywhere an answer: no NaN, no negative epsilon, no crash; narrow where it matters."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taut
from taut.accounting import variance_pair

RATES = [0.001, 0.01, 0.1]
SIGMAS = [0.3, 0.5, 0.8, 1.0, 2.0]
STEPS = [100, 1_000, 10_000]


def powers(low, high):
    """Return numbers spread evenly on a logarithmic scale."""
    return (
        st.floats(math.log(low), math.log(high)).map(math.exp).map(lambda x: min(max(x, low), high))
    )


def sane(bounds):
    lower, upper = bounds
    assert not math.isnan(lower)
    assert not math.isnan(upper)
    assert 0 <= lower <= upper


@pytest.fixture(scope="module")
def answers():
    """Return the bracket of every setting that people train with, and of louder ones."""
    return {
        (rate, sigma, steps): (steps * taut.gaussian(sigma).poisson(rate)).epsilon_bounds(1e-5)
        for rate, sigma, steps in itertools.product(RATES, SIGMAS, STEPS)
    }


class TestGrid:
    def test_finite_and_narrow(self, answers):
        for bounds in answers.values():
            assert math.isfinite(bounds.upper)
            assert bounds.lower > 0
            assert bounds.gap <= 1e-3 * bounds.upper

    def test_monotone(self, answers):
        for (rate, sigma, steps), bounds in answers.items():
            for i, axis in enumerate((RATES, SIGMAS, STEPS)):
                key = [rate, sigma, steps]
                at = axis.index(key[i])
                if at + 1 < len(axis):
                    key[i] = axis[at + 1]
                    other = answers[tuple(key)]
                    small, large = (other, bounds) if axis is SIGMAS else (bounds, other)
                    assert small.upper < large.lower

    def test_smaller_delta_costs_more(self, answers):
        for (rate, sigma, steps), bounds in answers.items():
            loss = steps * taut.gaussian(sigma).poisson(rate)
            assert loss.epsilon_bounds(1e-9).lower > bounds.upper


class TestWideBox:
    @pytest.mark.slow
    @settings(max_examples=30)
    @given(
        sigma=powers(1e-3, 1e4),
        rate=powers(1e-6, 1),
        steps=powers(1, 1e6).map(int),
        delta=powers(1e-30, 0.5),
    )
    def test_sampled_gaussian(self, sigma, rate, steps, delta):
        sane((steps * taut.gaussian(sigma).poisson(rate)).epsilon_bounds(delta))

    @settings(max_examples=20)
    @given(
        scale=powers(1e-3, 1e4),
        rate=powers(1e-6, 1),
        steps=powers(1, 1e6).map(int),
        delta=powers(1e-30, 0.5),
    )
    def test_sampled_laplace(self, scale, rate, steps, delta):
        sane((steps * taut.laplace(scale).poisson(rate)).epsilon_bounds(delta))

    @settings(max_examples=15)
    @given(
        sigma=powers(1e-3, 1e4),
        batch=st.integers(1, 999),
        steps=powers(1, 1e5).map(int),
        delta=powers(1e-30, 0.5),
        relation=st.sampled_from(["add_remove", "replace"]),
    )
    def test_fixed_size_gaussian(self, sigma, batch, steps, delta, relation):
        base = taut.gaussian(sigma, 2.0, adjacency="replace")
        loss = steps * base.fixed_size(batch, 1000, adjacency=relation)
        sane(loss.epsilon_bounds(delta))

    @settings(max_examples=25)
    @given(
        sigma=powers(0.05, 1e3),
        shift=st.integers(1, 10),
        rate=powers(1e-4, 1),
        steps=powers(1, 1e5).map(int),
        delta=powers(1e-30, 0.5),
    )
    def test_sampled_discrete_gaussian(self, sigma, shift, rate, steps, delta):
        sane((steps * taut.discrete_gaussian(sigma, shift).poisson(rate)).epsilon_bounds(delta))

    @settings(max_examples=40)
    @given(
        epsilon=powers(1e-6, 1e3),
        steps=powers(1, 1e6).map(int),
        delta=powers(1e-30, 0.5),
        make=st.sampled_from(
            [taut.pure, taut.exponential, lambda e: taut.approximate(e, 1e-12), taut.laplace]
        ),
    )
    def test_bounded_losses(self, epsilon, steps, delta, make):
        sane((steps * make(epsilon)).epsilon_bounds(delta))

    @settings(max_examples=15)
    @given(
        sigma_p=powers(1e-2, 1e2),
        ratio=powers(0.1, 10),
        steps=powers(1, 1e4).map(int),
        delta=powers(1e-30, 0.5),
    )
    def test_variances(self, sigma_p, ratio, steps, delta):
        sane((steps * variance_pair(sigma_p, sigma_p * ratio)).epsilon_bounds(delta))

    @settings(max_examples=30)
    @given(
        sigma=powers(0.01, 1e3),
        scale=powers(0.01, 1e3),
        p=st.floats(0, 1),
        counts=st.tuples(*[powers(1, 1e4).map(int)] * 3),
        delta=powers(1e-30, 0.5),
    )
    def test_sums(self, sigma, scale, p, counts, delta):
        loss = (
            counts[0] * taut.gaussian(sigma)
            + counts[1] * taut.laplace(scale)
            + counts[2] * taut.randomized_response(p)
        )
        sane(loss.epsilon_bounds(delta))

    @settings(max_examples=25)
    @given(
        sigma=powers(1e-2, 1e3),
        rate=powers(1e-5, 1),
        steps=powers(1, 1e5).map(int),
        epsilon=st.one_of(st.just(0.0), powers(1e-6, 1e3)),
    )
    def test_delta(self, sigma, rate, steps, epsilon):
        bounds = (steps * taut.gaussian(sigma).poisson(rate)).delta_bounds(epsilon)
        sane(bounds)
        assert bounds.upper <= 1

    @settings(max_examples=40)
    @given(
        sigma=powers(0.3, 100),
        rate=powers(1e-6, 1),
        steps=powers(1, 1e5).map(int),
        delta=powers(1e-16, 0.1),
    )
    def test_narrow_where_people_train(self, sigma, rate, steps, delta):
        bounds = (steps * taut.gaussian(sigma).poisson(rate)).epsilon_bounds(delta)
        sane(bounds)
        assert bounds.gap <= 1e-3 * bounds.upper


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"),
    [(1.279, 1.541e-4, 1612, 1.017e-14), (0.9644, 1.258e-4, 14, 3.06e-19)],
)
def test_narrow_at_tiny_rates(sigma, rate, steps, delta):
    bounds = (steps * taut.gaussian(sigma).poisson(rate)).epsilon_bounds(delta)
    assert bounds.gap <= 1e-3 * bounds.upper


# Settings that once crashed, or whose ends crossed.
CORNERS = [
    (1e-5, 8103 * taut.gaussian(0.0067).poisson(0.018)),
    (0.3, 2 * taut.gaussian(0.0067, 2.0, adjacency="replace").fixed_size(1, 1000)),
    (0.0183, 8103 * taut.gaussian(0.0498) + taut.laplace(1.0)),
    (4e-17, 4728 * taut.gaussian(5.88).poisson(0.0055)),
    pytest.param(1e-18, 67 * taut.gaussian(1.248).poisson(0.0005), marks=pytest.mark.slow),
    (1e-5, 100 * taut.gaussian(0.002).poisson(0.1)),
    (1e-5, 2 * taut.laplace(0.001)),
    (1e-5, 2 * taut.laplace(0.001).poisson(0.1)),
    (1e-5, 3 * taut.pure(2000.0)),
    (1e-5, 2 * taut.exponential(2000.0)),
    (1e-12, 2 * taut.randomized_response(0.7)),
    (1e-4, 2 * taut.laplace(0.5)),
    (1e-9, 2 * taut.laplace(3.0) + taut.gaussian(1.0).poisson(0.01)),
    (1e-3, taut.pure(0.2) + 2 * taut.randomized_response(0.7)),
    (1e-5, 2 * taut.discrete_gaussian(1.0, 50).poisson(0.1)),
    pytest.param(1e-20, 22009 * taut.gaussian(0.726).poisson(4.6e-6), marks=pytest.mark.slow),
    (
        1e-6,
        taut.laplace(5_000.0, adjacency="replace").fixed_size(1, 800, adjacency="replace")
        + taut.laplace(0.565, adjacency="replace")
        .poisson(9e-5, removal=taut.laplace(0.0027))
        .fixed_size(1, 3, adjacency="replace"),
    ),
    (1e-6, 580 * (55 * taut.gaussian(0.55) + variance_pair(8.04, 0.17)).allocated(563_939)),
]


class TestCorners:
    @pytest.mark.parametrize(("delta", "loss"), CORNERS, ids=repr)
    def test_bracket(self, delta, loss):
        bounds = loss.epsilon_bounds(delta)
        sane(bounds)
        assert math.isfinite(bounds.upper)

    @pytest.mark.parametrize(
        ("epsilon", "loss"),
        [
            (54.6, 2 * taut.gaussian(1.0).poisson(0.37)),
            (0.128, 2 * taut.finite([1.0, 0.0], [0.5, 0.5], adjacency="add").poisson(0.125)),
            (13.8, 2 * taut.discrete_gaussian(4.0)),
            (500.0, 3 * taut.pure(500.0)),
        ],
        ids=repr,
    )
    def test_delta(self, epsilon, loss):
        bounds = loss.delta_bounds(epsilon)
        sane(bounds)
        assert bounds.upper <= 1


@pytest.mark.slow
class TestWiderBox:
    """The same promises over many more settings."""

    @settings(max_examples=400)
    @given(
        sigma=powers(1e-3, 1e4),
        rate=powers(1e-6, 1),
        steps=powers(1, 1e6).map(int),
        delta=powers(1e-30, 0.5),
        make=st.sampled_from([taut.gaussian, taut.laplace]),
    )
    def test_sampled(self, sigma, rate, steps, delta, make):
        sane((steps * make(sigma).poisson(rate)).epsilon_bounds(delta))

    @settings(max_examples=300)
    @given(
        sigma=powers(0.3, 100),
        rate=powers(1e-4, 1),
        steps=powers(1, 1e5).map(int),
        delta=powers(1e-20, 0.1),
        tolerance=st.sampled_from([1e-3, 1e-5]),
    )
    def test_narrow_where_people_train(self, sigma, rate, steps, delta, tolerance):
        bounds = (steps * taut.gaussian(sigma).poisson(rate)).epsilon_bounds(delta, tolerance)
        sane(bounds)
        assert bounds.gap <= tolerance * bounds.upper


class TestExtremes:
    @pytest.mark.parametrize("sigma", [0.03, 0.02, 0.001, 1e-5])
    def test_one_loud_gaussian(self, sigma):
        bounds = taut.gaussian(sigma).epsilon_bounds(1e-5)
        assert bounds.gap <= 1e-9 * bounds.upper
        assert bounds.lower > 0.5 / sigma**2

    @pytest.mark.parametrize("sigma", [1e-3, 1e-4, 1e-6])
    @pytest.mark.parametrize("delta", [1e-3, 1e-10])
    def test_a_sample_of_loud_gaussians_is_not_above_all_of_them(self, sigma, delta):
        whole = (3 * taut.gaussian(sigma)).epsilon_bounds(delta)
        sample = (3 * taut.gaussian(sigma).poisson(0.5)).epsilon_bounds(delta)
        assert sample.lower <= whole.upper
        assert math.isfinite(sample.upper)

    @pytest.mark.parametrize("sigma", [1e6, 1e9])
    def test_one_faint_gaussian(self, sigma):
        bounds = taut.gaussian(sigma).epsilon_bounds(1e-12)
        sane(bounds)
        assert bounds.gap <= 1e-3 * bounds.upper

    @pytest.mark.parametrize("count", [10**7, 10**9])
    def test_very_many_steps(self, count):
        loss = count * taut.gaussian(math.sqrt(count) / 10).poisson(0.1)
        bounds = loss.epsilon_bounds(1e-5)
        assert bounds.gap <= 1e-3 * bounds.upper
        # For so many faint steps the sum is Gaussian with mu = rate sqrt(count) / sigma.
        assert bounds.upper == pytest.approx(taut.gaussian(1.0).epsilon(1e-5), rel=5e-3)

    @pytest.mark.parametrize("delta", [1e-50, 1e-100, 1e-200])
    def test_tiny_delta(self, delta):
        bounds = (100 * taut.gaussian(2.0).poisson(0.1)).epsilon_bounds(delta)
        assert math.isfinite(bounds.upper)
        assert bounds.gap <= 1e-3 * bounds.upper

    @pytest.mark.parametrize("delta", [0, 5e-324, 1e-308])
    def test_delta_at_the_end_of_floating_point(self, delta):
        sane((100 * taut.gaussian(2.0).poisson(0.1)).epsilon_bounds(delta))
        sane((2 * taut.laplace(2.0)).epsilon_bounds(delta))
        sane(taut.gaussian(1.0).epsilon_bounds(delta))

    @pytest.mark.parametrize("epsilon", [1e3, 1e6, 1e300])
    def test_delta_far_out_is_zero_or_tiny(self, epsilon):
        for loss in (
            taut.gaussian(1.0),
            2 * taut.laplace(1.0),
            9 * taut.gaussian(1.0).poisson(0.1),
        ):
            bounds = loss.delta_bounds(epsilon)
            sane(bounds)
            assert bounds.upper < 1e-100


@pytest.mark.parametrize("make", [taut.exponential, lambda epsilon: taut.laplace(1 / epsilon)])
def test_lower_bounds_on_delta_are_no_more_than_one(make):
    bounds = make(1e6).delta_bounds(1.0)
    assert 0.999 < bounds.lower <= bounds.upper <= 1


@pytest.mark.parametrize("loss", [taut.gaussian(0.2, 37.0), taut.laplace(1.3, 4.4), taut.pure(2.0)])
@pytest.mark.parametrize("order", [1e99, 1e101, 1e200, 1e308])
def test_divergences_of_enormous_orders_are_answered(loss, order):
    assert loss.rdp(2.0) <= loss.rdp(order) <= loss.rdp(math.inf) * (1 + 1e-9)  # rounding


def test_an_array_times_a_loss_is_no_array_of_losses():
    for count in (np.array([1.0, 2.0]), np.array([]), np.array(3)):
        with pytest.raises(TypeError, match="count must be an integer"):
            count * taut.pure(1.0)
    assert np.int64(3) * taut.pure(1.0) == 3 * taut.pure(1.0)


def test_allocation_to_more_steps_than_doubles_count_is_answered():
    loss = taut.laplace(1.3, 4.4)
    lower, upper = loss.allocated(2**53).epsilon_bounds(1e-5)
    assert 0 <= lower <= upper <= loss.epsilon(1e-5)
