"""Values that are known as integers keep every digit until noise is added."""

from fractions import Fraction

import numpy as np
import pytest

from taut.audit import replay
from taut.errors import UnsoundConfiguration
from taut.noise import (
    Box,
    Histogram,
    Product,
    SeededForExperiments,
    grouped_linf,
    integer_laplace,
    optimal_gaussian,
    optimal_laplace,
    staircase,
)
from taut.noise._exact.grid_values import MOST_STEPS, exact_integers

BOX = Box([0.5, 3.0])
MECHANISMS = [
    optimal_laplace(BOX, epsilon=1.0),
    grouped_linf(BOX, epsilon=1.0),
    optimal_gaussian(BOX, multiplier=1.0),
    staircase(BOX, epsilon=1.0),
    integer_laplace(Histogram(2), epsilon=1.0),
    optimal_laplace(Product(Box([1.0]), Histogram(1)), epsilon=1.0),
]


@pytest.mark.parametrize("noise", MECHANISMS, ids=lambda noise: type(noise).__name__)
def test_values_within_doubles_are_released_as_such(noise):
    values, units = [12, -7], [0.25, 2.0]
    as_doubles = noise.release(np.multiply(values, units), SeededForExperiments(seed=4))
    as_integers = noise.release_integers(values, units, SeededForExperiments(seed=4))
    assert np.array_equal(as_integers, as_doubles)


@pytest.mark.parametrize("bits", [0, 60, 200])
def test_integers_of_any_size_are_exact(bits):
    units = [(1 << bits) + 1, -3]
    found = exact_integers(units, [-bits, 5], np.array([0, -2], dtype=np.intc))
    for i, exact in enumerate([Fraction(units[0], 1 << bits), Fraction(-3 * 32 * 4)]):
        assert found.exact(i) == exact
        assert found.whole[i] + found.rest[i] == pytest.approx(float(exact))
        assert abs(found.rest[i]) <= 1


def test_huge_integers_are_cut():
    found = exact_integers([1 << 200, -(1 << 200)], [0, 0], np.array([0, 0], dtype=np.intc))
    assert found.whole.tolist() == [MOST_STEPS, -MOST_STEPS]
    assert found.exact(0) == MOST_STEPS


def test_a_replay_sees_the_value():
    noise = MECHANISMS[0]

    def program(data):
        return noise.release_integers([sum(data), 0], [2.0**-60, 1.0])

    half = 1 << 59
    assert replay(program, [half, half], [half]).passed
    assert not replay(program, [half, 3 * half], [half]).passed


@pytest.mark.parametrize(
    ("integers", "units", "error", "match"),
    [
        ([1], [1.0, 1.0], ValueError, "as many as coordinates, 2, got 1"),
        ([1, 2], [1.0], ValueError, "units must be 2 numbers"),
        ([1, 2], [1.0, 3.0], ValueError, "powers of two, got 3.0"),
        ([1, 2], [1.0, 0.0], ValueError, "powers of two, got 0.0"),
        ([1, 2.5], [1.0, 1.0], TypeError, "integer"),
    ],
)
def test_what_is_refused(integers, units, error, match):
    with pytest.raises(error, match=match):
        MECHANISMS[0].release_integers(integers, units)


def test_noise_along_a_basis_is_refused():
    turned = np.array([[0.6, 0.8], [-0.8, 0.6]])
    noise = optimal_gaussian(Box([1.0, 2.0], basis=turned), multiplier=1.0)
    with pytest.raises(UnsoundConfiguration, match="has a basis"):
        noise.release_integers([1, 2], [1.0, 1.0])
