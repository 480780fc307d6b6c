"""Laplace noise for promises with delta above zero: certified, and not above what it need be."""

import math

import numpy as np
import pytest
from oracles.laplace import true_delta

from taut.noise import Blocks, Box, L1Ball, L2Ball, optimal_gaussian, optimal_laplace


class TestPositiveDelta:
    @pytest.mark.parametrize("delta", [1e-6, pytest.param(0.05, marks=pytest.mark.slow)])
    @pytest.mark.parametrize("widths", [[1.0], [1.0, 2.0], [1.0, 0.2, 3.0], list(range(1, 8))])
    def test_certified_and_never_above_pure(self, widths, delta):
        noise = optimal_laplace(Box(widths), epsilon=0.6, delta=delta)
        assert noise.loss.epsilon(delta) <= 0.6
        assert noise.error <= optimal_laplace(Box(widths), epsilon=0.6).error
        assert noise.loss.epsilon(delta) >= 0.6 * (1 - 2e-3)

    def test_one_coordinate_has_its_closed_form(self):
        noise = optimal_laplace(Box([2.0]), epsilon=0.4, delta=0.01)
        assert 2 / noise.scales[0] == pytest.approx(0.4 - 2 * math.log1p(-0.01), rel=1e-6)
        assert true_delta([2 / noise.scales[0]], 0.4) == pytest.approx(0.01, rel=1e-5)

    def test_two_coordinates_use_up_delta(self):
        noise = optimal_laplace(Box([1.0, 2.0]), epsilon=0.5, delta=0.01)
        exact = true_delta(np.array([1.0, 2.0]) / noise.scales, 0.5)
        assert 0.0099 < exact <= 0.01

    def test_better_than_corollary_6_and_pure(self):
        errors = [
            optimal_laplace(Box(np.ones(20)), epsilon=0.5, delta=1e-2, accounting=name).error
            for name in ("exact", "corollary6", "pure")
        ]
        assert errors[0] < 0.5 * errors[1]
        assert errors[1] == pytest.approx(errors[2] * (0.5 / (0.5 - math.log1p(-0.01))) ** 2)

    def test_coupled_sets_are_certified_too(self):
        ball = optimal_laplace(L1Ball(5, 1.0), epsilon=0.4, delta=0.01)
        assert 1 / ball.scales[0] == pytest.approx(0.4 - 2 * math.log1p(-0.01), rel=1e-6)
        for one in (Box(np.ones(30), l1=20.0), L2Ball(8, 1.0), Blocks([3, 4], [1.0, 2.0])):
            noise = optimal_laplace(one, epsilon=0.4, delta=1e-4)
            assert noise.loss.epsilon(1e-4) <= 0.4
            assert noise.error < optimal_laplace(one, epsilon=0.4).error

    @pytest.mark.parametrize(
        ("k", "expected"), [(5, 0.616), (20, 1.71), (50, 1.89), (100, 1.94), (300, 1.98)]
    )
    def test_error_relative_to_gaussian_noise(self, k, expected):
        box = Box(np.ones(k))
        laplace, gaussian = (
            make(box, epsilon=0.5, delta=1e-6).error for make in (optimal_laplace, optimal_gaussian)
        )
        assert laplace / gaussian == pytest.approx(expected, abs=0.006)

    def test_many_different_ratios_are_few_releases(self):
        noise = optimal_laplace(Box(np.arange(1.0, 201)), epsilon=0.5, delta=1e-6)
        assert len(noise.loss.terms) <= 8
        assert noise.loss.epsilon_bounds(1e-6, 1e-2).upper <= 0.5

    def test_equal_coordinates_are_counted(self):
        noise = optimal_laplace(Box(np.ones(10_000)), epsilon=0.5)
        ((_, count),) = noise.loss.terms
        assert count == 10_000
        assert noise.loss.epsilon(0.0) <= 0.5
