"""docs/theory/rounding.md: floating-point noise gives inputs away, noise on a grid does not.

The attack is that of Mironov (2012): sum of value and noise in doubles reaches only some doubles,
and which ones depends on the value. Whoever knows the two candidates tests membership.
"""

from fractions import Fraction

import numpy as np
import pytest
from noise.words import Words
from scipy import special, stats

from taut.noise import (
    Blocks,
    Box,
    FiniteSet,
    L2Ball,
    gaussian_with_covariance,
    optimal_gaussian,
)
from taut.noise._exact.release import STANDARD_NORMAL
from taut.noise._mechanisms.grid_gaussian import grid_gaussian
from taut.noise._random.sources import SeededForExperiments

VALUES = (0.0, 1.0)
SCALE = 10.0
COUNT = 300
UNIT = 2.0**-53
NEARBY = np.arange(-96, 97)


def laplace(value, u):
    """Return value plus Laplace noise by the textbook inverse, u a multiple of 2^-53 below 1/2."""
    return value + SCALE * np.log(2 * u)


def gaussian(value, u):
    """Return value plus normal noise by the textbook inverse."""
    return value + SCALE * special.ndtri(u)


NAIVE = {
    "laplace": (laplace, stats.laplace(scale=SCALE).cdf),
    "gaussian": (gaussian, stats.norm(scale=SCALE).cdf),
}


def attainable(sample, cdf, value, output):
    """Return whether some u near the only possible one makes ``output`` from ``value``."""
    near = np.round(cdf(output - value) / UNIT) + NEARBY
    return bool((sample(value, near[near > 0] * UNIT) == output).any())


def outputs(sample, value, seed):
    """Return outputs below the value, where the doubles u are as fine as they get."""
    u = np.random.default_rng(seed).integers(2**50, 2**52, COUNT) * UNIT
    return sample(value, u)


@pytest.mark.parametrize("name", NAIVE)
def test_naive_noise_tells_neighbours_apart(name):
    sample, cdf = NAIVE[name]
    for value, other in (VALUES, VALUES[::-1]):
        drawn = outputs(sample, value, seed=12)
        assert all(attainable(sample, cdf, value, y) for y in drawn)
        excluded = [y for y in drawn if not attainable(sample, cdf, other, y)]
        # Each of these proves the input; a fair coin would be right about every second one.
        assert len(excluded) > 0.2 * COUNT


@pytest.mark.parametrize("name", NAIVE)
def test_the_attack_finds_every_naive_draw_and_no_other_double(name):
    sample, cdf = NAIVE[name]
    drawn = outputs(sample, VALUES[0], seed=3)
    holes = np.nextafter(drawn, -np.inf)
    assert all(attainable(sample, cdf, VALUES[0], y) for y in drawn)
    assert not all(attainable(sample, cdf, VALUES[0], y) for y in holes)


def grid_attainable(mechanism, value, output):
    """Return whether an integer number of steps leads from ``value`` to ``output``."""
    steps = (output - float(mechanism.grid * mechanism._steps(np.array(value)))) / mechanism.grid
    return steps == np.floor(steps)


def test_every_output_on_the_grid_is_attainable_from_both_neighbours():
    mechanism = grid_gaussian(SCALE, 1.0, generator=SeededForExperiments(seed=4))
    for value in (VALUES[0] + 0.1234567, VALUES[1] + 0.1234567 / 3):
        for _ in range(COUNT):
            output = float(mechanism.release(value))
            assert grid_attainable(mechanism, VALUES[0] + 0.1234567, output)
            assert grid_attainable(mechanism, VALUES[1] + 0.1234567 / 3, output)


def test_low_order_bits_of_the_grid_release_do_not_depend_on_the_input():
    low = []
    for value in (0.1234567, 1.7654321):
        mechanism = grid_gaussian(
            SCALE, 2.0, 20_000, grid=2.0**-6, generator=SeededForExperiments(seed=9)
        )
        steps = mechanism.release(np.full(20_000, value)) / mechanism.grid
        assert (steps == np.floor(steps)).all()
        low.append(np.bincount(steps.astype(np.int64) % 16, minlength=16))
    for counts in low:
        assert stats.chisquare(counts).pvalue > 1e-3
    assert stats.chi2_contingency(np.array(low)).pvalue > 1e-3


