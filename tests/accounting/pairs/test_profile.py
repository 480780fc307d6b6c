"""Bring your own mechanism: from an upper bound on delta(epsilon) to a loss."""

import functools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import accounting as oracles

import taut
from taut.errors import UnsoundConfiguration

SOURCES = {
    "gaussian": taut.gaussian(1.0),
    "laplace": taut.laplace(1.0),
    "response": taut.randomized_response(0.8),
    "sampled": taut.gaussian(1.0).poisson(0.1),
    "approximate": taut.approximate(1.0, 1e-4),
    "selection": taut.exponential(1.0),
}


@functools.cache
def profiled(name):
    """Return the loss made from the profile of a source (2000 questions: asked once)."""
    return taut.from_profile(SOURCES[name].delta)


@pytest.mark.parametrize("name", SOURCES)
class TestRoundTrip:
    def test_profile_again(self, name):
        source, loss = SOURCES[name], profiled(name)
        for epsilon in np.linspace(0, 6, 13):
            lower, upper = source.delta_bounds(epsilon)
            assert loss.delta(epsilon) >= lower
            assert loss.delta(epsilon) == pytest.approx(upper, rel=1e-3, abs=1e-6)

    def test_below_one(self, name):
        source, loss = SOURCES[name], profiled(name)
        for threshold in (1e-3, 0.1, 0.5, 0.9):
            assert loss.profile(threshold) == pytest.approx(source.profile(threshold), rel=1e-3)

    def test_composes(self, name):
        source, loss = SOURCES[name], profiled(name)
        for delta in (1e-2, 1e-5):
            lower, upper = (5 * source).epsilon_bounds(delta)
            again = (5 * loss).epsilon(delta)
            assert again >= lower
            # 2000 equispaced points are coarse for a sampled release, whose losses are small.
            assert again == pytest.approx(upper, rel=0.1)


class TestAmplification:
    def test_poisson(self):
        loss = profiled("gaussian").poisson(0.1)
        exact = taut.gaussian(1.0).poisson(0.1)
        for epsilon in (0.01, 0.1, 0.5, 1.5):
            assert loss.delta(epsilon) >= exact.delta_bounds(epsilon).lower
            assert loss.delta(epsilon) == pytest.approx(exact.delta(epsilon), rel=1e-2)

    def test_fixed_size(self):
        epsilons = np.linspace(0, 1.0, 101)
        base = taut.from_profile(taut.laplace(1.0).delta, epsilons, adjacency="replace")
        loss = base.fixed_size(10, 100, adjacency="replace")
        exact = taut.laplace(1.0, adjacency="replace").fixed_size(10, 100, adjacency="replace")
        assert loss.delta(0.05) == pytest.approx(exact.delta(0.05), rel=1e-3)


