"""Noise with a given covariance: what it hides, against all corners and random members."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import UnsoundConfiguration
from taut.noise import (
    Blocks,
    Box,
    FiniteSet,
    L1Ball,
    L2Ball,
    LInfBall,
    LpIntersection,
    Polytope,
    SeededForExperiments,
    gaussian_with_covariance,
    gaussian_with_scales,
    optimal_gaussian,
)


def covariance_of(seed, size=3):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(size, size)) * 10 ** rng.uniform(-1, 1, size)
    return table @ table.T + 1e-3 * np.eye(size)


def length(covariance, vectors):
    return math.sqrt(np.einsum("ij,jk,ik->i", vectors, np.linalg.inv(covariance), vectors).max())


EXACT = [
    (FiniteSet([[1.0, 2.0, 0.0], [0.0, -1.0, 1.0]]), [[1.0, 2.0, 0.0], [0.0, -1.0, 1.0]]),
    (Polytope([[1.0, 2.0, 0.0], [0.0, -1.0, 1.0]]), [[1.0, 2.0, 0.0], [0.0, -1.0, 1.0]]),
    (L1Ball(3, 2.0), 2 * np.eye(3)),
]
AROUND = [
    Box([1.0, 2.0, 0.5]),
    Box([1.0, 2.0, 0.5], l2=1.5),
    LInfBall(3, 0.7),
    Blocks([2, 1], l2=[1.0, 0.5]),
    LpIntersection(3, {1: 1.5, 2: 1.0}),
]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(EXACT))
def test_exact_where_corners_decide(seed, case):
    sensitivity, corners = case
    covariance = covariance_of(seed)
    noise = gaussian_with_covariance(sensitivity, covariance)
    assert 1 / noise.multiplier == pytest.approx(length(covariance, np.array(corners)), rel=1e-6)
    assert noise.covariance() == pytest.approx(covariance, rel=1e-9, abs=1e-12)
    assert noise.error == pytest.approx(np.trace(covariance))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_ball(seed):
    covariance = covariance_of(seed)
    noise = gaussian_with_covariance(L2Ball(3, 2.0), covariance)
    expected = 2 / math.sqrt(np.linalg.eigvalsh(covariance)[0])
    assert 1 / noise.multiplier == pytest.approx(expected, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(AROUND))
def test_no_member_is_longer_than_the_bound(seed, sensitivity):
    covariance = covariance_of(seed)
    noise = gaussian_with_covariance(sensitivity, covariance)
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=3)))
    rows = np.concatenate([signs, np.random.default_rng(seed).normal(size=(200, 3)), np.eye(3)])
    members = rows / sensitivity.gauges(rows)[:, None]
    assert length(covariance, members) <= 1 / noise.multiplier * (1 + 1e-9)
    assert "upper bound" in noise.certificate.statement


def test_a_diagonal_is_what_scales_say():
    box, scales = Box([1.0, 3.0]), np.array([2.0, 4.0])
    one, other = (
        gaussian_with_covariance(box, np.diag(scales**2)),
        gaussian_with_scales(box, scales),
    )
    assert one.multiplier == pytest.approx(other.multiplier, rel=1e-9)


def test_optimal_noise_keeps_its_multiplier():
    vectors = FiniteSet(np.random.default_rng(3).normal(size=(6, 4)))
    best = optimal_gaussian(vectors, multiplier=1.7)
    again = gaussian_with_covariance(vectors, best.covariance())
    assert again.multiplier == pytest.approx(1.7, rel=1e-6)


def test_draws_have_the_covariance():
    covariance = covariance_of(1)
    noise = gaussian_with_covariance(L1Ball(3, 1.0), covariance)
    source = SeededForExperiments(0)
    draws = np.array([noise.sample(source) for _ in range(20_000)])
    assert np.cov(draws.T) == pytest.approx(covariance, abs=0.05 * np.trace(covariance))


@pytest.mark.parametrize(
    ("covariance", "error", "message"),
    [
        ([[1.0]], ValueError, "2 rows and columns"),
        ([[1.0, math.nan], [0.0, 1.0]], ValueError, "covariance must be finite"),
        ([[1.0, 0.5], [0.4, 1.0]], ValueError, "covariance must be symmetric"),
        ([[1.0, 1.0], [1.0, 1.0]], UnsoundConfiguration, "positive definite"),
        ([[1.0, 0.0], [0.0, -1.0]], UnsoundConfiguration, "positive definite"),
    ],
)
def test_bad_input(covariance, error, message):
    with pytest.raises(error, match=message):
        gaussian_with_covariance(L2Ball(2, 1.0), covariance)