TURN = np.array([[0.6, -0.8], [0.8, 0.6]])
ALONG_AXES = {
    "one number": optimal_gaussian(FiniteSet([[1.0]]), epsilon=0.1, delta=1e-6),
    "finite": optimal_gaussian(FiniteSet(np.eye(2)), epsilon=0.1, delta=1e-6),
    "flat": optimal_gaussian(FiniteSet([[1.0, 2.0, 0.5]]), epsilon=0.1, delta=1e-6),
    "box": optimal_gaussian(Box([1.0], basis=[[1.0]]), epsilon=0.1, delta=1e-6),
    "blocks": optimal_gaussian(Blocks([1, 1], [1.0, 2.0], basis=TURN), epsilon=0.1, delta=1e-6),
    "covariance": gaussian_with_covariance(L2Ball(2, 1.0), [[2.0, 1.0], [1.0, 2.0]]),
}


def in_floating_point(noise, value, source):
    """Return what value and noise along a basis make in doubles."""
    return noise.basis @ (noise.basis.T @ value) + noise.sample(source)


def proves_the_value(noise, output):
    """Return whether an output lies outside of the set that every value leads to.

    The set is that of the combinations of multiples of the public grid, in doubles.
    """
    steps = np.rint((noise.basis.T @ output) / noise.grid)
    return not (noise.basis @ (steps * noise.grid) == output).all()


@pytest.mark.parametrize("noise", ALONG_AXES.values(), ids=ALONG_AXES)
def test_releases_along_axes_lie_in_a_set_that_does_not_depend_on_the_value(noise):
    source, size = SeededForExperiments(seed=1), noise.sensitivity.dimension
    for value in (np.zeros(size), np.ones(size), np.full(size, 0.1234567)):
        released = [noise.release(value, source) for _ in range(COUNT)]
        assert not any(proves_the_value(noise, output) for output in released)
        naive = [in_floating_point(noise, value, source) for _ in range(COUNT)]
        assert sum(proves_the_value(noise, output) for output in naive) > 0.9 * COUNT


@pytest.mark.parametrize("noise", ALONG_AXES.values(), ids=ALONG_AXES)
def test_every_output_along_axes_is_attainable_from_a_neighbour(noise):
    """For every output of one value there are words that lead to it from the other."""
    source, size = SeededForExperiments(seed=2), noise.sensitivity.dimension
    values = np.full(size, 0.1), np.full(size, 0.1) + noise.sensitivity.clip(np.ones(size))
    for value, other in (values, values[::-1]):
        for _ in range(20):
            output = noise.release(value, source)
            words = []
            for axis, step, scale in zip(noise.basis.T, noise.grid, noise.scales, strict=True):
                exact = sum(Fraction(a) * Fraction(b) for a, b in zip(axis, other, strict=True))
                place = Fraction(float(np.rint((axis @ output) / step) * step)) - exact
                low, _ = STANDARD_NORMAL.tail_bounds(abs(place) / Fraction(float(scale)), 63)
                words.append(low << 1 | (place > 0))
            assert (noise.release(other, Words(words)) == output).all()


@pytest.mark.slow
def test_a_million_coefficients_lie_on_the_grid():
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(1000, 1000)))[0]
    noise = optimal_gaussian(Box(np.ones(1000), basis=basis), epsilon=0.1, delta=1e-6)
    source = SeededForExperiments(seed=3)
    low = []
    for value in (np.zeros(1000), np.full(1000, 0.1234567)):
        steps = []
        for _ in range(500):
            output = noise.release(value, source)
            assert not proves_the_value(noise, output)
            steps.append(np.rint((noise.basis.T @ output) / noise.grid).astype(np.int64) % 16)
        low.append(np.bincount(np.concatenate(steps), minlength=16))
    assert stats.chi2_contingency(np.array(low)).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("noise", ALONG_AXES.values(), ids=ALONG_AXES)
def test_many_releases_along_axes(noise):
    source, size = SeededForExperiments(seed=4), noise.sensitivity.dimension
    for value in (np.zeros(size), np.ones(size)):
        for _ in range(80_000):
            assert not proves_the_value(noise, noise.release(value, source))
