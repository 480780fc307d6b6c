"""The closed forms against an independent convex solver: it finds the same, and nothing below.

The solver sees the problem itself: variables 1 / sigma^2 under the dual form of the worst member,
or a whole covariance matrix under one Schur complement per vertex of the set.
"""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from taut.noise import Blocks, Box, FiniteSet, LpIntersection, gaussian_with_scales
from taut.noise import optimal_gaussian as least_noise

REL = 1e-6
numbers = st.floats(0.1, 5.0)
# A solver takes too long for examples to be shrunk.
few = settings(max_examples=12, phases=(Phase.reuse, Phase.generate))
fewer = settings(max_examples=6, phases=(Phase.reuse, Phase.generate))


def solved(problem):
    """Return the optimum, to nearly all digits that the solver has."""
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 2e-9)
    value = problem.solve(solver=cp.CLARABEL, **tight)
    assert problem.status == cp.OPTIMAL
    return float(value)


def least_diagonal(radii, cap, costs, power):
    """Minimise the sum of costs * sigma^power over x = radius^2 / sigma^2.

    The worst member of a box below a cap has the squared length min over t of
    t cap^2 + sum of radius^2 (1 / sigma^2 - t)_+, by duality of linear programmes.
    """
    x, t = cp.Variable(len(radii), pos=True), cp.Variable(nonneg=True)
    squares = radii**2
    worst = t + cp.sum(cp.pos(x - t * squares / cap**2))
    weights = costs * radii**power
    cost = cp.sum(cp.multiply(weights / weights.sum(), cp.power(x, -power / 2)))
    return solved(cp.Problem(cp.Minimize(cost), [worst <= 1])) * float(weights.sum())


def least_largest(radii, cap, costs):
    """Minimise the largest costs * sigma^2, a linear programme in its inverse."""
    x, t, inverse = cp.Variable(len(radii)), cp.Variable(nonneg=True), cp.Variable()
    weights = costs * radii**2
    worst = t + cp.sum(cp.pos(x - t * radii**2 / cap**2))
    problem = cp.Problem(cp.Maximize(inverse), [worst <= 1, x >= weights / weights.max() * inverse])
    return float(weights.max()) / solved(problem)


def least_covariance(vectors, objective):
    """Minimise a function of the covariance that hides every vector, over all covariances."""
    size = vectors.shape[1]
    covariance = cp.Variable((size, size), symmetric=True)
    hidden = [
        cp.bmat([[covariance, row[:, None]], [row[None, :], np.ones((1, 1))]]) >> 0
        for row in vectors
    ]
    return solved(cp.Problem(cp.Minimize(objective(covariance)), hidden))


def trace(weights):
    return lambda covariance: cp.sum(cp.multiply(weights, cp.diag(covariance)))


def largest(weights):
    return lambda covariance: cp.max(cp.multiply(weights, cp.diag(covariance)))


def corners(widths):
    """Return the vertices of a box, one of each pair of opposite ones."""
    signs = itertools.product([1.0], *[[1.0, -1.0]] * (len(widths) - 1))
    return np.array(list(signs)) * widths


def whitened(noise, rows):
    return math.sqrt(float(np.max(np.sum((rows / noise.scales) ** 2, axis=1))))


profiles = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6).map(
    lambda pairs: tuple(np.array(column) for column in zip(*pairs, strict=True))
)


