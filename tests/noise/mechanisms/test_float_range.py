"""Whatever leaves floating point is refused in words, without warnings and tracebacks."""

import warnings

import numpy as np
import pytest

from taut.errors import InfeasibleBudget
from taut.noise import (
    Blocks,
    Box,
    FiniteSet,
    L1Ball,
    L2Ball,
    LInfBall,
    gaussian_with_scales,
    grouped_linf,
    laplace_with_scales,
    optimal_gaussian,
    optimal_laplace,
    recommend,
    staircase,
)
from taut.noise.geometry import private_second_moment

MAKERS = {
    "gaussian": lambda s: optimal_gaussian(s, epsilon=1.0, delta=1e-6),
    "worst": lambda s: optimal_gaussian(s, epsilon=1.0, delta=1e-6, objective="worst"),
    "relative": lambda s: optimal_gaussian(s, epsilon=1.0, delta=1e-6, objective="relative"),
    "laplace": lambda s: optimal_laplace(s, epsilon=1.0),
    "calibrated": lambda s: optimal_laplace(s, epsilon=1.0, delta=1e-6),
    "staircase": lambda s: staircase(s, epsilon=1.0),
    "recommend": lambda s: recommend(s, 1.0, 1e-6),
    "scales": lambda s: gaussian_with_scales(s, s.reach()),
    "laplace scales": lambda s: laplace_with_scales(s, s.reach()),
}


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-160, 1e145, 1e155, 1e200, 1e300])
@pytest.mark.parametrize("maker", MAKERS)
def test_sizes_beyond_squares(maker, size):
    for sensitivity in (Box([size, 2 * size]), L2Ball(2, size), FiniteSet([[size, 0], [0, size]])):
        with pytest.raises(ValueError, match=r"l2 norm between .*count in other units"):
            MAKERS[maker](sensitivity)


@pytest.mark.parametrize("size", [1e-60, pytest.param(1e60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("maker", MAKERS)
def test_sizes_within_work(maker, size):
    for make in (lambda s: Box([s, 2 * s]), lambda s: L1Ball(2, s), lambda s: LInfBall(2, s)):
        MAKERS[maker](make(size))
    if maker not in ("scales", "laplace scales"):
        MAKERS[maker](Blocks([1, 1], [size, 2 * size]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: optimal_laplace(Box([1.0, 2.0]), epsilon=1e-300),
        lambda: optimal_laplace(Box([1.0, 2.0]), epsilon=1e300),
        lambda: optimal_laplace(Box([1.0, 2.0]), epsilon=1e-200, delta=1e-6),
        lambda: optimal_laplace(L1Ball(3, 0.1), epsilon=2.2e-308, power=1 / 3),
        lambda: grouped_linf(Box([1.0, 2.0]), epsilon=1e-300),
        lambda: optimal_gaussian(Box([1.0, 2.0]), multiplier=1e300),
        lambda: optimal_gaussian(Box([1.0, 2.0]), multiplier=1e-300),
        lambda: optimal_gaussian(Box([1e3, 2e3]), multiplier=1.0, power=170.0),
        lambda: optimal_laplace(Box([1.0, 2.0]), epsilon=1.0, power=200.0),
        lambda: staircase(Box([1.0, 2.0]), epsilon=1.0, power=200.0),
    ],
)
def test_budgets_and_powers_out_of_range(make):
    with pytest.raises(InfeasibleBudget, match="count in other units"):
        make()


def test_power_has_a_bound():
    for make in (optimal_gaussian, optimal_laplace):
        with pytest.raises(ValueError, match="power must be at most 200"):
            make(Box([1.0]), epsilon=1.0, delta=1e-6, power=201.0)


@pytest.mark.parametrize("power", [1e-3, 170.0, 200.0])
@pytest.mark.parametrize("basis", [None, np.eye(2)[::-1]])
def test_high_powers_leave_out_what_has_no_error(power, basis):
    found = recommend(Box([0.05, 0.1], basis=basis), 1.0, 1e-6, power=power)
    assert all(np.isfinite(option.error) for option in found.options)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-160])
def test_recommend_for_no_budget(epsilon):
    with pytest.raises(ValueError, match="no mechanism applies"):
        recommend(Box([1.0, 2.0]), epsilon)


@pytest.mark.parametrize("clip", [1e200, 1e80, 1e-200])
def test_second_moment(clip):
    with pytest.raises(ValueError, match=r"clip must lie between .*other units"):
        private_second_moment([[1.0, 2.0]], clip, 1.0, 1e-6)


@pytest.mark.parametrize("clip", [1e33, 1e-33])
def test_second_moment_within(clip):
    moment = private_second_moment([[clip, 2 * clip]], clip, 1.0, 1e-6)
    assert np.isfinite(moment.matrix).all()


def test_something_else_than_a_set():
    for make in (optimal_gaussian, optimal_laplace, grouped_linf):
        with pytest.raises(ValueError, match=r"such as Box\(widths\), got one of the type list"):
            make([1.0, 2.0], epsilon=1.0)
