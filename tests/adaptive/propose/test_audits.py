"""Sequential audits of the mechanisms that have none beside their other tests."""

import math

import numpy as np
import pytest

import taut
from taut.adaptive import (
    BoundedRelease,
    CalibratedRelease,
    DistanceTest,
    ProposedMedian,
    SmoothMedian,
    StableMode,
)
from taut.audit import refute_training
from taut.noise import Box, SeededForExperiments, laplace_with_scales

TEST = DistanceTest(epsilon=1.0, delta=0.05, adjacency="add_remove")
NOISE = laplace_with_scales(Box([1.0]), [1.0])


def mode(data, source):
    outcome = StableMode(TEST).release(["a"] * (5 + len(data)) + ["b"] * 2, source)
    return StableMode(TEST).loss, [float(outcome.released)]


def smooth(data, source):
    median = SmoothMedian(0, 4, epsilon=1.0, delta=0.05)
    middle = [4.0] if len(data) > 3 else [0.0]
    return median.loss, [median.release([0.0] * 8 + middle + [4.0] * 8, source).value]


def bounded(data, source, scale=1.0):
    release = BoundedRelease(
        lambda rows: scale * float(len(rows)) ** 2,
        lambda rows: 2.0 * len(rows) + 1,
        step=2.0,
        low=0.0,
        high=1e4,
        bound_epsilon=0.5,
        epsilon=0.5,
        delta=0.05,
        adjacency="add_remove",
    )
    return release.loss, [release.release(data, source).value]


def calibrated(data, source):
    release = CalibratedRelease(
        lambda rows: [float(len(rows))],
        NOISE,
        lambda _, high: float(high[0]),
        lambda rows, _: len(rows) + source.standard_laplace(1)[0],
        taut.pure(1.0),
        0.05,
    )
    outcome = release.release(data, source)
    return release.loss, [float(outcome.released), outcome.value or 0.0]


def audited(program, most_runs=120):
    sides = [[1] * 3, [1] * 4]
    claimed = program(sides[0], SeededForExperiments(0))[0]

    def run(with_canary, seed):
        return program(sides[with_canary], SeededForExperiments(seed))[1]

    return refute_training(run, claimed=claimed, delta=0.1, most_runs=most_runs, seed=2).passed


@pytest.mark.parametrize("program", [mode, smooth, bounded, calibrated])
def test_nothing_is_found(program):
    assert audited(program)


def test_a_value_that_moves_further_than_its_local_sensitivity_is_found():
    assert not audited(lambda data, source: bounded(data, source, scale=100.0), most_runs=400)


def test_noise_of_a_proposal_has_the_proposed_scale():
    test = DistanceTest(5.0, 1e-3, "replace")
    median = ProposedMedian(0, 1000, 2.0, test, 0.5)
    source, data = SeededForExperiments(1), np.full(41, 500.0)
    values = [median.release(data, source).value for _ in range(1_000)]
    deviation = float(np.std(values))
    assert deviation == pytest.approx(math.sqrt(2) * 4.0, rel=0.15)
