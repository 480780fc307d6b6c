"""Gaussian noise along a basis, for errors that coordinates make."""

import math

import cvxpy as cp
import numpy as np
import pytest
from scipy.linalg import hadamard, qr

from taut.noise import Blocks, Box, optimal_gaussian, recommend
from taut.noise._optimal.baselines import iid_gaussian, spr_gaussian

TURNED = Box([1.0, 0.01, 0.01, 0.01], basis=hadamard(4) / 2)


def turn(size, columns=None, seed=0):
    table = np.random.default_rng(seed).normal(size=(size, columns or size))
    return qr(table, mode="economic")[0]


def weighed(noise, objective, weights, power):
    errors = noise.coordinate_errors(power) * weights
    if objective == "relative":
        errors = errors / noise.sensitivity.reach() ** 2
    return errors.max() if objective == "worst" else errors.sum()


def least_along_axes(widths, basis, weights, objective):
    """Solve for the variances along the axes by another method: a conic program in 1 / x."""
    inverse = cp.Variable(widths.size, pos=True)
    variances = (basis**2) @ cp.inv_pos(inverse)
    errors = cp.multiply(weights, variances)
    cost = cp.max(errors) if objective == "worst" else cp.sum(errors)
    problem = cp.Problem(cp.Minimize(cost), [widths**2 @ inverse <= 1])
    problem.solve(solver=cp.CLARABEL)
    return problem.value


AIMS = [
    ("worst", None, 2.0),
    ("worst", [9.0, 1.0, 1.0, 4.0], 2.0),
    ("relative", None, 2.0),
    ("relative", [9.0, 1.0, 1.0, 4.0], 2.0),
    ("total", [100.0, 1.0, 1.0, 1.0], 2.0),
    ("total", None, 1.0),
    ("total", [1.0, 2.0, 3.0, 4.0], 5.0),
]


@pytest.mark.parametrize(("objective", "weights", "power"), AIMS)
@pytest.mark.parametrize(
    "sensitivity",
    [
        TURNED,
        Box([3.0, 1.0, 0.2, 0.1], basis=turn(4), l2=2.5),
        Blocks([1, 3], l2=[2.0, 0.5], basis=turn(4, 1)),
        Blocks([2, 2], l2=[2.0, 0.5], linf=[1.5, math.inf], basis=turn(4)),
    ],
    ids=["hadamard", "capped", "complement", "entries"],
)
def test_error_is_that_of_coordinates_and_never_above_plain_noise(
    sensitivity, objective, weights, power
):
    noise = optimal_gaussian(
        sensitivity, multiplier=1.3, objective=objective, weights=weights, power=power
    )
    scale = np.ones(4) if weights is None else np.array(weights)
    found = weighed(noise, objective, scale, power)
    assert noise.error == pytest.approx(found, rel=1e-9)
    plain = optimal_gaussian(sensitivity, multiplier=1.3)
    assert found <= weighed(plain, objective, scale, power) * (1 + 1e-9)
    assert noise.certificate.lower_bound <= found
    assert noise.certificate.radius <= 1 / 1.3


@pytest.mark.parametrize("objective", ["worst", "total"])
@pytest.mark.parametrize("seed", range(3))
def test_least_along_the_axes(objective, seed):
    rng = np.random.default_rng(seed)
    widths, weights, basis = rng.uniform(0.1, 3, 5), rng.uniform(0.2, 5, 5), turn(5, seed=seed)
    noise = optimal_gaussian(
        Box(widths, basis=basis), multiplier=1.0, objective=objective, weights=weights
    )
    best = least_along_axes(widths, basis, weights, objective)
    assert noise.error == pytest.approx(best, rel=1e-3 if objective == "worst" else 1e-6)
    assert noise.certificate.lower_bound <= best * (1 + 1e-6)
    assert noise.certificate.gap < 1e-3


def test_the_mixed_axis_of_a_hadamard_basis():
    """Noise of one size has 1.0003 in every coordinate; the plain noise .2652."""
    noise = optimal_gaussian(TURNED, multiplier=1.0, objective="worst")
    assert noise.coordinate_errors().max() == pytest.approx(0.265225)
    for objective in ("worst", "relative"):
        found = recommend(TURNED, 1.0, 1e-6, objective=objective)
        by_name = {option.name: option.error for option in found.options}
        assert by_name["Gaussian"] <= by_name["Gaussian, least total"] * (1 + 1e-9)
        assert found.best.error <= by_name["Gaussian, least total"]


def test_no_claim_about_other_powers():
    noise = optimal_gaussian(TURNED, multiplier=1.0, power=1.0)
    assert noise.certificate.lower_bound == 0
    assert "nothing is claimed" in noise.certificate.statement


def test_weights_of_blocks_count_along_the_blocks():
    turned = Blocks([1, 3], l2=[2.0, 0.5], basis=turn(4))
    straight = Blocks([1, 3], l2=[2.0, 0.5])
    one, other = (
        optimal_gaussian(s, multiplier=1.0, weights=[5.0, 1.0]) for s in (turned, straight)
    )
    assert one.scales == pytest.approx(other.scales)
    assert one.certificate.gap < 1e-9


def test_baselines_stay_along_the_axes():
    budget = {"epsilon": 1.0, "delta": 1e-6}
    assert np.ptp(iid_gaussian(TURNED, **budget).scales) == 0
    shares = spr_gaussian(TURNED, **budget).scales / TURNED.widths
    assert shares == pytest.approx(np.full(4, shares[0]))
