"""Laplace noise keeps its promise, is as small as it says, and releases nothing else."""

import math
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.laplace import true_delta
from scipy.stats import kstest

import taut
from taut.errors import UnsoundConfiguration
from taut.noise import (
    Blocks,
    Box,
    FiniteSet,
    L1Ball,
    L2Ball,
    LInfBall,
    LpIntersection,
    Polytope,
    SeededForExperiments,
    laplace_with_scales,
    optimal_gaussian,
    optimal_laplace,
)
from taut.noise._optimal.baselines import iid_gaussian, iid_laplace, spr_gaussian, spr_laplace

INF = math.inf
positive = st.floats(0.05, 20.0)
triples = st.lists(positive, min_size=3, max_size=3)
powers = st.sampled_from([0.5, 1.0, 2.0, 3.0])

PLANE = [
    Box([1.0, 3.0]),
    Box([1.0, 3.0], l1=3.2),
    Box([1.0, 3.0], l2=1.5),
    L1Ball(2, 1.2),
    L2Ball(2, 1.2),
    LInfBall(2, 1.2),
    LpIntersection(2, {1: 2.0, INF: 1.2}),
    LpIntersection(2, {0.5: 1.0, 2: 0.7}),
    Blocks([1, 1], [1.0, 0.4], cap=1.02),
    Blocks([2], [1.0], linf=[0.6]),
    FiniteSet([[1.0, 0.3], [-0.2, 2.0], [0.4, 0.4]]),
    Polytope([[1.0, 0.3], [-0.2, 2.0]]),
    L2Ball(2, 0.6).differences(),
    FiniteSet([[1.0, 0.3], [-0.2, 2.0], [0.4, 0.4]]).differences(),
]
EXACT = [0, 3, 5]  # a box, and the balls of l1 and l_inf


def members(one, count=400):
    """Return members of a set in the plane, far out in many directions."""
    if hasattr(one, "vectors"):
        return one.vectors
    angles = np.linspace(0, math.pi, count, endpoint=False)
    rays = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    rays = np.vstack([rays, [[1.0, 3.0], [1.0, -3.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]])
    return rays / one.gauges(rays)[:, None]


class TestPrivacy:
    @pytest.mark.parametrize("objective", ["total", "worst", "relative"])
    @pytest.mark.parametrize("index", range(len(PLANE)))
    def test_every_member_is_hidden(self, index, objective):
        one = PLANE[index]
        noise = optimal_laplace(one, epsilon=0.7, objective=objective)
        found = (np.abs(members(one)) / noise.scales).sum(axis=1).max()
        assert found <= 0.7
        assert noise.loss.epsilon(0.0) <= 0.7
        if noise.certificate.gap < 1e-6:  # nothing is wasted
            assert found == pytest.approx(0.7, rel=2e-3)

    @pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.6])
    @pytest.mark.parametrize("index", range(len(PLANE)))
    def test_true_delta_is_within_the_loss(self, index, epsilon):
        noise = optimal_laplace(PLANE[index], epsilon=0.8)
        rows = np.abs(members(PLANE[index], 12)) / noise.scales
        found = max(true_delta(row, epsilon) for row in rows)
        assert found <= noise.loss.delta(epsilon, 1e-5) + 1e-8
        if index in EXACT:
            assert found == pytest.approx(noise.loss.delta(epsilon, 1e-5), rel=1e-4)

    def test_true_delta_by_a_grid(self):
        # The densities themselves, with nothing known about losses.
        noise = optimal_laplace(Box([1.0, 2.0]), epsilon=1.2)
        axes = [np.arange(-1400, 1400) * 0.0125 * scale + 0.00625 * scale for scale in noise.scales]
        one = [np.exp(-np.abs(x) / b) / (2 * b) for x, b in zip(axes, noise.scales, strict=True)]
        other = [
            np.exp(-np.abs(x - w) / b) / (2 * b)
            for x, b, w in zip(axes, noise.scales, [1.0, 2.0], strict=True)
        ]
        cell = np.prod([x[1] - x[0] for x in axes])
        gap = np.multiply.outer(*one) - math.exp(0.5) * np.multiply.outer(*other)
        assert np.maximum(gap, 0).sum() * cell == pytest.approx(noise.loss.delta(0.5), rel=2e-3)

    @pytest.mark.parametrize(
        "epsilon",
        [pytest.param(0.1, marks=pytest.mark.slow), 0.6, pytest.param(1.5, marks=pytest.mark.slow)],
    )
    def test_three_coordinates(self, epsilon):
        noise = laplace_with_scales(Box([1.0, 2.0, 0.3]), [2.0, 3.0, 0.5])
        exact = true_delta([0.5, 2 / 3, 0.6], epsilon)
        assert noise.loss.delta(epsilon, 1e-6) == pytest.approx(exact, rel=1e-4, abs=1e-9)
        for inside in ([1.0, 0.5, 1.0], [0.3, 1.0, 1.0], [1.0, 1.0, 0.0]):
            assert true_delta(np.array(inside) * [0.5, 2 / 3, 0.6], epsilon) <= exact + 1e-9

    @given(triples, positive, triples, powers)
    def test_no_member_of_a_capped_box_exceeds_epsilon(self, widths, cap, weights, power):
        box = Box(widths, l1=cap)
        noise = optimal_laplace(box, epsilon=0.5, weights=weights, power=power)
        rows = box.clip(np.random.default_rng(0).normal(size=(200, 3)) * 1e3)
        assert (np.abs(rows) / noise.scales).sum(axis=1).max() <= 0.5

    def test_weights_do_not_touch_the_constraint(self):
        plain, same = (
            optimal_laplace(Box([1, 2, 3]), epsilon=1, weights=w) for w in (None, [0.1] * 3)
        )
        assert same.scales == pytest.approx(plain.scales)


