"""Releases on a grid: the sensitivity after rounding, the loss, and what is refused."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import taut
from taut.noise._mechanisms.grid_gaussian import GridGaussian, grid_gaussian, largest_squared_steps
from taut.noise._random.sources import SeededForExperiments


def worst_squared_steps(ratio, dimension):
    """Try all step vectors that a distance of ``ratio`` can produce."""
    top = math.ceil(ratio) + 1
    worst = 0
    for steps in itertools.combinations_with_replacement(range(top + 1), dimension):
        if any(steps) and sum(max(k - 1, 0) ** 2 for k in steps) < ratio**2:
            worst = max(worst, sum(k * k for k in steps))
    return worst


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "ratio", [Fraction(1, 10), Fraction(1), Fraction(3, 2), 2, 3, Fraction(17, 4)]
)
def test_steps_against_all_vectors(ratio, dimension):
    ratio = Fraction(ratio)
    bound, worst = largest_squared_steps(ratio, dimension), worst_squared_steps(ratio, dimension)
    assert worst <= bound <= (float(ratio) + math.sqrt(dimension)) ** 2 + 1e-9
    if dimension == 1:
        assert bound == worst == math.ceil(ratio) ** 2


def test_steps_are_tight_where_levels_are_even():
    for dimension in (2, 5, 100):
        assert largest_squared_steps(Fraction(1), dimension) == dimension
        # Just above level one everywhere: all coordinates move by two.
        assert largest_squared_steps(Fraction(dimension + 1), dimension) >= 4 * dimension


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_rounded_neighbours_stay_within_the_steps(data):
    dimension = data.draw(st.integers(1, 4))
    grid = 2.0 ** data.draw(st.integers(-3, 3))
    numbers = st.lists(
        st.one_of(st.floats(-50, 50), st.integers(-100, 100).map(lambda k: k / 4)),
        min_size=dimension,
        max_size=dimension,
    )
    a, b = np.array(data.draw(numbers)), np.array(data.draw(numbers))
    squared = sum((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(a, b, strict=True))
    if squared < Fraction(1, 10**20):
        return
    sensitivity = math.nextafter(math.sqrt(squared), math.inf)
    mechanism = grid_gaussian(1.0 * grid, sensitivity, dimension, grid=grid)
    moved = mechanism._steps(a) - mechanism._steps(b)
    assert int((moved**2).sum()) <= mechanism.squared_steps


def test_halves_go_up_so_that_shifts_stay_shifts():
    mechanism = grid_gaussian(1.0, 1.0, 6, grid=1.0)
    values = np.array([-1.5, -0.5, 0.5, 1.5, 0.49999999999999994, -1e-300])
    assert mechanism._steps(values).tolist() == [-1, 0, 1, 2, 0, 0]
    # Half to even would move 0.5 and 1.5, one apart, to 0 and 2.
    assert np.diff(mechanism._steps(values)[2:4]) == [1]


def brute_delta(scale, shift, epsilon):
    """Return delta(epsilon) of discrete Gaussian noise on a shifted vector, by summation."""
    reach = math.ceil(12 * scale + max(shift)) + 1
    x = np.arange(-reach, reach + 1)
    p, loss = np.ones(1), np.zeros(1)
    for k in shift:
        mass = np.exp(-(x**2) / (2 * scale**2))
        p = np.outer(p, mass / mass.sum()).ravel()
        loss = np.add.outer(loss, (k * k - 2 * k * x) / (2 * scale**2)).ravel()
    return float(-(p * np.expm1(np.minimum(epsilon - loss, 0.0))).sum())


@pytest.mark.parametrize(
    ("sigma", "sensitivity", "grid"), [(2.0, 1.0, 1.0), (1.5, 1.3, 0.5), (3.0, 2.2, 1.0)]
)
def test_loss_bounds_every_shift_in_two_dimensions(sigma, sensitivity, grid):
    mechanism = grid_gaussian(sigma, sensitivity, 2, grid=grid)
    ratio = Fraction(sensitivity) / Fraction(grid)
    top = math.ceil(ratio) + 1
    for epsilon in (0.2, 1.0, 2.5):
        claim = mechanism.loss.delta(epsilon)
        for steps in itertools.product(range(top + 1), repeat=2):
            if any(steps) and sum(max(k - 1, 0) ** 2 for k in steps) < ratio**2:
                assert brute_delta(sigma / grid, steps, epsilon) <= claim


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_few_steps_are_exact(steps):
    mechanism = grid_gaussian(2.0, math.sqrt(steps) * (1 + 1e-12), 3, grid=1, on_grid=True)
    assert mechanism.squared_steps == steps
    for epsilon in (0.5, 1.5):
        exact = brute_delta(2.0, (1,) * steps, epsilon)
        assert mechanism.loss.delta(epsilon) == pytest.approx(exact, rel=1e-6)


def test_one_dimension_is_exact_and_free_of_growth():
    mechanism = grid_gaussian(4.0, 1.0)
    assert mechanism.squared_steps * mechanism.grid**2 == 1.0
    assert mechanism.loss.epsilon(1e-6) == pytest.approx(taut.gaussian(4.0).epsilon(1e-6), rel=1e-6)
    odd = grid_gaussian(4.0, 1.3, grid=0.25)
    expected = taut.discrete_gaussian(16.0, 6)
    assert odd.loss.epsilon(1e-6) == expected.epsilon(1e-6)


def test_many_dimensions_pay_for_concentration_and_little_for_rounding():
    mechanism = grid_gaussian(4.0, 1.0, 1000)
    growth = mechanism.squared_steps * mechanism.grid**2
    assert 1.0 <= growth <= 1.002
    concentrated = taut.from_rdp(lambda order: order / 32)
    ratio = mechanism.loss.epsilon(1e-6) / concentrated.epsilon(1e-6)
    assert 1.0 <= ratio <= 1.002
    assert mechanism.loss.rdp(5.0) >= 5 * growth / 32


def test_huge_scales_fall_back_to_concentration():
    mechanism = grid_gaussian(1.0, 1.0, grid=2.0**-20)
    assert mechanism.loss.rdp(4.0) == pytest.approx(2.0)
    assert mechanism.loss.epsilon(1e-5) >= taut.gaussian(1.0).epsilon(1e-5)


def test_nothing_moves_costs_nothing():
    mechanism = grid_gaussian(1.0, 0.5, 2, grid=1, on_grid=True)
    assert mechanism.loss.epsilon(0.0) == 0.0


def test_adjacency_is_that_of_the_sensitivity():
    assert str(grid_gaussian(1.0, 1.0, adjacency="replace").loss.adjacency) == "replace"
    assert str(grid_gaussian(1.0, 1.0, 2, adjacency="replace").loss.adjacency) == "replace"
    with pytest.raises(ValueError, match="adjacency"):
        grid_gaussian(1.0, 1.0, adjacency="nearby")


def test_release_is_value_plus_noise_on_the_grid():
    value = np.linspace(-3, 3, 20_000)
    mechanism = grid_gaussian(
        2.0, 1.0, value.size, grid=0.25, generator=SeededForExperiments(seed=3)
    )
    released = mechanism.release(value)
    assert released.shape == value.shape
    assert (released % 0.25 == 0).all()
    noise = ((released - np.floor(value * 4 + 0.5) / 4) * 4).astype(np.int64)
    x = np.arange(-100, 101)
    mass = np.exp(-(x**2) / (2 * 8.0**2))
    inner = np.abs(x) <= 20
    expected = np.append(mass[inner], mass[~inner].sum()) / mass.sum() * noise.size
    observed = np.bincount(noise + 100, minlength=x.size)
    counts = np.append(observed[inner], observed[~inner].sum())
    assert stats.chisquare(counts, expected).pvalue > 1e-3
    assert ((released - value) ** 2).sum() == pytest.approx(
        mechanism.expected_squared_error, rel=0.05
    )


def test_values_are_clipped():
    mechanism = grid_gaussian(
        2.0**-20, 1.0, 3, grid=0.5, bound=2.0, generator=SeededForExperiments(seed=3)
    )
    assert mechanism.release([1e300, -7, 1]).tolist() == [2.0, -2.0, 1.0]
    assert mechanism.release(np.array([1, 2, 3], dtype=np.int8)).tolist() == [1.0, 2.0, 2.0]


def test_a_number_is_a_vector_of_one():
    mechanism = grid_gaussian(2.0**-20, 1.0, grid=1.0)
    assert mechanism.release(3.2).shape == ()
    assert float(mechanism.release(3.2)) == 3.0
    assert mechanism.release([3.2]).tolist() == [3.0]


class Refusing(SeededForExperiments):
    """Fails when noise is drawn."""

    def bytes(self, n):
        raise AssertionError("noise was drawn")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0, math.nan], "finite"),
        ([1.0, math.inf], "finite"),
        ([1.0], "shape"),
        ([[1.0, 2.0]], "shape"),
        (1.0, "shape"),
        (["a", "b"], "must be real numbers"),
        ([1j, 2], "must be real numbers"),
        ([True, False], "must be real numbers"),
        (np.ma.masked_array([1.0, 2.0], mask=[False, True]), "masked"),
        ([10**400, 1], "64 bits"),
        (np.array([1, 2], dtype=np.longdouble), "64 bits"),
        ([2**53 + 1, 0], "2\\^53"),
        (np.array([-(2**63), 0]), "2\\^53"),
    ],
)
def test_bad_values_are_refused_before_noise_is_drawn(value, message):
    mechanism = grid_gaussian(1.0, 1.0, 2, generator=Refusing(1))
    with pytest.raises((TypeError, ValueError), match=message):
        mechanism.release(value)


def test_values_off_a_declared_grid_are_refused():
    mechanism = grid_gaussian(1.0, 1.0, grid=1, on_grid=True, generator=Refusing(1))
    with pytest.raises(ValueError, match="on the grid"):
        mechanism.release(1.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": math.nan}, "sigma"),
        ({"sensitivity": -1.0}, "sensitivity"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 2.0}, "dimension"),
        ({"grid": 0.1}, "power of two"),
        ({"grid": math.inf}, "grid"),
        ({"grid": 2.0**-1000}, "power of two"),
        ({"grid": 1.0, "bound": 2.0**53}, "bound"),
        ({"grid": 1.0, "bound": 0.1}, "bound"),
        ({"grid": 1.0, "bound": 1.5, "on_grid": True}, "multiple"),
        ({"grid": 2.0**-60}, "grid steps"),
        ({"grid": 2.0**60}, "grid steps"),
        ({"sensitivity": 1e101, "grid": 1.0}, "sensitivity / sigma"),
    ],
)
def test_bad_parameters(arguments, message):
    good = {"sigma": 1.0, "sensitivity": 1.0, "dimension": 2}
    with pytest.raises((TypeError, ValueError), match=message):
        grid_gaussian(**(good | arguments))


def test_mechanisms_are_values():
    assert grid_gaussian(1.0, 1.0) == grid_gaussian(1.0, 1.0, generator=SeededForExperiments(1))
    assert isinstance(grid_gaussian(1.0, 1.0), GridGaussian)


@pytest.mark.parametrize("value", [20, 20.0, np.int64(20), [20]])
def test_plain_number_will_do_for_one_dimension(value):
    noise = grid_gaussian(sigma=0.01, sensitivity=1, grid=1, on_grid=True)
    assert float(noise.release(value).reshape(())) == pytest.approx(20, abs=1)
