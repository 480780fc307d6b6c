"""Releases along the axes of a basis: exact coefficients, one grid, and the claimed loss."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from taut.noise import (
    Blocks,
    Box,
    FiniteSet,
    GaussianNoise,
    L1Ball,
    L2Ball,
    LInfBall,
    Polytope,
    SeededForExperiments,
    gaussian_with_covariance,
    optimal_gaussian,
)
from taut.noise._exact.axes import AxesRelease
from taut.noise._exact.release import RoundedNoise
from taut.noise._optimal.baselines import iid_gaussian, spr_gaussian

TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
FLAT = np.array([[1.0, 2.0, 0.0, 1.0, 0.5], [0.0, 1.0, 1.0, -1.0, 0.3]])
SETS = {
    "one number": FiniteSet([[1.0]]),
    "turned box": Box([3.0, 1.0, 0.5, 0.1, 2.0], TURN),
    "thin box": Box([3.0, 1.0, 1e-11, 0.1, 2.0], TURN),
    "coupled box": Box([3.0, 1.0, 0.5, 0.1, 2.0], TURN, l2=1.5, l1=2.5),
    "zero width": Box([3.0, 1.0, 0.0, 0.1, 2.0], TURN, allow_zero=True),
    "turned blocks": Blocks([2, 3], [1.0, 0.5], basis=TURN),
    "bounded blocks": Blocks([2, 3], [1.0, 0.5], linf=[0.9, 0.3], cap=1.05, basis=TURN),
    "complement": Blocks([2, 3], [1.0, 0.5], basis=TURN[:, :2]),
    "thin complement": Blocks([2, 3], [1.0, 1e-11], basis=TURN[:, :2]),
    "finite": FiniteSet(np.tril(np.ones((5, 5)))),
    "flat": FiniteSet(FLAT),
    "polytope": Polytope(np.vstack([np.eye(5), np.ones((1, 5)) / 2])),
    "flat polytope": Polytope(FLAT),
}
each_set = pytest.mark.parametrize("one", SETS.values(), ids=SETS)


def fractions(array):
    return [Fraction(float(x)) for x in array]


def parts(noise, vector):
    """Return exact coefficients over scales, and the exact rest over its scale, as rationals."""
    x = fractions(vector)
    axes = [fractions(axis) for axis in noise.basis.T]
    inside = [sum(a * b for a, b in zip(axis, x, strict=True)) for axis in axes]
    rest = [
        entry - sum(c * axis[i] for c, axis in zip(inside, axes, strict=True))
        for i, entry in enumerate(x)
    ]
    return inside, rest


def whitened_square(noise, change):
    """Return the squared length that the loss of the release depends on, without rounding."""
    inside, rest = parts(noise, change)
    total = sum(
        (c / Fraction(float(s))) ** 2 for c, s in zip(inside, noise.scales, strict=True) if s > 0
    )
    if noise.complement_scale > 0:
        total += sum(r**2 for r in rest) / Fraction(noise.complement_scale) ** 2
    return total


def rows_around(one, seed, size=40):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(size, one.dimension)) * 10.0 ** rng.uniform(-2, 6, (size, 1))
    return np.vstack([rows, 100 * np.eye(one.dimension)])


class TestCertificate:
    """A clipped row, taken exactly, is not longer than the multiplier says."""

    @each_set
    @pytest.mark.parametrize("objective", ["total", "worst", "relative"])
    def test_one_record(self, one, objective):
        noise = optimal_gaussian(one, multiplier=0.7, objective=objective)
        longest = max(whitened_square(noise, row) for row in one.clip(rows_around(one, 1)))
        assert longest <= 1 / Fraction(0.7) ** 2
        assert noise.certificate.radius <= 1 / 0.7

    @pytest.mark.parametrize("name", [n for n in SETS if n not in ("one number", "flat polytope")])
    def test_a_replaced_record(self, name):
        one = SETS[name].differences()
        noise = optimal_gaussian(one, multiplier=1.0)
        rows = one.clip(rows_around(one, 2, 12))
        for left, right in itertools.combinations(rows.tolist(), 2):
            inside = [
                (a - b) / Fraction(float(s))
                for a, b, s in zip(
                    parts(noise, left)[0], parts(noise, right)[0], noise.scales, strict=True
                )
                if s > 0
            ]
            assert sum(c**2 for c in inside) <= 1

    def test_corners_of_a_turned_box_are_just_hidden(self):
        one = SETS["turned box"]
        noise = optimal_gaussian(one, multiplier=1.0)
        corner = np.linalg.solve(noise.basis.T, one.widths)
        assert 1 - 1e-9 <= whitened_square(noise, corner) <= 1

    @pytest.mark.parametrize("make", [iid_gaussian, spr_gaussian])
    def test_baselines(self, make):
        one = SETS["thin box"]
        noise = make(one, epsilon=1.0, delta=1e-6)
        longest = max(whitened_square(noise, row) for row in one.clip(rows_around(one, 3)))
        assert longest <= 1 / Fraction(noise.multiplier) ** 2

    @settings(max_examples=20, deadline=None)
    @given(
        st.integers(0, 10**6),
        st.sampled_from(
            [
                FiniteSet(FLAT[:, :3]),
                Polytope(FLAT[:, :3]),
                L1Ball(3, 2.0),
                L2Ball(3, 2.0),
                LInfBall(3, 0.7),
                Box([1.0, 2.0, 0.5], TURN[:3, :3] @ np.linalg.inv(TURN[:3, :3])),
            ]
        ),
    )
    def test_given_covariance(self, seed, one):
        table = np.random.default_rng(seed).normal(size=(3, 3)) * [1.0, 1e-3, 10.0]
        noise = gaussian_with_covariance(one, table @ table.T + 1e-9 * np.eye(3))
        rows = np.vstack([rows_around(one, seed, 20), 100 * noise.basis.T])
        longest = max(whitened_square(noise, row) for row in one.clip(rows))
        assert longest <= 1 / Fraction(noise.multiplier) ** 2

    def test_axes_that_are_not_orthonormal_cost_what_they_do(self):
        """The longest change is that of the axes in use, and not of those that were meant."""
        axes = np.array([[1.0, 0.0], [0.0, 1.0]])
        exact = AxesRelease(axes, np.ones(2))
        longer = AxesRelease(axes * 1.5, np.ones(2))
        one = np.array([exact.release(np.ones(2), SeededForExperiments(i)) for i in range(400)])
        other = np.array([longer.release(np.ones(2), SeededForExperiments(i)) for i in range(400)])
        assert one.mean() == pytest.approx(1.0, abs=0.1)
        assert other.mean() / 1.5 == pytest.approx(1.5, abs=0.1)


class Recorder:
    """Values that reached the noise, and what was released of them."""

    def __init__(self, monkeypatch):
        self.calls = []
        original = RoundedNoise.on_grid

        def on_grid(rounded, value, source):
            released = original(rounded, value, source)
            exact = [
                value.exact(i) * Fraction(2) ** int(e) for i, e in enumerate(rounded.exponents)
            ]
            self.calls.append((exact, released, rounded.grid))
            return released

        monkeypatch.setattr(RoundedNoise, "on_grid", on_grid)


class TestRelease:
    @each_set
    def test_coefficients_are_exact_and_what_leaves_is_a_function_of_the_grid(
        self, one, monkeypatch
    ):
        seen = Recorder(monkeypatch)
        noise = optimal_gaussian(one, multiplier=1.0)
        value = np.random.default_rng(3).normal(size=one.dimension) * 1e6
        output = noise.release(value, SeededForExperiments(0))
        inside, rest = parts(noise, value)
        assert seen.calls[0][0] == inside
        along = seen.calls[0][1]
        expected = noise.basis @ along
        if noise.complement_scale > 0:
            assert seen.calls[1][0] == rest
            free = seen.calls[1][1]
            expected = expected + (free - noise.basis @ (noise.basis.T @ free))
        assert (output == expected).all()
        for _, released, grid in seen.calls:
            steps = released[grid > 0] / grid[grid > 0]
            assert (steps == np.rint(steps)).all()
            assert not released[grid == 0].any()
        assert (noise.grid == np.concatenate([grid for _, _, grid in seen.calls])).all()

    @each_set
    def test_one_record_moves_a_sum_by_its_own_clipped_row(self, one, monkeypatch):
        seen = Recorder(monkeypatch)
        noise = optimal_gaussian(one, multiplier=1.0)
        rows = np.vstack([rows_around(one, 4, 9), np.full(one.dimension, 1.7e308)])
        record = rows[:1]
        noise.release_sum(rows, SeededForExperiments(0))
        noise.release_sum(rows[1:], SeededForExperiments(0))
        before, after = seen.calls[0][0], seen.calls[len(seen.calls) // 2][0]
        moved = [a - b for a, b in zip(before, after, strict=True)]
        assert moved == parts(noise, one.clip(record)[0])[0]

    @each_set
    def test_distribution(self, one):
        noise = optimal_gaussian(one, multiplier=0.5)
        value = np.random.default_rng(5).normal(size=one.dimension)
        source = SeededForExperiments(7)
        draws = np.array([noise.release(value, source) for _ in range(400)])
        sizes, turn = np.linalg.eigh(noise.covariance())
        kept = sizes > 1e-14 * sizes[-1]
        centred = (draws - noise._hidden(value)) @ turn[:, kept] / np.sqrt(sizes[kept])
        assert stats.kstest(np.square(centred).sum(axis=1), "chi2", (kept.sum(),)).pvalue > 1e-3
        assert stats.kstest(centred[:, 0], "norm").pvalue > 1e-3
        assert stats.kstest(centred[:, -1], "norm").pvalue > 1e-3
        # What has no noise is not released.
        assert np.abs(draws @ turn[:, ~kept]).max(initial=0.0) < 1e-6

    def test_huge_coefficients_are_cut_and_values_are_not(self):
        noise = GaussianNoise(
            L2Ball(2, 1.0), "given", None, 1.0, np.ones(2), np.array([[0.6, -0.8], [0.8, 0.6]])
        )
        released = noise.release([1.7e308, 1.7e308], SeededForExperiments(0))
        edge = 2.0**52 * noise.grid
        assert noise.basis.T @ released == pytest.approx([edge[0], -edge[1]], abs=1e3)
        # Along an axis that the value is orthogonal to, its size does not matter.
        near, far = (
            noise.release([0.6 * 5 * t, 0.8 * 5 * t], SeededForExperiments(1)) for t in (1, 1)
        )
        assert (near == far).all()

    def test_public_constants_stay_as_they_are(self):
        one = FiniteSet([[3.0, 4.0]])
        noise = optimal_gaussian(one, multiplier=1.0)
        across = np.array([-0.8, 0.6])
        released = noise.release([5.0, 7.0], SeededForExperiments(0), public=10 * across)
        assert released @ across == pytest.approx(10.0)
        assert noise.release([5.0, 7.0]) @ across == pytest.approx(0.0, abs=1e-9)

    def test_many_coordinates_beside_a_basis(self):
        basis = np.linalg.qr(np.random.default_rng(1).normal(size=(5000, 3)))[0]
        noise = optimal_gaussian(Blocks([3, 4997], [5.0, 0.01], basis=basis), multiplier=1.0)
        value = np.random.default_rng(2).normal(size=5000)
        error = noise.release(value, SeededForExperiments(0)) - value
        inside = basis @ (basis.T @ error)
        assert np.linalg.norm(error - inside) == pytest.approx(
            noise.complement_scale * math.sqrt(4997), rel=0.05
        )
        assert noise.grid.shape == (5003,)
