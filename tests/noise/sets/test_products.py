"""Products of sets: noise and losses against brute force over vertices and other solvers."""

import itertools
import math

import numpy as np
import pytest
from oracles.laplace import true_delta
from scipy.optimize import minimize

from taut.errors import UnsoundConfiguration
from taut.noise import (
    Blocks,
    Box,
    FiniteSet,
    Histogram,
    L1Ball,
    L2Ball,
    LInfBall,
    Product,
    Ranges,
    gaussian_with_scales,
    laplace_with_scales,
    optimal_gaussian,
    optimal_laplace,
    recommend,
)

BALLS = Product(L1Ball(3, 1.0), L1Ball(2, 0.4))
MIXED = Product(L1Ball(2, 1.0), Histogram(3), Ranges({"age": (18, 90)}))


def vertices(*radii_and_sizes):
    """All corners of a product of l1 balls: one coordinate per ball, up to signs."""
    for places in itertools.product(*(range(size) for _, size in radii_and_sizes)):
        parts = []
        for (radius, size), place in zip(radii_and_sizes, places, strict=True):
            part = np.zeros(size)
            part[place] = radius
            parts.append(part)
        yield np.concatenate(parts)


CORNERS = list(vertices((1.0, 3), (0.4, 2)))


class TestLaplace:
    def test_no_other_solver_finds_less(self):
        noise = optimal_laplace(BALLS, epsilon=0.7)
        table = np.array(CORNERS)
        other = minimize(
            lambda x: 2 * (x**-2.0).sum(),
            1 / noise.scales * 0.8,
            constraints={"type": "ineq", "fun": lambda x: 0.7 - table @ x},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert noise.error == pytest.approx(other.fun, rel=1e-6)
        assert noise.certificate.gap < 1e-9

    @pytest.mark.parametrize("weights", [None, [1.0, 5.0], [1.0, 1.0, 3.0, 2.0, 2.0]])
    def test_the_promise_is_used_up_at_a_corner(self, weights):
        noise = optimal_laplace(BALLS, epsilon=0.7, weights=weights)
        largest = max(float((corner / noise.scales).sum()) for corner in CORNERS)
        assert 0.7 * (1 - 1e-9) <= largest <= 0.7
        assert noise.certificate.radius == pytest.approx(largest, rel=1e-12)

    def test_the_loss_is_that_of_the_worst_corner(self):
        noise = laplace_with_scales(BALLS, [3.0, 2.0, 4.0, 1.0, 2.0])
        for epsilon in (0.0, 0.3, 0.6):
            worst = max(
                true_delta([r for r in corner / noise.scales if r > 0], epsilon)
                for corner in CORNERS
            )
            assert noise.loss.delta(epsilon, 1e-6) == pytest.approx(worst, rel=1e-5)

    def test_groups_of_coordinates_with_bounds_in_l1(self):
        """Scales of groups are (C / K)^(1/3) times the sum of (C^2 K)^(1/3), over epsilon."""
        sizes, clips = np.array([4096, 64, 640, 10]), np.full(4, 0.5)
        product = Product(*(L1Ball(int(k), c) for k, c in zip(sizes, clips, strict=True)))
        noise = optimal_laplace(product, epsilon=1.0)
        expected = np.cbrt(clips / sizes) * np.cbrt(clips**2 * sizes).sum()
        starts = np.cumsum([0, *sizes[:-1]])
        np.testing.assert_allclose(noise.scales[starts], expected, rtol=1e-10)
        assert noise.error == pytest.approx(2 * float(sizes @ expected**2), rel=1e-10)

    def test_a_delta_is_used_within_the_promise(self):
        noise = optimal_laplace(
            Product(*(L1Ball(4, 1.0) for _ in range(12))), epsilon=1, delta=1e-5
        )
        pure = optimal_laplace(noise.sensitivity, epsilon=1)
        assert noise.loss.epsilon(1e-5) <= 1
        assert noise.error < 0.95 * pure.error

    def test_mixed_parts_cost_what_quadrature_says(self):
        mixed = Product(Histogram(3), Ranges([(18, 90)]))
        noise = optimal_laplace(mixed, epsilon=0.9)
        ratios = np.array([1.0, 90.0]) / noise.scales[[0, 3]]
        assert noise.scales[:3].tolist() == [noise.scales[0]] * 3
        assert ratios.sum() <= 0.9
        assert noise.loss.delta(0.4, 1e-6) == pytest.approx(true_delta(ratios, 0.4), rel=1e-5)


class TestGaussian:
    def test_l2_balls_are_blocks(self):
        product = Product(L2Ball(3, 1.0), L2Ball(2, 0.4))
        blocks = Blocks([3, 2], l2=[1.0, 0.4])
        for options in ({}, {"power": 3.0}, {"weights": [1.0, 4.0]}, {"objective": "worst"}):
            one, other = (
                optimal_gaussian(each, epsilon=1.0, delta=1e-6, **options)
                for each in (product, blocks)
            )
            np.testing.assert_allclose(one.scales, other.scales, rtol=1e-12)
            assert one.certificate.gap == pytest.approx(other.certificate.gap, abs=1e-9)

    def test_l1_balls_need_no_less_than_their_corners(self):
        noise = optimal_gaussian(BALLS, multiplier=1.0)
        finite = optimal_gaussian(
            FiniteSet([row * signs for row in CORNERS for signs in _signs()]), multiplier=1.0
        )
        assert noise.error == pytest.approx(finite.error, rel=1e-5)
        assert noise.certificate.gap < 1e-9

    def test_groups_of_coordinates_with_bounds_in_l2(self):
        sizes = [4096, 64, 640, 10]
        noise = optimal_gaussian(Product(*(L1Ball(k, 0.5) for k in sizes)), multiplier=1.0)
        expected = [0.6264374062827783, 1.7718325518858595, 0.9963746652428922, 2.818173129582901]
        starts = np.cumsum([0, *sizes[:-1]])
        np.testing.assert_allclose(noise.scales[starts], expected, rtol=1e-10)

    @pytest.mark.parametrize(
        "parts",
        [
            (Box([1.0, 2.0], l2=1.5), LInfBall(2, 0.5)),
            (Box([1.0, 2.0, 3.0], l1=2.0), Histogram(3, 2)),
            (Blocks([2, 1], l2=[1.0, 2.0], cap=2.0), L1Ball(2, 1.0)),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("weights", [None, "each"])
    def test_every_member_is_hidden(self, parts, weights):
        product = Product(*parts)
        d = product.dimension
        given = None if weights is None else np.linspace(1.0, 3.0, d)
        noise = optimal_gaussian(product, multiplier=2.0, weights=given)
        rows = np.random.default_rng(1).normal(size=(4000, d)) * 50
        whitened = np.linalg.norm(product.clip(rows) / noise.scales, axis=1)
        assert whitened.max() <= 0.5 * (1 + 1e-12)
        laplace = optimal_laplace(product, epsilon=0.5, weights=given)
        assert np.abs(product.clip(rows) / laplace.scales).sum(axis=1).max() <= 0.5

    def test_scales_as_given_by_block(self):
        noise = gaussian_with_scales(BALLS, [2.0, 1.0])
        assert 1 / noise.multiplier == pytest.approx(math.hypot(0.5, 0.4))


def _signs():
    return itertools.product([-1.0, 1.0], repeat=5)


class TestTheSet:
    def test_parts_are_clipped_by_themselves(self):
        rows = [[3.0, 0.0, 0.2, 0.9, 0.1, 300.0], [0.1, 0.2, 0.0, 0.0, 1.0, 50.0]]
        assert MIXED.clip(rows).tolist() == [[1, 0, 0, 1, 0, 90], [0.1, 0.2, 0, 0, 1, 50]]
        assert MIXED.clip(np.array(rows, dtype=np.float32)).dtype == np.float64

    def test_members(self):
        assert MIXED.contains([0.5, 0.5, 0, 1, 0, 90])
        assert not MIXED.contains([0.5, 0.5, 0, 1, 1, 90])
        assert MIXED.reach().tolist() == [1, 1, 1, 1, 1, 90]

    def test_differences_are_those_of_the_parts(self):
        both = MIXED.differences()
        assert [type(part) for part in both.parts] == [L1Ball, Histogram, Ranges]
        assert both.reach() == pytest.approx([2, 2, 1, 1, 1, 72])
        assert both.clip([[9.0, 0, 1, 0, 0, 1]]).tolist() == [[1, 0, 1, 0, 0, 18]]
        assert both.contributions is MIXED
        again = Product(*(part.differences() for part in MIXED.parts))
        assert again.clip([[9.0, 0, 1, 0, 0, 1]]).tolist() == [[1, 0, 1, 0, 0, 18]]

    def test_products_of_products_are_flat(self):
        assert Product(Product(L1Ball(1, 1.0)), BALLS).dimension == 6

    def test_names_are_those_of_all_parts(self):
        named = Product(Ranges({"age": (18, 90)}), Histogram(["a", "b"]))
        assert named.columns == ("age", "a", "b")
        assert MIXED.columns is None
        noise = optimal_laplace(named, epsilon=1.0)
        assert list(noise.release_sum({"b": [1], "age": [20], "a": [0]})) == ["age", "a", "b"]

    def test_every_option_keeps_the_promise(self):
        for option in recommend(MIXED, 0.7, 1e-6).options:
            assert option.mechanism.loss.epsilon(1e-6) <= 0.7

    def test_refusals(self):
        with pytest.raises(ValueError, match="at least one set"):
            Product()
        with pytest.raises(ValueError, match="one relation, got add_remove and replace"):
            Product(L1Ball(1, 1.0), L1Ball(1, 1.0).differences())
        with pytest.raises(ValueError, match="of the kind FiniteSet"):
            Product(FiniteSet([[1.0]]))
        with pytest.raises(ValueError, match="must not have a basis"):
            Product(Box([1.0], basis=[[1.0]]))
        with pytest.raises(UnsoundConfiguration, match="cannot be clipped"):
            Product(L1Ball(1, 1.0, adjacency="replace")).clip([1.0])
        with pytest.raises(ValueError, match="or 2, one per block"):
            optimal_gaussian(BALLS, multiplier=1.0, weights=[1.0, 1.0, 1.0])