def solved(loads, power, constraints, x):
    objective = cp.sum(cp.multiply(loads, cp.power(x, -power)))
    problem = cp.Problem(cp.Minimize(objective), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9)
    return problem.value * math.gamma(power + 1)


class TestLeastError:
    @settings(max_examples=25, deadline=None)
    @given(triples, st.floats(0.2, 1.0), triples, powers)
    def test_convex_solver_agrees_for_levelled_boxes(self, widths, share, weights, power):
        widths, weights = np.array(widths) / max(widths), np.array(weights) / max(weights)
        box = Box(widths, l1=max(share * widths.sum(), 1.0))
        noise = optimal_laplace(box, epsilon=1.0, weights=weights, power=power)
        x, tau = cp.Variable(3, pos=True), cp.Variable(nonneg=True)
        spent = tau * box.l1 + cp.sum(cp.multiply(box.widths, cp.pos(x - tau)))
        assert noise.error == pytest.approx(solved(weights, power, [spent <= 1], x), rel=1e-6)
        assert noise.certificate.lower_bound == pytest.approx(noise.error, rel=1e-9)

    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 10**6), powers)
    def test_convex_solver_agrees_for_finite_sets(self, seed, power):
        rng = np.random.default_rng(seed)
        vectors, weights = rng.normal(size=(6, 4)), rng.uniform(0.2, 2.0, size=4)
        noise = optimal_laplace(FiniteSet(vectors), epsilon=1.0, weights=weights, power=power)
        x = cp.Variable(4, pos=True)
        best = solved(weights, power, [np.abs(vectors) @ x <= 1], x)
        assert noise.error == pytest.approx(best, rel=1e-6)
        assert 0 <= noise.certificate.gap < 1e-7

    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 10**6), powers)
    def test_convex_solver_agrees_for_blocks(self, seed, power):
        rng = np.random.default_rng(seed)
        ranks, l2 = rng.integers(1, 5, size=3), rng.uniform(0.2, 2.0, size=3)
        noise = optimal_laplace(Blocks(ranks.tolist(), l2), epsilon=1.0, power=power)
        x = cp.Variable(int(ranks.sum()), pos=True)
        starts = np.concatenate([[0], np.cumsum(ranks)])
        parts = [x[a:b] for a, b in pairwise(starts)]
        spent = sum(c * cp.norm(part, 2) for c, part in zip(l2, parts, strict=True))
        best = solved(np.ones(x.size), power, [spent <= 1], x)
        assert noise.error == pytest.approx(best, rel=1e-6)

    def test_layers_have_the_published_scales(self):
        ranks, bounds = np.array([4096, 64, 640, 10]), np.full(4, 0.5)
        noise = optimal_laplace(Blocks(ranks.tolist(), bounds / np.sqrt(ranks)), epsilon=2.0)
        total = (np.cbrt(ranks) * np.cbrt(bounds**2)).sum()
        scales = np.cbrt(bounds / ranks) * total / 2.0
        assert noise.scales[np.cumsum(ranks) - 1] == pytest.approx(scales)
        assert noise.total_variance == pytest.approx(2 * total**3 / 4)

    def test_histogram_is_levelled_to_equal_noise(self):
        noise = optimal_laplace(Box(np.ones(50), l1=1.0), epsilon=1.0)
        assert noise.scales == pytest.approx(np.ones(50))
        assert noise.loss == taut.laplace(1.0, noise.loss.terms[0][0].sensitivity)

    def test_worst_and_relative(self):
        box = Box([1.0, 2.0, 5.0])
        assert iid_laplace(box, epsilon=0.5).scales == pytest.approx(np.full(3, 16.0))
        assert spr_laplace(box, epsilon=0.5).scales == pytest.approx(3 * box.widths / 0.5)

    @given(triples)
    def test_table_of_baselines(self, widths):
        box, k = Box(widths), 3
        first, second = box.widths.sum(), (box.widths**2).sum()
        mu = 1 / optimal_gaussian(box, epsilon=0.5, delta=1e-6).multiplier
        target = {"epsilon": 0.5, "delta": 1e-6}
        assert iid_gaussian(box, **target).error == pytest.approx(k * second / mu**2)
        assert spr_gaussian(box, **target).error == pytest.approx(k * second / mu**2)
        assert iid_laplace(box, epsilon=0.5).error == pytest.approx(2 * k * first**2 / 0.25)
        assert spr_laplace(box, epsilon=0.5).error == pytest.approx(2 * k**2 * second / 0.25)

    @pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.5])
    def test_error_is_that_of_samples(self, power):
        noise = optimal_laplace(Box([1.0, 2.0]), epsilon=1.0, power=power)
        draws = SeededForExperiments(3).standard_laplace(400_000)
        found = np.mean(np.abs(draws) ** power) * (noise.scales**power).sum()
        assert found == pytest.approx(noise.error, rel=0.03)


