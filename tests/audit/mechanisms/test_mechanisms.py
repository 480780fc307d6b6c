"""Audits of single mechanisms come close to certified epsilons, and never exceed them."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import norm

import taut
from taut.accounting import Adjacency
from taut.audit import (
    MechanismGame,
    allocated_gaussian_game,
    audit_mechanism,
    gaussian_game,
    laplace_game,
    noise_game,
    randomized_response_game,
    sampled_gaussian_game,
)
from taut.noise import (
    Box,
    GaussianProducts,
    Histogram,
    L1Ball,
    SeededForExperiments,
    discrete_laplace_noise,
    gaussian_moments,
    gaussian_with_covariance,
    gaussian_with_scales,
    grid_gaussian,
    grouped_linf,
    integer_laplace,
    laplace_with_scales,
    staircase,
)

TIGHT = [
    (gaussian_game(1.0), 1e-3),
    (gaussian_game(0.5), 1e-2),
    (laplace_game(1.0), 0.0),
    (sampled_gaussian_game(0.7, 0.3, 3), 1e-3),
    (allocated_gaussian_game(0.6, 4), 1e-3),
    (randomized_response_game(0.75), 0.0),
]
NOISE = {
    "gaussian": (gaussian_with_scales(Box([0.5, 1.0]), [0.5, 1.0]), [0.5, 1.0], 1e-1),
    "laplace": (laplace_with_scales(Box([0.5, 1.0]), [1.0, 2.0]), [0.5, 1.0], 0.0),
    "staircase": (staircase(L1Ball(1, 1.0), epsilon=1.0), [1.0], 0.0),
    "grouped": (grouped_linf(Box([0.5, 1.0]), epsilon=1.0), [0.5, 1.0], 0.0),
    "whole": (integer_laplace(Histogram(2), epsilon=1.0), [1.0, 0.0], 0.0),
    "grid": (grid_gaussian(1.0, 1.0, dimension=2, bound=4.0), [0.6, 0.8], 1e-1),
    "axes": (gaussian_with_covariance(Box([1.0, 1.0]), [[2.0, 1.0], [1.0, 2.0]]), [1, -1], 1e-1),
    "moments": (
        gaussian_moments((2, 1), (1.0, 2.0), epsilon=1.0, delta=1e-1),
        [0.6, 0.8, -2.0],
        1e-1,
    ),
    "products": (GaussianProducts(1.0, 2.0, 2.0), ([0.6, 0.8], [2.0]), 1e-1),
}


@pytest.mark.parametrize(("game", "delta"), TIGHT, ids=lambda value: getattr(value, "name", ""))
def test_lower_bound_is_near_the_certified_epsilon(game, delta):
    result = audit_mechanism(game, delta=delta, trials=300_000, seed=0)
    assert result.passed, str(result)
    assert 0.85 * result.claimed_epsilon < result.epsilon_lower <= result.claimed_epsilon


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("game", "delta"), TIGHT, ids=lambda value: getattr(value, "name", ""))
def test_lower_bound_is_within_a_twentieth_at_a_million_releases(game, delta, seed):
    result = audit_mechanism(game, delta=delta, trials=1_000_000, seed=seed)
    assert 0.95 * result.claimed_epsilon <= result.epsilon_lower <= result.claimed_epsilon


@pytest.mark.slow
def test_rounded_staircase_is_within_a_twentieth():
    mechanism, shift, delta = NOISE["staircase"]
    result = audit_mechanism(noise_game(mechanism, shift), delta=delta, trials=100_000, seed=1)
    assert 0.95 * result.claimed_epsilon <= result.epsilon_lower <= result.claimed_epsilon


@pytest.mark.parametrize("name", sorted(NOISE))
def test_shipped_noise_passes(name):
    mechanism, shift, delta = NOISE[name]
    result = audit_mechanism(noise_game(mechanism, shift), delta=delta, trials=4_000, seed=0)
    assert result.passed, str(result)
    assert result.epsilon_lower > 0.5 * result.claimed_epsilon


@pytest.mark.parametrize(
    ("game", "claimed", "delta"),
    [
        (gaussian_game(0.9), taut.gaussian(1.0), 1e-1),
        (laplace_game(0.9), taut.laplace(1.0), 0.0),
        (sampled_gaussian_game(0.7, 0.4, 3), 3 * taut.gaussian(0.7).poisson(0.3), 1e-1),
        (sampled_gaussian_game(0.6, 0.25, 4), taut.gaussian(0.6).allocated(4), 1e-2),
    ],
)
def test_claim_of_less_than_the_truth_is_refuted(game, claimed, delta):
    liar = dataclasses.replace(game, claimed=claimed)
    assert not audit_mechanism(liar, delta=delta, trials=400_000, seed=0).passed


def test_ratios_are_those_of_densities():
    """By densities from another library, at what is released without the record."""
    bits = SeededForExperiments(5)
    ratios = sampled_gaussian_game(0.8, 0.3, 2).log_ratios(False, 50, bits)
    values = 0.8 * SeededForExperiments(5).standard_normal(100).reshape(50, 2)
    mixed = 0.7 * norm.pdf(values, 0, 0.8) + 0.3 * norm.pdf(values, 1, 0.8)
    assert ratios == pytest.approx(np.log(mixed / norm.pdf(values, 0, 0.8)).sum(1))
    ratios = allocated_gaussian_game(0.8, 2).log_ratios(False, 50, SeededForExperiments(5))
    base = norm.pdf(values, 0, 0.8)
    once = norm.pdf(values[:, 0], 1, 0.8) * base[:, 1] + norm.pdf(values[:, 1], 1, 0.8) * base[:, 0]
    assert ratios == pytest.approx(np.log(once / 2 / base.prod(1)))


def test_statistic_of_ones_own_is_valid_and_may_be_poor():
    blind = MechanismGame("blind", taut.gaussian(1.0), lambda _, n, bits: bits.uniform(n))
    result = audit_mechanism(blind, delta=1e-3, trials=2_000, seed=0)
    assert result.passed
    assert result.epsilon_lower < 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: audit_mechanism(gaussian_game(1.0), delta=1e-3, trials=10), "at least 1000"),
        (
            lambda: audit_mechanism(gaussian_game(1.0), delta=1e-3, trials=2**53),
            "trials must be at most 100000000",
        ),
        (
            lambda: audit_mechanism(gaussian_game(1.0), delta=1e-3, trials=2_000, confidence=1.0),
            "confidence must be",
        ),
        (
            lambda: audit_mechanism(
                MechanismGame("none", taut.gaussian(1.0), lambda _, n, __: np.full(n, np.nan)),
                delta=1e-3,
                trials=2_000,
            ),
            "without NaN",
        ),
        (lambda: noise_game(discrete_laplace_noise, [1.0]), "vectors or moments, got function"),
        (lambda: noise_game(NOISE["grid"][0], [1.0, 1.0]), "at most 1.0 long"),
        (lambda: noise_game(NOISE["moments"][0], [1.0, 1.0]), "the row of a record, of shape .3,."),
        (lambda: noise_game(NOISE["products"][0], [1.0]), "a pair, the left and the right row"),
        (
            lambda: noise_game(GaussianProducts(1.0, 1.0, 1.0, Adjacency.REPLACE), ([1.0], [1.0])),
            "for adjacency 'add_remove', got 'replace'",
        ),
        (lambda: noise_game(NOISE["staircase"][0], [2.0]), "member of the sensitivity set"),
        (lambda: noise_game(NOISE["laplace"][0], [0.1]), "member of the sensitivity set"),
        (lambda: gaussian_game(0.0), "sigma must be"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
