"""Gaussian noise keeps its promise, is as small as it says, and releases nothing else."""

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.gaussian import true_delta
from scipy.optimize import minimize

import taut
from taut.errors import InfeasibleBudget, UnsoundConfiguration
from taut.noise._fitting.water_filling import checked_radius, whitened_radius
from taut.noise._optimal.gaussian import _from_axes, gaussian_with_scales, optimal_gaussian
from taut.noise._random.sources import SeededForExperiments
from taut.noise._sets.balls import L1Ball, L2Ball, LInfBall, LpIntersection
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.boxes import Box
from taut.noise._sets.finite import FiniteSet, Polytope

INF = math.inf
TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
positive = st.floats(0.05, 20.0)
triples = st.lists(positive, min_size=3, max_size=3)

PLANE = [
    Box([1.0, 3.0]),
    Box([1.0, 3.0], l2=1.5),
    Box([1.0, 3.0], np.array([[0.6, -0.8], [0.8, 0.6]])),
    L1Ball(2, 1.2),
    L2Ball(2, 1.2),
    LInfBall(2, 1.2),
    LpIntersection(2, {1: 2.0, INF: 1.2}),
    Blocks([1, 1], [1.0, 0.4], cap=1.02),
    FiniteSet([[1.0, 0.3], [-0.2, 2.0], [0.4, 0.4]]),
    Polytope([[1.0, 0.3], [-0.2, 2.0]]),
    L2Ball(2, 0.6).differences(),
    FiniteSet([[1.0, 0.3], [-0.2, 2.0], [0.4, 0.4]]).differences(),
]
OBJECTIVES = ["total", "worst", "relative"]