class TestHull:
    def test_a_single_point_is_an_approximate_guarantee(self):
        loss = taut.from_profile({1.5: 1e-3})
        truth = partial(oracles.failing_response_delta, 1.5, 1e-3, 1)
        for epsilon in (0.0, 0.5, 1.5, 4.0):
            assert loss.delta(epsilon) == pytest.approx(float(truth(epsilon)), rel=1e-9)

    def test_points_in_any_order(self):
        points = {0.0: 0.2, 0.5: 0.05, 2.0: 1e-6}
        backwards = dict(reversed(points.items()))
        assert taut.from_profile(points) == taut.from_profile(backwards)

    def test_useless_points_do_not_matter(self):
        points = {0.0: 0.2, 1.0: 0.01, 2.0: 1e-6}
        worse = points | {0.5: 0.2, 1.5: 0.9, 3.0: 0.5}
        for epsilon in (0.0, 0.3, 1.0, 1.7, 2.5):
            expected = taut.from_profile(points).delta(epsilon)
            assert taut.from_profile(worse).delta(epsilon) == pytest.approx(expected, rel=1e-12)

    @settings(max_examples=60)
    @given(
        points=st.dictionaries(st.floats(0, 5), st.floats(0, 1), min_size=1, max_size=8),
        threshold=st.floats(0.01, 100),
    )
    def test_is_a_profile_below_every_point(self, points, threshold):
        loss = taut.from_profile(points)
        for epsilon, delta in points.items():
            assert loss.delta(epsilon) <= delta * (1 + 1e-9) + 1e-12
        value = loss.profile(threshold)
        assert max(1 - threshold, 0) - 1e-12 <= value <= 1
        middle = loss.profile(1.1 * threshold)
        assert middle <= (value + loss.profile(1.2 * threshold)) / 2 + 1e-9

    def test_both_directions_follow_from_one(self):
        loss = taut.from_profile({0.0: 0.1, 1.0: 0.0})
        for half in ("add", "remove"):
            part = taut.PrivacyLoss(loss.terms, half)
            assert part.delta(0.5) == loss.delta(0.5)

    def test_one_sided_bounds(self):
        source = taut.gaussian(1.0, adjacency="add").poisson(0.2)
        epsilons = np.linspace(-3, 0.5, 351)
        points = {e: source.profile(math.exp(e)) for e in epsilons.tolist()}
        loss = taut.from_profile(points, adjacency="add")
        assert (3 * loss).epsilon(1e-3) == pytest.approx((3 * source).epsilon(1e-3), rel=2e-2)
        assert (3 * loss).epsilon(1e-3) >= (3 * source).epsilon_bounds(1e-3).lower

    def test_constant_bound_is_a_chance_of_failure(self):
        loss = taut.from_profile(lambda epsilon: max(1e-3, 0.1 - epsilon))
        assert loss.epsilon(9e-4) == math.inf
        assert loss.epsilon(2e-3) <= 0.1

    def test_where_to_evaluate(self):
        loss = taut.from_profile(taut.gaussian(1.0).delta, epsilons=[0.0, 1.0, 2.0])
        assert loss == taut.from_profile({e: taut.gaussian(1.0).delta(e) for e in (0.0, 1.0, 2.0)})


class TestRefusals:
    def test_no_points(self):
        with pytest.raises(ValueError, match="at least one epsilon with its delta"):
            taut.from_profile({})

    @pytest.mark.parametrize("delta", [-0.1, 1.5, math.nan, math.inf])
    def test_delta_is_no_probability(self, delta):
        with pytest.raises(ValueError, match="delta must be a probability") as caught:
            taut.from_profile({1.0: delta})
        assert repr(delta) in str(caught.value)
        with pytest.raises(ValueError, match="delta must be a probability"):
            taut.from_profile(lambda _: delta)

    @pytest.mark.parametrize("epsilon", [math.nan, math.inf, -math.inf, 1e4])
    def test_epsilon_out_of_range(self, epsilon):
        with pytest.raises(ValueError, match="epsilon") as caught:
            taut.from_profile({epsilon: 0.1})
        assert repr(epsilon) in str(caught.value)

    @pytest.mark.parametrize("relation", ["add", "remove"])
    def test_one_sided_relation_with_half_a_profile(self, relation):
        with pytest.raises(UnsoundConfiguration, match="below 0") as caught:
            taut.from_profile({0.0: 0.1, 1.0: 0.0}, adjacency=relation)
        assert repr(relation) in str(caught.value)

    @pytest.mark.parametrize("points", [{"0.0": 0.1}, {0.0: "0.1"}, {0.0: None}, {0.0: True}])
    def test_points_are_numbers(self, points):
        with pytest.raises((TypeError, ValueError), match=r"epsilon|delta"):
            taut.from_profile(points)

    @pytest.mark.parametrize("wrong", [None, 3, "gaussian", [0.1, 0.2]])
    def test_neither_function_nor_samples(self, wrong):
        with pytest.raises(TypeError, match="profile"):
            taut.from_profile(wrong)
