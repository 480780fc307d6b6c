"""Zhu (2023), Remark 7.2.8: the conversion of the Gaussian sparse vector misses a factor."""

import math

import pytest

import taut
from taut.adaptive import ScalarNoise, SparseVectorDesign
from taut.adaptive._sparse_vector.bounds import log_count


def converted(rho, log_terms, factor):
    return rho + math.sqrt(factor * rho * log_terms)


def test_the_printed_conversion_is_below_the_truth():
    # With one sequence of answers it is the conversion of a curve rho a, which normal noise has.
    rho, delta = 0.02, 1e-6
    truth = taut.gaussian(sigma=1 / math.sqrt(2 * rho)).epsilon_bounds(delta).lower
    assert converted(rho, math.log(1 / delta), 2) < truth < converted(rho, math.log(1 / delta), 4)


def test_printed_and_right_numbers():
    s1, s2, c, k, delta = 50.0, 100.0, 20, 1000, 1e-6
    rho = 1 / (2 * s1**2) + 2 * c / s2**2
    printed = converted(rho, math.log(1 / delta) + math.log(c * math.comb(k, c)), 2)
    right = converted(rho, math.log(1 / delta) + log_count(k, c), 4)
    assert printed == pytest.approx(0.976, abs=2e-3)
    assert right == pytest.approx(1.360, abs=2e-3)
    noises = ScalarNoise("gaussian", s1), ScalarNoise("gaussian", s2)
    published = SparseVectorDesign(*noises, 1.0, c, "replace", k, method="thesis")
    assert printed < published.loss.epsilon(delta) < right


def test_the_printed_count_is_too_small_for_one_answer():
    assert 1 * math.comb(10, 1) < math.exp(log_count(10, 1))
    assert 4 * math.comb(5, 4) < math.exp(log_count(5, 4))
