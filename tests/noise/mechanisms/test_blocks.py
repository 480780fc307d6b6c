"""Sums of tables that come in blocks: the same release, to the last bit."""

import itertools
import warnings

import numpy as np
import pytest

from taut.audit import replay
from taut.noise import (
    Box,
    L2Ball,
    Ranges,
    SeededForExperiments,
    grouped_linf,
    optimal_gaussian,
    optimal_laplace,
)

TURNED = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
MECHANISMS = {
    "gaussian": optimal_gaussian(Box([1.0, 0.5, 2.0]), epsilon=1.0, delta=1e-6),
    "ball": optimal_gaussian(L2Ball(3, 1.0), epsilon=1.0, delta=1e-6),
    "basis": optimal_gaussian(Box([1.0, 0.5, 2.0], basis=TURNED), epsilon=1.0, delta=1e-6),
    "laplace": optimal_laplace(Box([1.0, 0.5, 2.0]), epsilon=1.0),
    "grouped": grouped_linf(Box([1.0, 0.5, 2.0]), epsilon=1.0),
    "ranges": optimal_laplace(Ranges([(0, 1), (-1, 3), (5, 6)]), epsilon=1.0),
}
ROWS = np.random.default_rng(0).normal(size=(50, 3)) * [1, 1e-9, 1e9]


@pytest.fixture(params=sorted(MECHANISMS))
def noise(request):
    return MECHANISMS[request.param]


@pytest.mark.parametrize("ends", [[50], [0, 50], [1, 2, 50], range(1, 51), [20, 20, 50]])
def test_blocks_make_no_difference(noise, ends):
    blocks = [ROWS[a:b] for a, b in itertools.pairwise([0, *ends])]
    found = noise.release_sum_blocks(iter(blocks), SeededForExperiments(3))
    assert found.tolist() == noise.release_sum(ROWS, SeededForExperiments(3)).tolist()


def test_no_blocks_are_no_records(noise):
    found = noise.release_sum_blocks([], SeededForExperiments(3))
    assert found.tolist() == noise.release_sum(ROWS[:0], SeededForExperiments(3)).tolist()


@pytest.mark.parametrize("entry", [np.nan, np.inf, 1e308, -1e308, 1e-308])
def test_a_record_more_stays_within_the_set(noise, entry):
    others = np.vstack([ROWS, np.full(3, entry)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = replay(
            lambda rows: noise.release_sum_blocks([rows[:7], rows[7:]]),
            others,
            ROWS,
            claim=noise.loss,
        )
    assert found.passed, str(found)


def test_tables_of_other_shapes_are_refused(noise):
    with pytest.raises(ValueError, match="columns"):
        noise.release_sum_blocks([ROWS, ROWS[:, :2]])
