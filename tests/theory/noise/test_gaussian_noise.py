"""The derivations of docs/theory/gaussian-noise.md, step by step and by other means."""

import math

import numpy as np
import pytest
from scipy.linalg import sqrtm

from taut.noise._fitting.water_filling import level_total, whitened_radius
from taut.noise._optimal.gaussian import optimal_gaussian
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.finite import FiniteSet


def lower_bound(t, a, p):
    return float((t ** (p / (p + 2)) * a ** (2 / (p + 2))).sum() ** ((p + 2) / 2))


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("seed", range(4))
class TestLevelling:
    def problem(self, seed):
        rng = np.random.default_rng(seed)
        ranks, weights = rng.integers(1, 9, size=6), rng.exponential(size=6) + 0.1
        radii = rng.exponential(size=6) + 0.1
        cap = float(np.linalg.norm(radii)) * rng.uniform(0.3, 0.9)
        return Blocks(ranks.tolist(), radii, cap=cap), ranks * weights

    def test_no_admissible_lengths_prove_more(self, seed, p):
        blocks, load = self.problem(seed)
        _, best, _ = level_total(blocks.outline(), load, p)
        rng = np.random.default_rng(100 + seed)
        for _ in range(500):
            t = rng.uniform(size=6) ** 3 * blocks.radii**2
            t = np.minimum(t * blocks.cap**2 / t.sum(), blocks.radii**2)
            assert lower_bound(t, load, p) <= best * (1 + 1e-12)

    def test_feasible_scales_do_not_go_below(self, seed, p):
        blocks, load = self.problem(seed)
        scales, best, _ = level_total(blocks.outline(), load, p)
        assert whitened_radius(blocks.outline(), scales) == pytest.approx(1.0, rel=1e-12)
        assert float(load @ scales**p) == pytest.approx(best, rel=1e-12)
        rng = np.random.default_rng(200 + seed)
        for size in (1e-3, 0.1, 1.0):
            for _ in range(200):
                other = scales * np.exp(size * rng.normal(size=6))
                other *= whitened_radius(blocks.outline(), other)
                assert float(load @ other**p) >= best * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_dual_bound_for_any_covariance(seed):
    rng = np.random.default_rng(seed)
    vectors, weights = rng.normal(size=(9, 4)), rng.dirichlet(np.ones(9))
    factor, root = rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    weight = root @ root.T
    covariance = factor @ factor.T
    covariance *= np.einsum("ij,jk,ik->i", vectors, np.linalg.inv(covariance), vectors).max()
    M = (vectors * weights[:, None]).T @ vectors
    half = np.real(sqrtm(weight))
    bound = float(np.trace(np.real(sqrtm(half @ M @ half)))) ** 2
    assert np.trace(weight @ covariance) >= bound * (1 - 1e-9)


def test_fidelity_is_jointly_concave():
    rng = np.random.default_rng(0)

    def fidelity(A, M):
        half = np.real(sqrtm(A))
        return float(np.trace(np.real(sqrtm(half @ M @ half))))

    for _ in range(30):
        (A, B, M, N) = ((f := rng.normal(size=(3, 3))) @ f.T for _ in range(4))
        middle = fidelity((A + B) / 2, (M + N) / 2)
        assert middle >= (fidelity(A, M) + fidelity(B, N)) / 2 - 1e-9


def test_isotropic_below_the_stated_cap():
    ranks, radii = [3, 5], np.array([1.0, 0.7])
    cap = min(c * math.sqrt(8 / r) for c, r in zip(radii, ranks, strict=True))
    noise = optimal_gaussian(Blocks(ranks, radii, cap=min(cap, 0.99)), multiplier=1.0)
    assert np.ptp(noise.scales) <= 1e-9


def test_least_noise_for_second_moments():
    # Equally spaced directions average like all of them: x xᵀ has frequencies 0 and 2 only.
    angles = np.arange(12) * math.pi / 12
    x, y = np.cos(angles), np.sin(angles)
    moments = FiniteSet(np.stack([x**2, y**2, math.sqrt(2) * x * y], axis=1))
    least = (1 / math.sqrt(2) + 1) ** 2
    assert optimal_gaussian(moments, multiplier=1.0).total_variance == pytest.approx(
        least, rel=1e-6
    )
    assert 1 - least / 3 == pytest.approx(0.029, abs=1e-3)


def test_isotropic_noise_for_second_moments_is_never_far_off():
    d = np.arange(2, 3000.0)
    size = d * (d + 1) / 2
    least = (1 / np.sqrt(d) + np.sqrt((1 - 1 / d) * (size - 1))) ** 2
    assert (1 - least / size).max() < 0.041
    assert 1 - least[98] / size[98] == pytest.approx(0.007, abs=5e-4)
