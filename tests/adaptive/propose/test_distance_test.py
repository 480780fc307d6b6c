"""The noisy distance: thresholds, tails, and the tight loss of what stands behind it."""

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.tested_releases import THRESHOLDS, passing

import taut
from taut.adaptive import DistanceTest, Secret
from taut.noise import SeededForExperiments

PARAMETERS = [(1.0, 1e-3), (0.1, 0.01), (0.5, 1e-6), (3.0, 0.2), (0.05, 0.4), (20.0, 1e-9)]


@pytest.mark.parametrize(("epsilon", "delta"), PARAMETERS)
def test_threshold_is_the_least_that_keeps_delta(epsilon, delta):
    test = DistanceTest(epsilon, delta, "replace")
    with mpmath.workdps(40):
        q = mpmath.exp(-mpmath.mpf(epsilon))
        exact = [q**at / (1 + q) for at in (test.threshold - 1, test.threshold)]
        assert exact[1] <= mpmath.mpf(test.failure) <= delta
        assert test.failure == pytest.approx(float(exact[1]), rel=1e-12)
        assert exact[0] > delta or test.threshold == 1


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 400), st.floats(1e-290, 0.49))
def test_failure_is_above_the_truth_and_below_delta(epsilon, delta):
    test = DistanceTest(epsilon, delta, "add_remove")
    with mpmath.workdps(40):
        q = mpmath.exp(-mpmath.mpf(epsilon))
        assert q**test.threshold / (1 + q) <= mpmath.mpf(test.failure)
    assert test.failure <= max(delta, 1e-300)
    assert test.loss.epsilon(delta=delta) <= epsilon


@pytest.mark.parametrize(("epsilon", "delta"), PARAMETERS)
def test_pass_probability_sums_the_noise(epsilon, delta):
    test = DistanceTest(epsilon, delta, "replace")
    for distance in (0, 1, test.threshold - 1, test.threshold, test.threshold + 5):
        expected = passing(epsilon, test.threshold, distance)
        assert test.pass_probability(distance) == pytest.approx(expected, rel=1e-9)
    assert test.pass_probability(10**18) >= 1 - 1e-17


@pytest.mark.parametrize(("epsilon", "delta"), PARAMETERS)
def test_loss_is_the_larger_of_both_modes_and_not_more(epsilon, delta):
    """Neighbours with one answer differ in the bit alone, others both have distance zero."""
    test = DistanceTest(epsilon, delta, "replace")
    bits = [test.pass_probability(d) for d in range(test.threshold + 4)]
    wrong = bits[0]
    for t in THRESHOLDS:
        pairs = [*pairwise(bits), *pairwise(bits[::-1])]
        same = max(max(p - t * q, 0.0) + max(1 - p - t * (1 - q), 0.0) for p, q in pairs)
        other = wrong + (1 - wrong) * max(1 - t, 0.0)
        claimed = test.loss.profile(float(t))
        assert claimed >= max(same, other) * (1 - 1e-12)
        assert claimed == pytest.approx(max(same, other), rel=1e-6, abs=1e-15)


def test_draws_pass_as_often_as_is_said():
    test = DistanceTest(0.7, 0.05, "replace")
    source = SeededForExperiments(3)
    for distance in (0, 2, 4):
        runs = 1_000
        found = sum(test.passes(Secret(distance), source) for _ in range(runs)) / runs
        p = test.pass_probability(distance)
        assert abs(found - p) < 5 * math.sqrt(p * (1 - p) / runs)


class OddInteger(int):
    def __int__(self):
        raise RuntimeError("of record 17")


class OddFraction(Fraction):
    def __float__(self):
        raise RuntimeError("of record 17")


@pytest.mark.parametrize(
    ("answer", "like"),
    [
        (-3, 0),
        (2.5, 0),
        (math.nan, 0),
        ("far", 0),
        (None, 0),
        (True, 0),
        (np.int64(7), 7),
        (10**400, 10**9),
        (math.inf, 10**9),
        (Fraction(7, 1), 0),
        (Fraction(10**400, 3), 0),
        (OddInteger(7), 0),
        (OddFraction(7), 0),
    ],
)
def test_what_is_no_distance_counts_as_a_violation(answer, like):
    test = DistanceTest(1.0, 1e-3, "replace")
    runs = [
        [test.passes(Secret(each), SeededForExperiments(seed)) for seed in range(50)]
        for each in (answer, like)
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"epsilon": -1.0},
        {"epsilon": 1e-20},
        {"epsilon": 1e4},
        {"delta": 0.0},
        {"delta": 0.5},
        {"delta": math.nan},
        {"adjacency": "same"},
    ],
    ids=str,
)
def test_bad_parameters_are_named(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=name):
        DistanceTest(**{"epsilon": 1.0, "delta": 1e-6, "adjacency": "replace", **bad})


def test_a_distance_that_is_no_secret_is_refused_without_its_value():
    with pytest.raises(TypeError, match="Secret") as caught:
        DistanceTest(1.0, 1e-6, "replace").passes(123456)
    assert "123456" not in str(caught.value)


def test_numbers_of_other_types_are_taken_as_floats():
    for epsilon in (np.float32(0.5), Fraction(1, 2), np.int64(2)):
        test = DistanceTest(epsilon, Fraction(1, 1000), "replace")
        assert type(test.epsilon) is float
        assert test == DistanceTest(float(epsilon), 1e-3, "replace")
        assert test.passes(Secret(10**9))


def test_losses_add_up_with_others():
    test = DistanceTest(0.5, 1e-6, "replace")
    total = test.loss + taut.laplace(2.0, adjacency="replace")
    assert total.epsilon(delta=1e-6) == pytest.approx(1.0, abs=1e-5)