class TestAmongDiagonals:
    @few
    @given(profiles, st.sampled_from([1.0, 2.0, 3.0]))
    def test_box(self, profile, power):
        widths, weights = profile
        noise = least_noise(Box(widths), multiplier=1.0, weights=weights, power=power)
        found = float(weights @ noise.scales**power)
        cap = float(np.linalg.norm(widths))
        assert found == pytest.approx(least_diagonal(widths, cap, weights, power), rel=REL)

    @few
    @given(profiles, st.sampled_from([1.0, 2.0, 3.0]), st.floats(0.15, 1.1))
    def test_levelled_box(self, profile, power, share):
        widths, weights = profile
        cap = share * float(np.linalg.norm(widths))
        noise = least_noise(Box(widths, l2=cap), multiplier=1.0, weights=weights, power=power)
        found = float(weights @ noise.scales**power)
        cap = min(cap, float(np.linalg.norm(widths)))
        best = least_diagonal(np.minimum(widths, cap), cap, weights, power)
        assert found == pytest.approx(best, rel=REL)

    @few
    @given(profiles, st.floats(0.15, 1.1))
    def test_largest_variance(self, profile, share):
        widths, weights = profile
        cap = share * float(np.linalg.norm(widths))
        box = Box(widths, l2=cap)
        noise = least_noise(box, multiplier=1.0, objective="worst", weights=weights)
        best = least_largest(np.minimum(widths, cap), box.max_l2, weights)
        assert float((weights * noise.scales**2).max()) == pytest.approx(best, rel=REL)

    @few
    @given(profiles, st.floats(0.15, 1.1))
    def test_relative_error(self, profile, share):
        widths, weights = profile
        box = Box(widths, l2=share * float(np.linalg.norm(widths)))
        noise = least_noise(box, multiplier=1.0, objective="relative", weights=weights)
        costs = weights / box.widths**2
        best = least_diagonal(box.widths, box.max_l2, costs, 2.0)
        assert float(costs @ noise.scales**2) == pytest.approx(best, rel=REL)

    @few
    @given(profiles, st.lists(st.integers(1, 40), min_size=6, max_size=6), st.floats(0.15, 1.1))
    def test_blocks(self, profile, ranks, share):
        radii, weights = profile
        ranks = np.array(ranks[: len(radii)])
        blocks = Blocks(ranks.tolist(), radii, cap=share * float(np.linalg.norm(radii)))
        noise = least_noise(blocks, multiplier=1.0, weights=weights)
        per_axis = np.repeat(weights, ranks)
        best = least_diagonal(blocks.radii, blocks.max_l2, ranks * weights, 2.0)
        assert float(per_axis @ noise.scales**2) == pytest.approx(best, rel=REL)

    @few
    @given(profiles, st.floats(1.0, 3.0))
    def test_intersection_of_a_ball_and_a_cube(self, profile, ratio):
        weights = profile[1]
        both = LpIntersection(weights.size, {2: ratio, math.inf: 1.0})
        noise = least_noise(both, multiplier=1.0, weights=weights)
        cap = min(ratio, math.sqrt(weights.size))
        best = least_diagonal(np.ones(weights.size), cap, weights, 2.0)
        assert float(weights @ noise.scales**2) == pytest.approx(best, rel=REL)


