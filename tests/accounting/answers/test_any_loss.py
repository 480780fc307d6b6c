"""Any loss that can be built is answered: no crash, no NaN, no crossed ends."""

import math
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taut
from taut import accounting
from taut.errors import UnsoundConfiguration


def powers(low, high):
    """Return numbers spread evenly on a logarithmic scale."""
    return st.floats(math.log(low), math.log(high)).map(lambda x: min(max(math.exp(x), low), high))


def normalised(weights):
    total = sum(weights)
    return [weight / total for weight in weights] if total else [1.0] + [0.0] * (len(weights) - 1)


MASSES = st.lists(st.one_of(st.just(0.0), powers(1e-12, 1)), min_size=3, max_size=3).map(normalised)
COUNTS = st.one_of(st.integers(1, 3), powers(1, 1e3).map(int), powers(1, 1e6).map(int))
SYMMETRIC = {
    "gaussian": st.tuples(powers(0.05, 100)),
    "laplace": st.tuples(powers(0.05, 100)),
    "randomized_response": st.tuples(st.sampled_from([0.5, 0.7, 0.999, 1.0])),
    "pure": st.tuples(st.one_of(st.just(0.0), powers(1e-6, 50))),
    "approximate": st.tuples(powers(1e-4, 10), st.one_of(st.just(0.0), powers(1e-20, 0.3))),
    "discrete_gaussian": st.tuples(powers(0.2, 30), st.sampled_from([1, 2, 5])),
    "discrete_laplace": st.tuples(powers(0.2, 30), st.sampled_from([1, 2, 5])),
    "exponential": st.tuples(powers(1e-4, 30)),
    "finite": st.one_of(st.just(([1.0, 0.0], [0.0, 1.0])), st.tuples(MASSES, MASSES)),
    "stability_release": st.tuples(powers(1e-3, 5), powers(1e-12, 0.5)),
    "from_profile": st.tuples(
        st.builds(lambda a, b: {0.0: a, 1.0: b}, powers(1e-3, 0.9), powers(1e-9, 1e-3))
    ),
    "from_rdp": st.tuples(powers(1e-4, 10).map(lambda a: {2.0: a, 4.0: 1.5 * a, 16.0: 5 * a})),
}
ONE_SIDED = {
    "variance_pair": st.tuples(powers(0.1, 10), powers(0.1, 10)),
    "mixture_of_gaussians": st.tuples(
        powers(1e-3, 0.999).map(lambda q: [1 - q, 0.75 * q, 0.25 * q]),
        st.just([0.0, 1.0, 2.0]),
        powers(0.2, 20),
    ),
}


@st.composite
def plain(draw, adjacency):
    """Return one release, not sampled."""
    kinds = SYMMETRIC if adjacency == "replace" else SYMMETRIC | ONE_SIDED
    kind = draw(st.sampled_from(sorted(kinds)))
    return getattr(accounting, kind)(*draw(kinds[kind]), adjacency=adjacency)


@st.composite
def joint(draw, adjacency):
    """Return one release, or several that will look at one sample."""
    loss = draw(plain(adjacency))
    return draw(COUNTS) * loss + draw(plain(adjacency)) if draw(st.booleans()) else loss


@st.composite
def sampled(draw, adjacency):
    """Return one release or several on one sample, by any sampler."""
    rate = draw(powers(1e-6, 1))
    if draw(st.booleans()):
        population = draw(powers(2, 1e6).map(int))
        size = min(max(int(rate * population), 1), population - 1)
        return draw(joint("replace")).fixed_size(size, population, adjacency=adjacency)
    if adjacency == "replace":
        return draw(joint("replace")).poisson(rate, removal=draw(joint("add_remove")))
    return draw(joint(adjacency)).poisson(rate)


@st.composite
def losses(draw):
    """Return the sum of one to four releases of any kind."""
    adjacency = draw(st.sampled_from(["add_remove", "replace", "zero_out"]))
    total = accounting.zero(adjacency=adjacency)
    for _ in range(draw(st.integers(1, 4))):
        try:
            part = draw(st.one_of(plain(adjacency), sampled(adjacency)))
        except UnsoundConfiguration:  # no theorem, no loss
            part = draw(plain(adjacency))
        total = total + draw(COUNTS) * part
    return total


def check(loss, delta, epsilon):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for (lower, upper), most in (
            (loss.epsilon_bounds(delta), math.inf),
            (loss.delta_bounds(epsilon), 1.0),
        ):
            assert 0 <= lower <= upper <= most


