"""docs/theory/rounding.md: floating-point noise gives inputs away, noise on a grid does not.

The attack is that of Mironov (2012): sum of value and noise in doubles reaches only some doubles,
and which ones depends on the value. Whoever knows the two candidates tests membership.
"""

import numpy as np
import pytest
from scipy import special, stats

from taut.noise._rounded import grid_gaussian
from taut.noise._secure import SeededForExperiments

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
