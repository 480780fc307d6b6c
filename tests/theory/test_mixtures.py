"""docs/theory/mixtures.md: norms suffice, larger shifts dominate, zero is not being sampled."""

import math

import numpy as np
import pytest

from taut.accounting._adjacency import Half
from taut.accounting._mechanisms.mixture import group_poisson, mixture_of_gaussians

AXIS = np.linspace(-11.0, 11.0, 1101)
STEP = AXIS[1] - AXIS[0]
PLANE = np.stack(np.meshgrid(AXIS, AXIS, indexing="ij"), axis=-1)
NORMAL = np.exp(-0.5 * (PLANE**2).sum(axis=-1)) / (2 * math.pi) * STEP**2
GRID_ERROR = 2e-6  # of a function with a kink, summed on the grid


def in_the_plane(weights, vectors, threshold, half):
    """Return the hockey stick of a two-dimensional mixture by direct summation."""
    ratio = sum(
        w * np.exp(PLANE @ vector - 0.5 * vector @ vector)
        for w, vector in zip(weights, vectors, strict=True)
    )
    gain = ratio - threshold if half is Half.REMOVE else 1 - threshold * ratio
    return float((NORMAL * np.maximum(gain, 0.0)).sum())


def on_the_line(weights, shifts, threshold, half):
    pair = mixture_of_gaussians(weights, shifts, 1.0).terms[0][0].pair(half)
    return float(pair.profile(np.array([math.log(threshold)]))[0])


@pytest.mark.parametrize("half", [Half.ADD, Half.REMOVE])
def test_norms_dominate_vectors(half):
    rng = np.random.default_rng(11)
    for _ in range(6):
        weights = rng.dirichlet(np.ones(3))
        vectors = rng.normal(size=(3, 2))
        norms = np.linalg.norm(vectors, axis=1)
        for threshold in np.exp(rng.uniform(-1.5, 1.5, 3)).tolist():
            plane = in_the_plane(weights, vectors, threshold, half)
            assert plane <= on_the_line(weights, norms, threshold, half) + GRID_ERROR


@pytest.mark.parametrize("half", [Half.ADD, Half.REMOVE])
def test_parallel_vectors_attain_the_bound(half):
    weights, lengths = np.array([0.5, 0.3, 0.2]), np.array([0.0, 0.8, 2.0])
    vectors = np.outer(lengths, [0.6, 0.8])
    for threshold in (0.7, 1.0, 1.6):
        plane = in_the_plane(weights, vectors, threshold, half)
        assert plane == pytest.approx(
            on_the_line(weights, lengths, threshold, half), abs=GRID_ERROR
        )


@pytest.mark.parametrize("half", [Half.ADD, Half.REMOVE])
def test_a_stochastically_larger_shift_dominates(half):
    rng = np.random.default_rng(12)
    shifts = np.sort(rng.uniform(0.0, 3.0, 5))
    for _ in range(60):
        weights = rng.dirichlet(np.ones(5))
        moved = weights.copy()
        low, high = np.sort(rng.choice(5, 2, replace=False))
        amount = rng.uniform(0.0, moved[low])
        moved[low] -= amount
        moved[high] += amount
        threshold = math.exp(rng.uniform(-2.0, 3.0))
        smaller = on_the_line(weights, shifts, threshold, half)
        assert smaller <= on_the_line(moved, shifts, threshold, half) * (1 + 1e-11) + 1e-15


@pytest.mark.parametrize("half", [Half.ADD, Half.REMOVE])
def test_groups_are_dominated_by_the_binomial_mixture(half):
    rng = np.random.default_rng(13)
    rate = 0.3
    pair = group_poisson(sigma=1.0, rate=rate, group_size=2).terms[0][0].pair(half)
    for _ in range(4):
        first, second = (v / max(np.linalg.norm(v), 1.0) for v in rng.normal(size=(2, 2)))
        sums = np.array([np.zeros(2), first, second, first + second])
        weights = np.array([(1 - rate) ** 2, rate * (1 - rate), rate * (1 - rate), rate**2])
        for threshold in (0.8, 1.0, 1.3):
            bound = float(pair.profile(np.array([math.log(threshold)]))[0])
            assert in_the_plane(weights, sums, threshold, half) <= bound + GRID_ERROR


def test_the_pair_with_a_shift_of_zero_is_the_mixture_itself():
    weights, shifts = np.array([0.6, 0.3, 0.1]), np.array([0.0, 1.0, 3.0])
    x = np.linspace(-12.0, 15.0, 54_001)
    density = np.exp(-0.5 * (x[:, None] - shifts) ** 2) / math.sqrt(2 * math.pi)
    p, q = density @ weights, density[:, 0]
    for threshold in (0.5, 0.9, 1.0, 2.0, 20.0):
        removed = float(np.maximum(p - threshold * q, 0.0).sum() * (x[1] - x[0]))
        added = float(np.maximum(q - threshold * p, 0.0).sum() * (x[1] - x[0]))
        assert on_the_line(weights, shifts, threshold, Half.REMOVE) == pytest.approx(
            removed, rel=1e-6, abs=1e-8
        )
        assert on_the_line(weights, shifts, threshold, Half.ADD) == pytest.approx(
            added, rel=1e-6, abs=1e-8
        )


def test_a_threshold_that_is_not_exact_lowers_the_difference():
    # So rounding the inverse loss up is not pessimistic.
    weights, shifts, epsilon = np.array([0.5, 0.5]), np.array([0.5, 2.0]), 1.0
    exact = on_the_line(weights, shifts, math.exp(epsilon), Half.REMOVE)
    phi = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))
    x = np.linspace(0.0, 4.0, 4001)
    differences = phi(shifts - x[:, None]) @ weights - math.exp(epsilon) * phi(-x)
    assert differences.max() <= exact * (1 + 1e-12)
    assert differences.max() == pytest.approx(exact, rel=1e-6)
    best = int(differences.argmax())
    assert differences[best + 100] < exact
    assert differences[best - 100] < exact
