"""Staircase noise: known optima, density, samples."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from taut.noise import Blocks, Box, L1Ball, L2Ball, SeededForExperiments, optimal_laplace, staircase


class TestOneCoordinate:
    @pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 20.0])
    def test_absolute_error(self, epsilon):
        noise = staircase(Box([3.0]), epsilon=epsilon)
        # Geng and Viswanath 2016: gamma and the least error in closed form.
        assert noise.gamma == pytest.approx(1 / (1 + math.exp(epsilon / 2)), rel=1e-4)
        expected = 3 * math.exp(epsilon / 2) / math.expm1(epsilon)
        assert noise.error == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize("epsilon", [0.3, 2.0, 6.0])
    def test_squared_error(self, epsilon):
        noise = staircase(Box([1.0]), epsilon=epsilon, power=2.0)
        b = math.exp(-epsilon)

        def variance(g):  # the moments of the density, written as sums
            k = np.arange(400 / epsilon)
            heights = np.exp(-epsilon * k)
            inner = heights @ ((k + g) ** 3 - k**3 + b * ((k + 1) ** 3 - (k + g) ** 3))
            return inner / 3 / (heights.sum() * (g + b * (1 - g)))

        best = minimize_scalar(variance, bounds=(0, 1), method="bounded", options={"xatol": 1e-9})
        assert noise.error == pytest.approx(best.fun, rel=1e-8)
        assert noise.total_variance == pytest.approx(noise.error)
        assert noise.error < optimal_laplace(Box([1.0]), epsilon=epsilon).error

    def test_certificate(self):
        assert staircase(Box([1.0]), epsilon=1.0).certificate.gap < 1e-9
        assert staircase(Box([1.0, 1.0]), epsilon=1.0).certificate.lower_bound == 0


class TestTwoCoordinates:
    @pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 3.0, 5.0])
    def test_rescaled_beats_both(self, epsilon):
        box = Box([0.85, 0.15])
        rescaled = staircase(box, epsilon=epsilon).error
        plain = staircase(L1Ball(2, 1.0), epsilon=epsilon).error
        assert rescaled < plain
        assert rescaled < optimal_laplace(box, epsilon=epsilon, power=1.0).error
        half = np.sqrt([0.85, 0.15]).sum()
        assert rescaled == pytest.approx(plain * half**2 / 2, rel=1e-9)

    def test_laplace_wins_up_to_3_226(self):
        box, ball = Box([0.85, 0.15]), L1Ball(2, 1.0)
        gaps = [
            optimal_laplace(box, epsilon=e, power=1.0).error - staircase(ball, epsilon=e).error
            for e in (3.224, 3.228)
        ]
        assert gaps[0] < 0 < gaps[1]


CASES = [
    (Box([0.85, 0.15]), 0.5),
    (Box([0.85, 0.15]), 2.0),
    (L1Ball(2, 1.0), 1.0),
    (L2Ball(2, 1.0), 1.0),
    (Blocks([1, 1], [1.0, 0.3]), 1.5),
    (Box([2.0]), 0.7),
]


class TestPrivacy:
    @pytest.mark.parametrize(("one", "epsilon"), CASES)
    def test_ratios_of_densities(self, one, epsilon):
        noise = staircase(one, epsilon=epsilon)
        rng = np.random.default_rng(1)
        points = rng.normal(size=(20_000, one.dimension)) * 3 * noise.scales
        shifts = one.clip(rng.normal(size=points.shape) * 100)
        ratios = np.log(noise.density(points) / noise.density(points + shifts))
        assert np.abs(ratios).max() <= epsilon * (1 + 1e-12)
        assert np.abs(ratios).max() == pytest.approx(epsilon)

    @pytest.mark.parametrize("at", [0.0, 0.3])
    @pytest.mark.parametrize(("one", "epsilon"), CASES[:5])
    def test_true_delta_is_within_the_loss(self, one, epsilon, at):
        noise = staircase(one, epsilon=epsilon)
        axes = [np.linspace(-45, 45, 1001) / epsilon * c * 0.5 for c in noise.scales]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        cell = np.prod([x[1] - x[0] for x in axes])
        density = noise.density(points)
        assert density.sum() * cell == pytest.approx(1.0, rel=2e-2)
        for direction in ([1, 0], [0, 1], [1, 1], [1, -0.2]):
            member = one.clip(100 * np.array(direction, dtype=float))
            other = noise.density(points - member)
            found = np.maximum(density - math.exp(at) * other, 0).sum() * cell
            assert found <= noise.loss.delta(at) * 1.02

    def test_density_integrates_to_one(self):
        noise = staircase(Box([2.0]), epsilon=0.7)
        ends = [k + g for k in range(80) for g in (0.0, noise.gamma)]
        parts = pairwise(ends)
        c = noise.scales[0]
        whole = sum(
            quad(lambda x: noise.density(np.array([[x]]))[0], a * c, b * c)[0] for a, b in parts
        )
        assert 2 * whole == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(("one", "epsilon"), [CASES[1], CASES[5]])
@pytest.mark.parametrize("power", [1.0, 2.0])
def test_samples_have_the_error(one, epsilon, power):
    noise = staircase(one, epsilon=epsilon, power=power)
    generator = SeededForExperiments(4)
    draws = np.array([noise.sample(generator) for _ in range(8000)])
    found = (np.abs(draws) ** power).sum(axis=1).mean()
    assert found == pytest.approx(noise.error, rel=0.08)
    assert abs(np.mean(draws > 0) - 0.5) < 0.02


@pytest.mark.parametrize(
    ("one", "arguments", "word"),
    [
        (Box([1.0, 1.0, 1.0]), {"epsilon": 1.0}, "dimensions"),
        (Box([1.0]), {"epsilon": 1e-5}, "epsilon"),
        (Box([1.0]), {"epsilon": math.nan}, "epsilon"),
        (Box([1.0]), {"epsilon": 1.0, "power": -1.0}, "power"),
        (Box([1.0, 0.0], allow_zero=True), {"epsilon": 1.0}, "zero"),
    ],
)
def test_bad_input(one, arguments, word):
    with pytest.raises(ValueError, match=word):
        staircase(one, **arguments)


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 10.0, 30.0, 60.0, 100.0])
def test_the_published_step_and_error_for_any_budget(epsilon):
    """Geng and Viswanath (2016): gamma = 1 / (1 + e^(ε / 2)), E|X| = e^(ε / 2) / (e^ε - 1)."""
    noise = staircase(Box([1.0]), epsilon=epsilon)
    assert noise.gamma == pytest.approx(1 / (1 + math.exp(epsilon / 2)), rel=1e-5)
    assert noise.error == pytest.approx(math.exp(epsilon / 2) / math.expm1(epsilon), rel=1e-9)
    assert noise.certificate.gap < 1e-9


def test_weights_move_noise_to_what_matters_less():
    box, weights = Box([1.0, 1.0]), [1.0, 1e4]
    plain = staircase(box, epsilon=2.0, power=2.0)
    fitted = staircase(box, epsilon=2.0, power=2.0, weights=weights)
    assert fitted.scales[1] < plain.scales[1]
    assert fitted.error == pytest.approx(fitted.coordinate_errors(2.0) @ weights)
    assert fitted.error < plain.coordinate_errors(2.0) @ weights
    with pytest.raises(ValueError, match="weights must hold 2 numbers"):
        staircase(box, epsilon=2.0, weights=[1.0])
