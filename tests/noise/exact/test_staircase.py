"""Staircase noise, rounded: exactly the ideal distribution, without end, and its pure loss."""

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noise.words import Words
from scipy import integrate, stats

from taut.noise import (
    Box,
    L1Ball,
    SeededForExperiments,
    recommend,
    staircase,
)
from taut.noise._exact.staircase import RoundedStaircase, balls_tail_bounds, draw_ball
from taut.noise._optimal.staircase import radial_moment

MOST = 2**64 - 1
words_of = st.integers(0, MOST)


def length_in_ball(low, high, radius):
    """Return how much of [low, high] lies within the radius."""
    return np.maximum(np.minimum(high, radius) - np.maximum(low, -radius), 0.0)


def area_in_ball(first, second, radius):
    """Return the area of a rectangle within the l1 ball: the length of slices, exactly linear."""
    stops = [*first, 0.0, *(s * (radius - abs(e)) for s in (-1, 1) for e in (*second, 0.0))]
    stops = np.unique(np.clip(stops, *first))
    return np.trapezoid(length_in_ball(*second, radius - np.abs(stops)), stops)


def interval_masses(epsilon, gamma, edges):
    """Return the masses of intervals in units of the scale, from the heights of the steps."""
    radii = np.arange(math.ceil(80 / epsilon)) + gamma
    heights = np.exp(-epsilon * np.arange(radii.size))
    drops = heights * -math.expm1(-epsilon)
    total = 2 * drops @ radii
    return length_in_ball(edges[:-1, None], edges[1:, None], radii) @ drops / total


def rectangle_masses(epsilon, gamma, edges):
    """Return the masses of rectangles in units of the scales."""
    radii = np.arange(math.ceil(45 / epsilon)) + gamma
    drops = np.exp(-epsilon * np.arange(radii.size)) * -math.expm1(-epsilon)
    total = 2 * drops @ radii**2
    first, second = (list(pairwise(e)) for e in edges)
    masses = np.empty((len(first), len(second)))
    for i, one in enumerate(first):
        for j, two in enumerate(second):
            masses[i, j] = sum(
                d * area_in_ball(one, two, r) for d, r in zip(drops, radii, strict=True)
            )
    return masses / total