# Settings that once crashed.
DISJOINT = ([1.0, 0.0], [0.0, 1.0])
CORNERS = {
    "disjoint in a joint sample": (
        (accounting.finite(*DISJOINT) + 6773 * taut.from_profile({0.0: 0.1, 1.0: 1e-4})).poisson(
            0.0043
        ),
        8e-23,
    ),
    "disjoint under replace-one": (
        (
            accounting.finite(*DISJOINT, adjacency="replace")
            + taut.gaussian(1.0, 2.0, adjacency="replace")
        ).fixed_size(13, 73),
        4e-30,
    ),
    "disjoint, exchanged": (
        accounting.finite(*DISJOINT, adjacency="replace").poisson(0.01, removal=taut.gaussian(1.0)),
        1e-6,
    ),
    "far apart": (
        (
            471_725 * taut.discrete_laplace(0.37)
            + 2 * accounting.mixture_of_gaussians([1.0], [1.0], 0.3)
        ).poisson(6e-5),
        1.9e-10,
    ),
    "many cells": (
        (3 * accounting.variance_pair(3.28, 0.29) + taut.laplace(2.0)).poisson(9e-5),
        0.09,
    ),
    "close atoms": (
        14 * (2 * taut.discrete_gaussian(0.35) + 3 * taut.pure(6e-4)).poisson(8.4e-6),
        1e-20,
    ),
    "wide without the record": (
        (3 * taut.randomized_response(0.87) + 11_659 * accounting.variance_pair(0.28, 2.7)).poisson(
            1e-3
        ),
        2.5e-18,
    ),
    "beside a curve": (
        (442_981 * taut.laplace(10.0) + taut.pure(0.1)).poisson(5e-6)
        + accounting.from_rdp({2.0: 0.1, 8.0: 0.5}),
        1e-8,
    ),
    "half a million strong copies": (
        2
        * (
            taut.gaussian(1.86, adjacency="replace")
            + 514_005 * taut.pure(25.0, adjacency="replace")
        ).fixed_size(1, 3, adjacency="replace"),
        1e-17,
    ),
    "nothing leaves the window": (
        2 * taut.gaussian(11.36).poisson(4.3e-6)
        + 2
        * (3 * taut.exponential(0.0026) + 5352 * taut.from_profile({0.0: 0.5, 1.0: 1e-4})).poisson(
            2.2e-4
        ),
        2e-25,
    ),
    "cells beyond all losses": (
        accounting.exponential(1.0)
        + accounting.mixture_of_gaussians(
            [1 - math.exp(-1), 0.75 * math.exp(-1), 0.25 * math.exp(-1)],
            [0.0, 1.0, 2.0],
            sigma=math.exp(-1),
        ).poisson(math.exp(-1)),
        math.exp(-2),
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_corner(name):
    loss, delta = CORNERS[name]
    check(loss, delta, 0.0)
    check(loss, delta, 0.3)


def test_a_betrayed_record_costs_its_share_of_samples():
    loss = (accounting.finite(*DISJOINT) + taut.laplace(1.0)).poisson(0.01)
    assert loss.epsilon_bounds(0.009) == (math.inf, math.inf)
    lower, upper = loss.delta_bounds(50.0)
    assert lower == pytest.approx(0.01, rel=1e-9)
    assert upper == pytest.approx(0.01, rel=1e-9)


def test_releases_told_apart_cost_their_share_of_samples():
    loss = (2_000 * taut.discrete_laplace(0.3) + taut.laplace(1.0)).poisson(0.01)
    lower, upper = loss.delta_bounds(20.0)
    assert lower == pytest.approx(0.01, rel=1e-6)
    assert upper == pytest.approx(0.01, rel=1e-6)


@settings(max_examples=10)
@given(loss=losses(), delta=powers(1e-30, 0.3), epsilon=st.one_of(st.just(0.0), powers(1e-6, 100)))
def test_any_loss(loss, delta, epsilon):
    check(loss, delta, epsilon)


@pytest.mark.slow
@settings(max_examples=1000)
@given(loss=losses(), delta=powers(1e-30, 0.3), epsilon=st.one_of(st.just(0.0), powers(1e-6, 100)))
def test_any_loss_at_length(loss, delta, epsilon):
    check(loss, delta, epsilon)