def members(one, count=4000):
    """Return members of a set, far out in many directions."""
    if hasattr(one, "vectors"):
        return one.vectors
    angles = np.linspace(0, math.pi, count, endpoint=False)
    rays = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    corners = np.array([[1.0, 3.0], [1.0, -3.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    if getattr(one, "basis", None) is not None:
        corners = corners @ one.basis.T
    rays = np.vstack([rays, corners])
    return rays / one.gauges(rays)[:, None]


class TestPrivacy:
    @pytest.mark.parametrize("objective", OBJECTIVES)
    @pytest.mark.parametrize("index", range(len(PLANE)))
    def test_every_member_is_hidden(self, index, objective):
        one = PLANE[index]
        noise = optimal_gaussian(one, epsilon=0.8, delta=1e-2, objective=objective)
        lengths = np.einsum(
            "ij,jk,ik->i", members(one), np.linalg.inv(noise.covariance()), members(one)
        )
        assert math.sqrt(lengths.max()) <= 1 / noise.multiplier
        # and nothing is wasted: some member is as visible as allowed
        if noise.certificate.gap < 1e-6:
            assert math.sqrt(lengths.max()) == pytest.approx(1 / noise.multiplier, rel=2e-3)

    @pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.5])
    @pytest.mark.parametrize("index", range(len(PLANE)))
    def test_true_delta_is_what_the_loss_says(self, index, epsilon):
        noise = optimal_gaussian(PLANE[index], epsilon=0.8, delta=2e-2)
        rows = members(PLANE[index], 6)
        found = max(true_delta(noise.covariance(), row, epsilon) for row in rows)
        assert found <= noise.loss.delta(epsilon) * (1 + 2e-3) + 1e-6
        worst = np.einsum("ij,jk,ik->i", rows, np.linalg.inv(noise.covariance()), rows).max()
        if math.sqrt(worst) * noise.multiplier > 1 - 1e-6:
            assert found == pytest.approx(noise.loss.delta(epsilon), rel=1e-2)

    def test_true_delta_in_three_dimensions(self):
        noise = optimal_gaussian(Box([1.0, 2.0, 0.3]), epsilon=0.8, delta=2e-2, power=1.0)
        for corner in ([1, 2, 0.3], [1, -2, 0.3]):
            found = true_delta(noise.covariance(), np.array(corner), 0.8)
            assert found == pytest.approx(2e-2, rel=5e-3)

    @given(triples, positive, triples, st.sampled_from([0.5, 1.0, 2.0, 3.0]))
    def test_no_member_of_a_capped_box_is_longer_than_allowed(self, widths, cap, weights, power):
        box = Box(widths, l2=cap)
        noise = optimal_gaussian(box, multiplier=2.0, weights=weights, power=power)
        rows = box.clip(np.random.default_rng(0).normal(size=(200, 3)) * 1e3)
        assert np.linalg.norm(rows / noise.scales, axis=1).max() <= 0.5

    @given(st.lists(st.tuples(positive, positive, positive), min_size=1, max_size=6), positive)
    def test_worst_member_by_linear_programming(self, blocks, cap):
        ranks, radii, variances = (np.array(column) for column in zip(*blocks, strict=True))
        outline = Blocks([1] * len(ranks), radii, cap=cap).outline()
        found = whitened_radius(outline, np.sqrt(variances))
        best = 0.0
        for first in range(len(radii)):  # fill the least noisy first, by hand
            order = sorted(range(len(radii)), key=lambda j: variances[j])
            left, total = outline.cap**2, 0.0
            for j in order[: first + 1]:
                taken = min(left, outline.radii[j] ** 2)
                left, total = left - taken, total + taken / variances[j]
            best = max(best, total)
        assert found == pytest.approx(math.sqrt(best), rel=1e-12)
        for threshold in (0.0, 1 / variances.max(), 1 / variances.min()):
            checked = checked_radius(outline, np.sqrt(variances), threshold)
            assert checked >= found * (1 - 1e-12)

    @pytest.mark.parametrize("target", [(0.5, 1e-6), (0.0, 1e-5), (8.0, 1e-3), (0.01, 1e-12)])
    def test_loss_is_within_the_target(self, target):
        epsilon, delta = target
        noise = optimal_gaussian(L2Ball(2, 1.0), epsilon=epsilon, delta=delta)
        assert noise.loss.epsilon(delta) <= epsilon
        assert noise.loss.delta(epsilon) == pytest.approx(delta, rel=1e-6)

    def test_adjacency_goes_into_the_loss(self):
        one = L2Ball(2, 1.0, adjacency="zero_out")
        assert optimal_gaussian(one, multiplier=1.0).loss.adjacency is taut.Adjacency.ZERO_OUT
        both = optimal_gaussian(one.differences(), multiplier=1.0)
        assert both.loss.adjacency is taut.Adjacency.REPLACE
        assert both.scales == pytest.approx(np.full(2, 2.0))


def independent_optimum(widths, cap, weights, power):
    """Minimise over x = 1 / variance with a general solver.

    The largest sum of t_j x_j over t_j <= squares_j, sum of t_j <= cap^2 is, by duality of linear
    programmes, the least tau cap^2 + squares @ y over y >= x - tau, y >= 0. All in units of one.
    """
    squares = np.minimum(widths, cap) ** 2
    size = len(widths)
    ratio = squares / cap**2

    def value(point):
        return math.log(float(weights @ (squares / point[:size]) ** (power / 2)))

    constraints = [
        {"type": "ineq", "fun": lambda v: 1 - v[-1] - v[size:-1].sum()},
        {"type": "ineq", "fun": lambda v: v[size:-1] - v[:size] + v[-1] * ratio},
    ]
    start = np.concatenate([np.full(size, 0.5 / size), np.full(size, 0.5 / size), [0.1]])
    found = minimize(
        value,
        start,
        method="SLSQP",
        bounds=[(1e-6, 1.0)] * size + [(0.0, 1.0)] * (size + 1),
        constraints=constraints,
        options={"ftol": 1e-15, "maxiter": 3000},
    )
    return math.exp(found.fun)


class TestOptimality:
    @pytest.mark.parametrize("seed", range(12))
    def test_levelled_weighted_boxes_against_a_solver(self, seed):
        rng = np.random.default_rng(seed)
        widths, weights = rng.exponential(size=5) + 0.05, rng.exponential(size=5) + 0.1
        power = float(rng.choice([1.0, 2.0, 3.0]))
        cap = float(np.linalg.norm(widths) * rng.uniform(0.4, 1.2))
        box = Box(widths, l2=cap)
        noise = optimal_gaussian(box, multiplier=1.0, weights=weights, power=power)
        value = float(weights @ noise.scales**power)
        best = independent_optimum(widths, min(cap, box.max_l2), weights, power)
        assert value <= best * (1 + 1e-6)
        assert value >= best * (1 - 1e-5)

    @given(triples, positive)
    def test_never_worse_than_the_ball_or_the_box(self, widths, cap):
        noise = optimal_gaussian(Box(widths, l2=cap), multiplier=1.0)
        assert noise.error <= sum(widths) ** 2 * (1 + 1e-9)
        assert noise.error <= 3 * cap**2 * (1 + 1e-9)
        assert noise.certificate.gap <= 1e-9

    def test_correlated_noise_gains_nothing_on_a_box(self):
        corners = np.array([[3.0, 1.0, 0.5], [3.0, -1.0, 0.5], [3.0, 1.0, -0.5], [3.0, -1.0, -0.5]])
        box = optimal_gaussian(Box([3.0, 1.0, 0.5]), multiplier=1.0)
        any_covariance = optimal_gaussian(FiniteSet(corners), multiplier=1.0)
        assert any_covariance.error == pytest.approx(box.error, rel=1e-6)
        assert any_covariance.covariance() == pytest.approx(box.covariance(), abs=1e-3)

    def test_correlated_noise_gains_nothing_below_a_cap(self):
        # Extreme points of {|s_i| <= 1, 0.7; ||s|| <= 1.05}: two arcs, finely cut.
        angles = np.linspace(math.acos(1 / 1.05), math.asin(0.7 / 1.05), 60)
        arc = 1.05 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        arc = np.vstack([arc, arc * [1, -1]])
        levelled = optimal_gaussian(Box([1.0, 0.7], l2=1.05), multiplier=1.0)
        general = optimal_gaussian(FiniteSet(arc), multiplier=1.0)
        assert general.error <= levelled.error * (1 + 1e-9)
        assert general.error == pytest.approx(levelled.error, rel=1e-3)

    def test_weighted_blocks_by_hand(self):
        noise = optimal_gaussian(Blocks([3, 10], [2.0, 1.0]), multiplier=1.5, weights=[2.0, 0.5])
        total = 2 * math.sqrt(6) + math.sqrt(5)
        expected = 1.5 * np.sqrt(np.array([2 * total / math.sqrt(6), total / math.sqrt(5)]))
        assert noise.scales[[0, -1]] == pytest.approx(expected, rel=1e-9)
        per_axis = [2.0] * 3 + [0.5] * 10
        same = optimal_gaussian(Blocks([3, 10], [2.0, 1.0]), multiplier=1.5, weights=per_axis)
        assert same.scales == pytest.approx(noise.scales)

    def test_capped_blocks(self):
        one = Blocks([3, 10, 40], [2.5, 1.0, 0.8], cap=1.9)
        assert optimal_gaussian(one, multiplier=1.0).error == pytest.approx(113.5, abs=0.05)
        free = optimal_gaussian(Blocks([3, 10, 40], [2.5, 1.0, 0.8]), multiplier=1.0)
        assert free.error == pytest.approx(157.6, abs=0.05)

    def test_a_ball_stays_round_whatever_the_weights(self):
        for ball in (L2Ball(3, 2.0), L1Ball(3, 2.0)):
            noise = optimal_gaussian(ball, multiplier=1.0, weights=[1.0, 9.0, 0.1])
            assert noise.scales == pytest.approx(np.full(3, 2.0))
            assert noise.certificate.gap <= 1e-9

    def test_weights_on_cubes_and_intersections(self):
        cube = optimal_gaussian(LInfBall(3, 2.0), multiplier=1.0, weights=[1.0, 9.0, 0.1])
        box = optimal_gaussian(Box([2.0] * 3), multiplier=1.0, weights=[1.0, 9.0, 0.1])
        assert cube.scales == pytest.approx(box.scales)
        both = LpIntersection(3, {2: 2.5, INF: 2.0})
        levelled = optimal_gaussian(both, multiplier=1.0, weights=[1.0, 9.0, 0.1])
        capped = optimal_gaussian(Box([2.0] * 3, l2=2.5), multiplier=1.0, weights=[1.0, 9.0, 0.1])
        assert levelled.scales == pytest.approx(capped.scales)
        assert levelled.certificate.gap <= 1e-9

    def test_what_is_not_proven_is_not_claimed(self):
        noise = optimal_gaussian(LpIntersection(9, {1: 2.0, 3: 1.0}), multiplier=1.0)
        assert noise.certificate.gap == INF
        assert "less noise might do" in noise.certificate.statement
        assert optimal_gaussian(Box([1, 2, 3], l1=3.5), multiplier=1.0).certificate.gap == INF

    def test_worst_and_relative_are_the_known_baselines(self):
        widths = np.array([1.0, 2.0, 3.0, 4.0])
        worst = optimal_gaussian(Box(widths), multiplier=2.0, objective="worst")
        assert worst.scales == pytest.approx(np.full(4, 2 * np.linalg.norm(widths)))
        assert worst.error == pytest.approx(4 * 30)
        relative = optimal_gaussian(Box(widths), multiplier=2.0, objective="relative")
        assert relative.scales == pytest.approx(2 * 2 * widths)
        assert relative.error == pytest.approx(4 * 16)

    def test_worst_with_weights(self):
        noise = optimal_gaussian(
            Box([1.0, 2.0], l2=2.1), multiplier=1.0, objective="worst", weights=[4.0, 1.0]
        )
        assert noise.scales**2 * [4, 1] == pytest.approx(np.full(2, 4 * 1 + 2.1**2 - 1))

    def test_large_powers_approach_the_worst_case(self):
        noise = optimal_gaussian(Box([1.0, 2.0, 3.0]), multiplier=1.0, power=200.0)
        assert noise.scales == pytest.approx(np.full(3, math.sqrt(14)), rel=0.03)

    def test_predicted_error_of_other_powers(self):
        noise = optimal_gaussian(Box([1.0, 2.0]), multiplier=1.0, power=1.0)
        assert noise.error == pytest.approx(math.sqrt(2 / math.pi) * noise.scales.sum())


class TestZeroWidths:
    def test_get_a_constant(self):
        box = Box([1.0, 0.0, 2.0], allow_zero=True)
        for objective in OBJECTIVES:
            noise = optimal_gaussian(box, multiplier=1.0, objective=objective)
            assert noise.scales[1] == 0
            rng = SeededForExperiments(0)
            assert noise.release([5.0, 7.0, 9.0], rng)[1] == 0
            assert noise.release([5.0, 7.0, 9.0], rng, public=[1.0, 3.0, 1.0])[1] == 3

    def test_in_a_turned_box(self):
        noise = optimal_gaussian(Box([1.0, 0.0, 2.0], TURN, allow_zero=True), multiplier=1.0)
        first, second = (
            noise.release(value, SeededForExperiments(3)) @ TURN
            for value in ([1.0, 2.0, 3.0], np.array([1.0, 2.0, 3.0]) + 5 * TURN[:, 1])
        )
        assert first[1] == pytest.approx(0, abs=1e-12)
        assert second == pytest.approx(first)

    def test_dropped_block(self):
        noise = optimal_gaussian(
            Blocks([1, 2], [0.0, 1.0], basis=TURN[:, :1], allow_zero=True), multiplier=1.0
        )
        released = noise.release([1.0, 2.0, 3.0], SeededForExperiments(0))
        assert released @ TURN[:, 0] == pytest.approx(0, abs=1e-12)

    def test_vectors_in_a_plane(self):
        noise = optimal_gaussian(FiniteSet([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), multiplier=1.0)
        assert noise.release([1.0, 2.0, 3.0], SeededForExperiments(0))[2] == 0


class TestRelease:
    @pytest.mark.parametrize(
        "one",
        [
            Box([1.0, 3.0, 0.2]),
            Box([1.0, 3.0, 0.2], TURN),
            Blocks([1, 2], [1.0, 3.0], basis=TURN[:, :1]),
            FiniteSet(np.random.default_rng(1).normal(size=(6, 3))),
            L2Ball(3, 1.0),
        ],
        ids=lambda one: type(one).__name__,
    )
    def test_noise_has_the_covariance(self, one):
        noise, source = optimal_gaussian(one, multiplier=2.0), SeededForExperiments(0)
        value = np.array([1.0, -2.0, 3.0])
        draws = np.stack([noise.release(value, source) for _ in range(6000)])
        assert draws.mean(axis=0) == pytest.approx(value, abs=0.5)
        scale = math.sqrt(float(np.trace(noise.covariance())))
        assert np.cov(draws.T) == pytest.approx(noise.covariance(), abs=0.05 * scale**2)
        assert noise.total_variance == pytest.approx(np.trace(noise.covariance()))

    def test_sum_of_clipped_rows(self):
        noise = optimal_gaussian(L2Ball(2, 1.0), multiplier=1e-6)
        rows = [[3.0, 4.0], [math.nan, 1.0], [0.1, 0.0]]
        assert noise.release_sum(rows, SeededForExperiments(0)) == pytest.approx(
            [0.7, 0.8], abs=1e-4
        )

    @pytest.mark.parametrize("value", [[1.0], [[1.0, 2.0]], [1.0, 2.0, 3.0]])
    def test_shape(self, value):
        with pytest.raises(ValueError, match="value must be a vector of 2 numbers"):
            optimal_gaussian(L2Ball(2, 1.0), multiplier=1.0).release(value, SeededForExperiments(0))

    def test_holes(self):
        with pytest.raises(ValueError, match="value must be finite"):
            optimal_gaussian(L2Ball(2, 1.0), multiplier=1.0).release(
                [1.0, math.nan], SeededForExperiments(0)
            )


class TestBadInput:
    @pytest.mark.parametrize(
        "target",
        [{}, {"epsilon": 1.0}, {"delta": 0.1}, {"epsilon": 1.0, "delta": 0.1, "multiplier": 1.0}],
    )
    def test_one_target(self, target):
        with pytest.raises(ValueError, match="give either epsilon and delta, or multiplier"):
            optimal_gaussian(L2Ball(2, 1.0), **target)

    @pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
    def test_delta(self, delta):
        with pytest.raises(ValueError, match="delta must be"):
            optimal_gaussian(L2Ball(2, 1.0), epsilon=1.0, delta=delta)

    def test_epsilon(self):
        with pytest.raises(ValueError, match="epsilon must be"):
            optimal_gaussian(L2Ball(2, 1.0), epsilon=-1.0, delta=0.1)

    def test_out_of_reach(self):
        with pytest.raises(InfeasibleBudget, match="raise either"):
            optimal_gaussian(L2Ball(2, 1.0), epsilon=0.0, delta=1e-310)

    def test_objective(self):
        with pytest.raises(ValueError, match="objective must be one of"):
            optimal_gaussian(L2Ball(2, 1.0), multiplier=1.0, objective="least")

    def test_power(self):
        with pytest.raises(ValueError, match="power belongs to objective='total'"):
            optimal_gaussian(L2Ball(2, 1.0), multiplier=1.0, objective="worst", power=1.0)
        with pytest.raises(ValueError, match="power must be 2 for a finite set"):
            optimal_gaussian(FiniteSet([[1.0]]), multiplier=1.0, power=1.0)

    @pytest.mark.parametrize("one", [Box([1.0, 2.0]), FiniteSet(np.eye(2)), Blocks([1, 1], [1, 1])])
    def test_weights(self, one):
        with pytest.raises(ValueError, match="weights must hold 2 numbers"):
            optimal_gaussian(one, multiplier=1.0, weights=[1.0, 2.0, 3.0])
        with pytest.raises(ValueError, match="weights must be greater than 0"):
            optimal_gaussian(one, multiplier=1.0, weights=[1.0, 0.0])

    def test_scales(self):
        with pytest.raises(ValueError, match="scales must hold 2 numbers, got 3"):
            gaussian_with_scales(Box([1.0, 2.0]), [1.0, 2.0, 3.0])
        with pytest.raises(UnsoundConfiguration, match="without noise hides nothing"):
            gaussian_with_scales(Box([1.0, 2.0]), [1.0, 0.0])

    def test_sizes_beyond_floating_point(self):
        with pytest.raises(UnsoundConfiguration, match="too far apart"):
            optimal_gaussian(Box([1e-200, 1e60]), multiplier=1.0)


class TestTheLastCheck:
    """Scales that fail their check never leave, whatever went wrong before."""

    def test_closed_form(self, monkeypatch):
        name = "taut.noise._fitting.water_filling.checked_radius"
        monkeypatch.setattr(name, lambda *_: 1 + 1e-10)
        with pytest.raises(UnsoundConfiguration, match="is above the allowed"):
            optimal_gaussian(Box([1.0, 2.0]), multiplier=1.0)

    def test_finite_set(self, monkeypatch):
        name = "taut.noise._optimal.gaussian._longest"
        monkeypatch.setattr(name, lambda *_: 1.1)
        with pytest.raises(UnsoundConfiguration, match=r"is above 1 / 1\.0"):
            optimal_gaussian(FiniteSet(np.eye(2)), multiplier=1.0)

    def test_axis_without_noise(self):
        one = FiniteSet(np.eye(2))
        with pytest.raises(UnsoundConfiguration, match="scale the coordinates"):
            _from_axes(one, np.eye(2), np.array([1.0, 0.0]), 1.0, "total", 1.0, 1.0)


class TestGivenScales:
    def test_whole_family_is_accounted(self):
        noise = gaussian_with_scales(Box([1.0, 3.0]), [2.0, 4.0])
        assert noise.multiplier == pytest.approx(1 / math.sqrt(0.25 + 9 / 16), rel=1e-9)
        assert gaussian_with_scales(L2Ball(3, 2.0), [1.0]).scales.tolist() == [1.0] * 3
        by_axis = gaussian_with_scales(L2Ball(2, 2.0), [1.0, 5.0])
        assert by_axis.multiplier == pytest.approx(0.5, rel=1e-9)


def test_many_coordinates_take_little_time():
    widths = np.random.default_rng(0).exponential(size=10**6) + 1e-9
    start = time.process_time()
    noise = optimal_gaussian(Box(widths, l2=100.0), epsilon=1.0, delta=1e-6)
    assert time.process_time() - start < 0.5
    assert noise.certificate.gap <= 1e-9