def chi_square(seen, masses, count):
    """Return the p-value of counts; cells of few, and what lies outside, are pooled."""
    seen, expected = np.ravel(seen), count * np.ravel(masses)
    kept = expected > 8
    seen = np.append(seen[kept], count - seen[kept].sum())
    expected = np.append(expected[kept], count - expected[kept].sum())
    statistic = ((seen - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    return stats.chi2(max(seen.size - 1, 1)).sf(statistic)


def mp_tail(k, epsilon, gamma, n):
    """Return the weight of the balls from k on, by summing it, over that of all."""
    with mpmath.workdps(250):
        b, g = mpmath.exp(-mpmath.mpf(epsilon)), mpmath.mpf(gamma)
        last = math.ceil(600 / epsilon) + 2
        weights = [b**j * (j + g) ** n for j in range(k + last)]
        return mpmath.fsum(weights[k:]) / mpmath.fsum(weights)


class TestBalls:
    @pytest.mark.parametrize("n", [1, 2])
    @pytest.mark.parametrize("epsilon", [0.3, 1.7, 40.0, 100.0])
    @pytest.mark.parametrize("gamma", [1e-9, 0.31, 0.97])
    def test_tails_are_enclosed(self, n, epsilon, gamma):
        for k in (0, 1, 2, 17):
            exact = mp_tail(k, epsilon, gamma, n)
            before = mpmath.inf
            for bits in (64, 192, 512):
                low, high = balls_tail_bounds(k, epsilon, gamma, n, bits)
                with mpmath.workdps(250):
                    assert low <= exact * mpmath.mpf(2) ** bits < high + 1
                    width = mpmath.mpf(high + 1 - low) / mpmath.mpf(2) ** bits
                    assert width < before
                    before = width
            assert before < mpmath.mpf(2) ** -350

    @pytest.mark.parametrize("n", [1, 2])
    @pytest.mark.parametrize("epsilon", [0.05, 0.9, 4.0])
    def test_numbers_have_their_masses(self, n, epsilon):
        gamma, count, source = 0.37, 4000, SeededForExperiments(5)
        drawn = [draw_ball(epsilon, gamma, n, source) for _ in range(count)]
        falls = np.arange(math.ceil(60 / epsilon))
        weights = np.exp(-epsilon * falls) * (falls + gamma) ** n
        width = max(1, round(0.3 / epsilon))
        masses = np.add.reduceat(weights, falls[::width]) / weights.sum()
        seen = np.bincount(np.array(drawn) // width, minlength=masses.size)
        assert chi_square(seen, masses, count) > 1e-3

    def test_stairs_have_no_end(self):
        """Words of zeros are ever larger balls: where sums of doubles had ended there is mass."""
        before = 60 / 0.5
        for zeros in (2, 4, 8, 16):
            source = Words([0] * zeros + [2**63] * 12)
            found = draw_ball(0.5, 0.3, 2, source)
            assert found > before
            with mpmath.workdps(400):
                assert mp_tail_closed(found + 1) < mpmath.mpf(2) ** (-64 * zeros - 1)
                assert mp_tail_closed(found) > mpmath.mpf(2) ** (-64 * zeros - 1)
            before = found

    @given(words_of)
    @settings(max_examples=60, deadline=None)
    def test_a_number_is_that_of_its_bits(self, word):
        source = Words([word, *[0x9E3779B97F4A7C15] * 12])
        found = draw_ball(0.5, 0.3, 2, source)
        with mpmath.workdps(100):
            level = (mpmath.mpf(word) + mpmath.mpf(0x9E3779B97F4A7C15) / 2**64) / 2**64
            assert mp_tail_closed(found + 1) <= level < mp_tail_closed(found)

    @pytest.mark.parametrize("k", [1, 5])
    @pytest.mark.parametrize("known", [1, 3])
    @pytest.mark.parametrize("last", [0, MOST])
    def test_bits_decide_where_they_differ_from_the_boundary(self, k, known, last):
        bits = 64 * known
        with mpmath.workdps(200):
            start = int(mpmath.floor(mp_tail_closed(k) * mpmath.mpf(2) ** bits))
        words = [(start >> (64 * (known - 1 - j))) & MOST for j in range(known)]
        source = Words([*words, last, *[2**63] * 2])
        assert draw_ball(0.5, 0.3, 2, source) == (k if last == 0 else k - 1)
        assert source.used >= known + 1


def mp_tail_closed(k, epsilon=0.5, gamma=0.3):
    """Return the tail of balls in the plane by derivatives of the geometric series."""
    b, r = mpmath.exp(-mpmath.mpf(epsilon)), mpmath.mpf(gamma)

    def weight(start):
        radius = start + r
        geometric = 1 / (1 - b)
        first, second = b / (1 - b) ** 2, b * (1 + b) / (1 - b) ** 3
        return b**start * (radius**2 * geometric + 2 * radius * first + second)

    return weight(k) / weight(0)


class TestDensity:
    @pytest.mark.parametrize("sensitivity", [Box([0.7]), L1Ball(2, 1.0), Box([0.85, 0.15])])
    @pytest.mark.parametrize("epsilon", [0.8, 3.0])
    def test_is_that_of_the_mixture_of_balls(self, sensitivity, epsilon):
        """The density by its steps in the norm, integrated, against exact volumes."""
        noise = staircase(sensitivity, epsilon=epsilon)
        n, edges = sensitivity.dimension, np.array([-0.4, 0.3, 1.9])
        if n == 1:
            cell = [0.3, 1.9]
            exact = interval_masses(epsilon, noise.gamma, np.array(cell))[0]
            points = [k + noise.gamma for k in range(2)]
            found = integrate.quad(
                lambda t: noise.density([[t * noise.scales[0]]])[0], *cell, points=points
            )[0]
            assert found * noise.scales[0] == pytest.approx(exact, rel=1e-9)
            return
        exact = rectangle_masses(epsilon, noise.gamma, [edges, edges])
        ticks = np.linspace(-0.4, 1.9, 2301)[:-1] + 0.0005  # cells of a thousandth
        table = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 2)
        values = noise.density(table * noise.scales).reshape(2300, 2300) * 1e-6
        found = np.add.reduceat(np.add.reduceat(values, [0, 700], axis=0), [0, 700], axis=1)
        assert found * float(np.prod(noise.scales)) == pytest.approx(exact, rel=2e-3)

    @pytest.mark.parametrize("n", [1, 2])
    @pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
    def test_moments_by_quadrature(self, n, power):
        epsilon, gamma = 0.9, 0.4
        stops = [0.0, *(k + gamma for k in range(60))]
        sums = np.zeros(2)
        for k, (low, high) in enumerate(pairwise(stops)):
            for j, p in enumerate((0.0, power)):
                sums[j] += (
                    math.exp(-epsilon * k)
                    * integrate.quad(lambda r, p=p: r ** (n - 1 + p), low, high)[0]
                )
        assert radial_moment(epsilon, gamma, n, power) == pytest.approx(sums[1] / sums[0])


class TestDistribution:
    @pytest.mark.parametrize("value", [0.0, 0.43])
    @pytest.mark.parametrize("epsilon", [0.6, 2.5])
    def test_one_dimension(self, monkeypatch, epsilon, value):
        monkeypatch.setattr("taut.noise._exact.release._FINENESS", 2)
        noise, source, count = staircase(Box([0.8]), epsilon=epsilon), SeededForExperiments(3), 4000
        grid, scale = noise.grid[0], noise.scales[0]
        drawn = [noise.release([value], source)[0] / grid for _ in range(count)]
        steps = np.arange(-200, 202) - 0.5
        masses = interval_masses(epsilon, noise.gamma, (steps * grid - value) / scale)
        assert masses.sum() > 0.999
        seen = np.histogram(drawn, steps)[0]
        assert chi_square(seen, masses, count) > 1e-3

    @pytest.mark.parametrize(
        "sensitivity", [L1Ball(2, 1.0), pytest.param(Box([0.85, 0.15]), marks=pytest.mark.slow)]
    )
    def test_two_dimensions(self, monkeypatch, sensitivity):
        monkeypatch.setattr("taut.noise._exact.release._FINENESS", 1)
        noise, source, count = staircase(sensitivity, epsilon=1.3), SeededForExperiments(6), 4000
        value = np.array([0.21, -0.6])
        drawn = np.array([noise.release(value, source) for _ in range(count)]) / noise.grid
        steps = np.arange(-11, 12) - 0.5
        edges = [
            (steps * g - v) / s for g, v, s in zip(noise.grid, value, noise.scales, strict=True)
        ]
        masses = rectangle_masses(1.3, noise.gamma, edges)
        assert masses.sum() > 0.85
        seen = np.histogram2d(*drawn.T, bins=[steps, steps])[0]
        assert chi_square(seen, masses, count) > 1e-3
        for axis in (0, 1):
            assert chi_square(seen.sum(axis=axis), masses.sum(axis=axis), count) > 1e-3

    @pytest.mark.parametrize("n", [1, 2])
    def test_error_is_as_predicted(self, n):
        noise, source = staircase(Box([1.0, 0.2][:n]), epsilon=0.8), SeededForExperiments(8)
        value = np.array([0.77, 1e3])[:n]
        for draw in (lambda: noise.release(value, source) - value, lambda: noise.sample(source)):
            errors = np.abs([draw() for _ in range(3000)])
            sums = errors.sum(axis=1)
            assert sums.mean() == pytest.approx(noise.error, abs=4.5 * sums.std() / 3000**0.5)
            spread = errors.std(axis=0) / 3000**0.5
            assert (np.abs(errors.mean(axis=0) - noise.coordinate_errors(1.0)) < 4.5 * spread).all()


class TestLoss:
    @pytest.mark.parametrize("fineness", [0, 3, 10])
    @pytest.mark.parametrize("shift", [1.0, -0.4])
    def test_one_dimension(self, monkeypatch, fineness, shift):
        """Every bin has a likelihood ratio of at most exp(epsilon), far out as near."""
        monkeypatch.setattr("taut.noise._exact.release._FINENESS", fineness)
        epsilon = 0.8
        noise = staircase(Box([1.0]), epsilon=epsilon)
        grid, scale = noise.grid[0], noise.scales[0]
        reach = math.ceil(30 / grid)
        steps = np.arange(-reach, reach) - 0.5
        one, other = (
            interval_masses(epsilon, noise.gamma, (steps * grid - v) / scale)
            for v in (0.1234, 0.1234 + shift)
        )
        assert min(one.min(), other.min()) > 0
        ratios = np.abs(np.log(one / other))
        assert ratios.max() <= epsilon * (1 + 1e-9)
        assert abs(shift) < 1 or ratios.max() > 0.9 * epsilon

    @pytest.mark.slow
    @pytest.mark.parametrize("shift", [(1.0, 0.0), (0.5, -0.5), (0.2, 0.8)])
    def test_two_dimensions(self, monkeypatch, shift):
        monkeypatch.setattr("taut.noise._exact.release._FINENESS", 1)
        epsilon = 0.8
        noise = staircase(L1Ball(2, 1.0), epsilon=epsilon)
        steps = np.arange(-7, 9) - 0.5
        sides = []
        for by in (0.0, 1.0):
            value = np.array([0.1234, 0.777]) + by * np.array(shift)
            edges = [
                (steps * g - v) / s for g, v, s in zip(noise.grid, value, noise.scales, strict=True)
            ]
            sides.append(rectangle_masses(epsilon, noise.gamma, edges))
        ratios = np.abs(np.log(sides[0] / sides[1]))
        assert ratios.max() <= epsilon * (1 + 1e-9)
        assert ratios.max() > 0.8 * epsilon

    def test_neighbours_share_one_support(self):
        """Every output of one neighbour has words that lead to it from the other."""
        noise = staircase(Box([1.0]), epsilon=0.9)
        source, ball = SeededForExperiments(2), 2**20
        radius = draw_ball(0.9, noise.gamma, 1, Words([ball])) + noise.gamma
        for value, other in ((0.1234567, 1.2551440), (1.2551440, 0.1234567)):
            for _ in range(200):
                output = noise.release([value], source)[0]
                place = round((output - other) / (noise.scales[0] * radius) * 2.0**63)
                words = Words([ball, place % 2**64])
                assert noise.release([other], words)[0] == output
                assert output % noise.grid[0] == 0


class TestUnclearDraws:
    @pytest.mark.parametrize("known", [0, 1, 2])
    @pytest.mark.parametrize("last", [0, MOST])
    @pytest.mark.parametrize("step", [2, -40, 700])
    def test_bits_decide_where_they_differ_from_the_boundary(self, known, last, step):
        noise = staircase(Box([1.0]), epsilon=0.5)
        rounding = noise._rounded
        ball = 2**60  # a word that is well within a ball
        radius = draw_ball(0.5, noise.gamma, 1, Words([ball])) + Fraction(noise.gamma)
        reach = radius * rounding._ratio(0)
        point = (step - Fraction(1, 2) - Fraction(0.3) / Fraction(float(noise.grid[0]))) / reach
        assert abs(point) < 1
        bits = 63 + 64 * known
        start = math.floor(point * 2**bits) % 2 ** (bits + 1)
        words = [(start >> (64 * (known - j))) & MOST for j in range(known + 1)]
        source = Words([ball, *words, last, *[2**63] * 3])
        found = noise.release([0.3], source)[0] / noise.grid[0]
        assert source.used == known + 3
        assert found == (step - 1 if last == 0 else step)

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(words_of, min_size=3, max_size=3),
        st.floats(0.01, 8),
        st.floats(0.01, 0.99),
        st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)),
    )
    def test_agrees_with_rational_numbers(self, words, epsilon, gamma, value):
        """With all further bits known, the point in the ball is a rational number."""
        spare = 0x9E3779B97F4A7C15
        units = np.array([1.0, 0.3])
        rounding = RoundedStaircase(units, units, epsilon, gamma)
        source = Words([*words, *[spare] * 30])
        found = rounding.release(np.array(value), source)
        ball = Words([words[0], *[spare] * 20])
        radius = draw_ball(epsilon, gamma, 2, ball) + Fraction(gamma)
        if ball.used > 1:
            return  # sides begin with spare words then
        ends = []
        for word in words[1:]:
            start = word - 2**64 if word >= 2**63 else word
            ends.append(Fraction((start << 64 | spare) * 2 + 1, 2**128))
        point = (ends[0] + ends[1]) / 2, (ends[0] - ends[1]) / 2
        for i in range(2):
            grid = Fraction(float(rounding.grid[i]))
            ideal = Fraction(value[i]) + Fraction(float(units[i])) * radius * point[i]
            assert found[i] == math.floor(ideal / grid + Fraction(1, 2)) * grid