class TestAmongAllCovariances:
    @fewer
    @given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=4))
    def test_box(self, pairs):
        widths, weights = (np.array(column) for column in zip(*pairs, strict=True))
        noise = least_noise(Box(widths), multiplier=1.0, weights=weights)
        assert whitened(noise, corners(widths)) == pytest.approx(1.0, rel=1e-9)
        best = least_covariance(corners(widths), trace(weights))
        assert float(weights @ noise.scales**2) == pytest.approx(best, rel=REL)

    @fewer
    @given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=4))
    def test_largest_variance_on_a_box(self, pairs):
        widths, weights = (np.array(column) for column in zip(*pairs, strict=True))
        noise = least_noise(Box(widths), multiplier=1.0, objective="worst", weights=weights)
        best = least_covariance(corners(widths), largest(weights))
        assert noise.error == pytest.approx(best, rel=REL)

    @fewer
    @given(st.tuples(numbers, numbers, numbers), st.tuples(numbers, numbers, numbers), numbers)
    def test_levelled_box(self, widths, weights, share):
        # The levelled point and its mirror images are members, and already need all of the noise.
        widths, weights = np.array(widths), np.array(weights)
        least, most = float(widths.max()), float(np.linalg.norm(widths))
        box = Box(widths, l2=least + (most - least) * share / 5.0)
        noise = least_noise(box, multiplier=1.0, weights=weights)
        point = weights**0.5 * noise.scales**2
        point *= box.max_l2 / np.linalg.norm(point)
        assert (point <= box.widths * (1 + 1e-9)).all()
        best = least_covariance(corners(point), trace(weights))
        assert float(weights @ noise.scales**2) == pytest.approx(best, rel=REL)

    @fewer
    @given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 9), st.booleans())
    def test_finite_sets(self, seed, size, extra, weighted):
        rng = np.random.default_rng(seed)
        vectors = rng.normal(size=(size + extra, size)) * rng.uniform(0.2, 3.0, size)
        weights = rng.uniform(0.2, 4.0, size) if weighted else np.ones(size)
        noise = least_noise(FiniteSet(vectors), multiplier=1.0, weights=weights)
        best = least_covariance(vectors, trace(weights))
        found = float(weights @ np.diag(noise.covariance()))
        assert found == pytest.approx(noise.error, rel=1e-9)
        assert found == pytest.approx(best, rel=REL)
        assert noise.certificate.lower_bound <= best * (1 + REL)

    @fewer
    @given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 6))
    def test_largest_variance_of_finite_sets(self, seed, size, extra):
        rng = np.random.default_rng(seed)
        vectors = rng.normal(size=(size + extra, size)) * rng.uniform(0.2, 3.0, size)
        noise = least_noise(FiniteSet(vectors), multiplier=1.0, objective="worst")
        best = least_covariance(vectors, largest(np.ones(size)))
        assert noise.certificate.lower_bound <= best * (1 + REL)
        assert best * (1 - REL) <= noise.error <= noise.certificate.lower_bound * (1 + 2e-4)


FAMILIES = {
    "gaussian": lambda rng: rng.normal(size=(60, 20)),
    "sparse": lambda rng: (
        rng.normal(size=(60, 20)) * (rng.random((60, 20)) < 0.1) + 0.01 * np.eye(60, 20)
    ),
    "prefix sums": lambda rng: np.tril(rng.uniform(0.5, 1.5, size=(20, 1)) * np.ones(20)),
    "clustered": lambda rng: (
        np.repeat(rng.normal(size=(20, 20)), 3, axis=0) + 1e-3 * rng.normal(size=(60, 20))
    ),
    "badly scaled": lambda rng: rng.normal(size=(60, 20)) * np.logspace(-3, 3, 20),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_certified_gap_of_families(family):
    vectors = FAMILIES[family](np.random.default_rng(0))
    noise = least_noise(FiniteSet(vectors), multiplier=1.0)
    assert noise.certificate.gap <= 1e-6
    inverse = np.linalg.pinv(noise.covariance(), hermitian=True, rcond=1e-14)
    assert np.einsum("ij,jk,ik->i", vectors, inverse, vectors).max() <= 1 + 1e-6


def sampled_badly(scales):
    """Return scales of which every fifth, the ones that are looked at, tells nothing."""
    scales = scales.copy()
    scales[::5] = 100.0
    return scales


@pytest.mark.parametrize("arrange", [np.array, np.sort, sampled_badly])
@pytest.mark.parametrize("cap", [100.0, 500.0, 760.0])
def test_threshold_of_many_blocks_is_that_of_sorting(arrange, cap):
    # Above 65,536 blocks only those near a guessed threshold are sorted.
    rng = np.random.default_rng(0)
    radii, noise = rng.exponential(size=300_000), arrange(rng.uniform(0.5, 2.0, 300_000))
    order = np.argsort(noise)
    taken = np.diff(np.minimum(np.cumsum(radii[order] ** 2), cap**2), prepend=0.0)
    expected = math.sqrt(float((taken / noise[order] ** 2).sum()))
    found = gaussian_with_scales(Box(radii, l2=cap), noise).certificate.radius
    assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("size", [1e3, 3.69129083947496e10, 3e15, 7e40])
def test_multiplier_of_given_scales_is_never_above_them(size):
    # Adding one to the length and taking it away again rounded mu down, at 3e15 by a third.
    noise = gaussian_with_scales(Box([1.0]), [size])
    assert noise.multiplier <= size
    assert noise.multiplier == pytest.approx(size, rel=1e-10)
