"""The delta of every Gaussian mechanism, integrated from its densities, is what its loss says.

Nothing is whitened and no formula for delta is used: (p - e^eps q)_+ is integrated over the line,
the plane or space by Gauss-Legendre points, for the densities of the noise around two values that
differ by a member of the set; for noise on a grid it is summed over the grid.
"""

import itertools
import math

import numpy as np
import pytest
from oracles.gaussian import true_delta

from taut.noise import (
    Blocks,
    Box,
    FiniteSet,
    L1Ball,
    L2Ball,
    LInfBall,
    LpIntersection,
    Polytope,
    grid_gaussian,
    optimal_gaussian,
)

INF = math.inf
TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
ERROR = 1e-9  # of the quadrature, relative
EPSILONS = (0.0, 0.5, 1.2)

SETS = {
    "box 1": Box([1.3]),
    "box 3": Box([1.0, 2.0, 0.3]),
    "turned box": Box([1.0, 2.0, 0.3], TURN),
    "levelled box 2": Box([1.0, 3.0], l2=1.5),
    "levelled box 3": Box([1.0, 2.0, 0.3], l2=1.6),
    "cube": LInfBall(3, 0.8),
    "diamond": L1Ball(3, 1.5),
    "ball": L2Ball(3, 1.5),
    "diamond and cube": LpIntersection(3, {1: 2.0, INF: 1.2}),
    "ball and cube": LpIntersection(2, {2: 1.3, INF: 1.0}),
    "three norms": LpIntersection(3, {1: 2.0, 3: 1.2}),
    "turned blocks": Blocks([1, 2], [2.0, 0.5], basis=TURN[:, :1]),
    "capped blocks": Blocks([1, 1, 1], [1.0, 0.8, 0.4], cap=1.1),
    "vectors": FiniteSet(np.random.default_rng(1).normal(size=(7, 3))),
    "polytope": Polytope(np.random.default_rng(2).normal(size=(4, 2))),
    "differences": FiniteSet([[1.0, 0.3], [-0.2, 2.0], [0.4, 0.4]]).differences(),
}
INEXACT = {"three norms"}
# Quadrature in three dimensions takes long: a few such sets will do every time.
LONG = {name for name, one in SETS.items() if one.dimension == 3} - {"turned box", "three norms"}


def members(one, covariance):
    """Return the most exposed of many members on the boundary, and some others."""
    rng = np.random.default_rng(3)
    if hasattr(one, "vectors"):
        rows = one.vectors
    else:
        rays = rng.normal(size=(4000, one.dimension))
        corners = np.array(list(itertools.product([1.0, 0.5, 0, -1.0], repeat=one.dimension)))
        corners = corners[corners.any(axis=1)] * getattr(one, "widths", 1.0)
        if getattr(one, "basis", None) is not None and isinstance(one, Box):
            corners = corners @ one.basis.T
        rays = np.vstack([rays, corners, np.eye(one.dimension), TURN[:, :1].T @ _fit(one)])
        rows = rays / one.gauges(rays)[:, None]
        # Walk on from the most exposed ones: the set may be exposed in one point alone.
        for width in (0.3, 0.1, 0.03, 0.01, 0.003):
            best = rows[np.argsort(-exposure(rows, covariance))[:20]]
            near = best.repeat(50, axis=0)
            near = near + width * rng.normal(size=near.shape) * np.abs(best).max()
            rows = np.vstack([rows, near / one.gauges(near)[:, None]])
    order = np.argsort(-exposure(rows, covariance))
    return rows[[order[0], order[order.size // 2], order[-1]]]


def _fit(one):
    return np.eye(3)[:, : one.dimension]


def exposure(rows, covariance):
    return np.einsum("ij,jk,ik->i", rows, np.linalg.inv(covariance), rows)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in SETS],
)
def test_gaussian_noise(name):
    one = SETS[name]
    noise = optimal_gaussian(one, epsilon=0.8, delta=2e-2)
    rows = members(one, noise.covariance())
    assert all(one.contains(row, 1e-9) for row in rows)
    for epsilon in EPSILONS:
        worst = max(true_delta(noise.covariance(), row, epsilon) for row in rows)
        promised = noise.loss.delta(epsilon)
        assert worst <= promised * (1 + ERROR)
        if name not in INEXACT:
            assert worst == pytest.approx(promised, rel=1e-3)


@pytest.mark.parametrize("objective", ["worst", "relative"])
def test_other_objectives(objective):
    box = SETS["levelled box 2"]
    noise = optimal_gaussian(box, epsilon=0.8, delta=2e-2, objective=objective, weights=[1.0, 7.0])
    row = members(box, noise.covariance())[0]
    for epsilon in EPSILONS:
        worst = true_delta(noise.covariance(), row, epsilon)
        assert worst <= noise.loss.delta(epsilon) * (1 + ERROR)
        assert worst == pytest.approx(noise.loss.delta(epsilon), rel=1e-3)


def lattice_deltas(scale, steps):
    """Sum (p - e^eps q)_+ over all points of the grid near both values, in steps of it."""
    reach = math.ceil(9 * scale) + max(map(abs, steps))
    axis = np.arange(-reach, reach + 1)
    log_p, log_q = np.zeros(()), np.zeros(())
    for k in steps:
        mass = np.exp(-(axis**2) / (2 * scale**2))
        norm = math.log(mass.sum())
        log_p = log_p[..., None] - axis**2 / (2 * scale**2) - norm
        log_q = log_q[..., None] - (axis - k) ** 2 / (2 * scale**2) - norm
    p, q = np.exp(log_p), np.exp(log_q)
    return [float(np.maximum(p - math.exp(e) * q, 0).sum()) for e in EPSILONS]


@pytest.mark.parametrize(
    ("dimension", "grid", "exact"), [(1, 0.25, True), (2, 1.0, True), (2, 0.5, False), (3, 1.0, 0)]
)
def test_grid_gaussian(dimension, grid, exact):
    noise = grid_gaussian(2.0, 1.0, dimension, grid=grid)
    rng = np.random.default_rng(0)
    away = rng.normal(size=(20_000, dimension))
    away /= np.linalg.norm(away, axis=1)[:, None]
    start = rng.uniform(-1, 1, size=away.shape)
    halves = np.floor(start / grid) * grid + grid / 2  # where rounding jumps
    start = np.where(rng.random(size=start.shape) < 0.7, halves - 1e-9, start)
    moved = {
        tuple(sorted(map(abs, row)))
        for row in np.array(
            [noise._steps(b) - noise._steps(a) for a, b in zip(start, start + away, strict=True)]
        ).tolist()
    }
    worst = np.max([lattice_deltas(noise.sigma / grid, steps) for steps in moved], axis=0)
    promised = np.array([noise.loss.delta(epsilon) for epsilon in EPSILONS])
    assert (worst <= promised * (1 + 1e-9)).all()
    if exact:
        assert worst == pytest.approx(promised, rel=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_quadrature_of_a_known_value(size):
    # At epsilon 0 it is the total variation distance, 2 Phi(|shift| / 2) - 1 for unit noise.
    shift = np.array([1.0, -0.7, 0.2])[:size]
    known = math.erf(float(np.linalg.norm(shift)) / 2 / math.sqrt(2))
    assert true_delta(np.eye(size), shift, 0.0) == pytest.approx(known, rel=1e-9)