class TestMechanism:
    @settings(max_examples=25, deadline=None)
    @given(
        st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=2),
        st.floats(0.05, 12),
        st.integers(0, 2**32),
    )
    def test_shapes(self, widths, epsilon, seed):
        noise, source = staircase(Box(widths), epsilon=epsilon), SeededForExperiments(seed)
        errors = noise.coordinate_errors(1.0)
        assert (noise.grid <= errors * 2.0**-10).all()
        assert (noise.grid > errors * 2.0**-12).all()
        released = noise.release(np.linspace(-3, 1e4, len(widths)), source)
        assert (released % noise.grid == 0).all()

    def test_values_are_not_cut_where_noise_is_tiny(self):
        noise = staircase(Box([1.0]), epsilon=100.0)
        assert noise.release([2.0**25 + 0.25])[0] == pytest.approx(2.0**25 + 0.25, abs=1e-6)
        # A step without noise to speak of: balls of radius one and more still occur.
        ball = Words([0, 2**10, 0, 2**62, *[2**63] * 4])
        assert noise.release([0.0], ball)[0] == pytest.approx(0.5)

    def test_sums_are_exact(self):
        noise = staircase(Box([1e3, 1.0]), epsilon=5.0)
        stays = noise.grid * [3, -1]
        rows = np.array([[1e3 / 3, 0.5], stays, [-1e3 / 3, -0.5]] * 400)
        total = noise.release_sum(rows, SeededForExperiments(6))
        alone = noise.release_sum(rows[1:2], SeededForExperiments(6))
        assert (total - alone == 399 * stays).all()

    def test_recommended_without_a_caveat(self):
        found = recommend(Box([1.0]), epsilon=2.0, power=1.0)
        option = next(option for option in found.options if option.name == "staircase")
        assert option.guarantee == "pure, epsilon = 2"