class TestRelease:
    def test_samples_are_laplace(self):
        generator = SeededForExperiments(5)
        noise = optimal_laplace(Box(np.full(50_000, 2.0), l1=2.0), epsilon=1.0)
        draws = noise.sample(generator)
        assert kstest(draws, "laplace", args=(0.0, noise.scales[0])).pvalue > 1e-3
        assert (draws != 0).all()

    def test_coordinates_without_noise_are_public(self):
        noise = optimal_laplace(Box([1.0, 0.0], allow_zero=True), epsilon=1.0)
        assert noise.scales[1] == 0
        assert noise.release([5.0, 7.0])[1] == 0
        assert noise.release([5.0, 7.0], public=[1.0, 3.0])[1] == 3

    def test_sums_are_clipped(self):
        noise = optimal_laplace(L1Ball(2, 1e-9), epsilon=1.0)
        assert np.abs(noise.release_sum([[1e9, 0.0], [0.0, INF]])).max() < 1e-6

    @given(st.integers(0, 10**6))
    def test_uniform_and_exponential_numbers(self, seed):
        uniform = SeededForExperiments(seed).uniform(500)
        assert ((uniform > 0) & (uniform < 1)).all()
        assert (SeededForExperiments(seed).standard_exponential(500) > 0).all()

    def test_distributions_of_numbers(self):
        generator = SeededForExperiments(11)
        assert kstest(generator.uniform(100_000), "uniform").pvalue > 1e-3
        assert kstest(generator.standard_exponential(100_000), "expon").pvalue > 1e-3

    @pytest.mark.parametrize("word", [0, 1, 2**64 - 1, 2**64 - 2])
    def test_extreme_bits_give_finite_nonzero_numbers(self, word):
        class Stuck(SeededForExperiments):
            def integers_u64(self, n):
                return np.full(n, word, dtype=np.uint64)

        for name in ("uniform", "standard_exponential", "standard_laplace"):
            (draw,) = getattr(Stuck(0), name)(1)
            assert np.isfinite(draw)
            assert draw != 0


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "word"),
        [
            ({"epsilon": 0.0}, "epsilon"),
            ({"epsilon": math.nan}, "epsilon"),
            ({"epsilon": 1.0, "delta": 1.0}, "delta"),
            ({"epsilon": 1.0, "delta": -0.1}, "delta"),
            ({"epsilon": 1.0, "power": 0.0}, "power"),
            ({"epsilon": 1.0, "power": 1.0, "objective": "worst"}, "power"),
            ({"epsilon": 1.0, "objective": "mean"}, "objective"),
            ({"epsilon": 1.0, "accounting": "renyi"}, "accounting"),
            ({"epsilon": 1.0, "weights": [1.0]}, "weights"),
            ({"epsilon": 1.0, "weights": [1.0, 0.0]}, "weights"),
        ],
    )
    def test_arguments(self, arguments, word):
        for one in (Box([1.0, 2.0]), FiniteSet([[1.0, 2.0]])):
            with pytest.raises(ValueError, match=word):
                optimal_laplace(one, **arguments)

    def test_a_basis_is_refused(self):
        turn = np.array([[0.6, -0.8], [0.8, 0.6]])
        for one in (Box([1.0, 2.0], turn), Blocks([1, 1], [1.0, 2.0], basis=turn)):
            with pytest.raises(UnsoundConfiguration, match="coefficients"):
                optimal_laplace(one, epsilon=1.0)
            with pytest.raises(UnsoundConfiguration, match="coefficients"):
                laplace_with_scales(one, [1.0, 1.0])

    def test_scales(self):
        with pytest.raises(UnsoundConfiguration, match="without noise"):
            laplace_with_scales(Box([1.0, 2.0]), [1.0, 0.0])
        with pytest.raises(ValueError, match="scales must hold 2"):
            laplace_with_scales(Box([1.0, 2.0]), [1.0, 1.0, 1.0])
        assert laplace_with_scales(L2Ball(3, 1.0), [2.0]).scales == pytest.approx(np.full(3, 2.0))
