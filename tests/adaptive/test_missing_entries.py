"""A missing entry is no error: it would tell of the record."""

import warnings

import numpy as np
import pandas as pd
import pytest

from taut.adaptive import (
    BetweenDesign,
    BetweenThresholds,
    DistanceTest,
    ExPostDesign,
    ExPostSparseVector,
    ProposedMedian,
    ReusableHoldout,
    ScalarNoise,
    SearchedMedian,
    Secret,
    SmoothMedian,
    SparseVector,
    SparseVectorDesign,
)
from taut.noise import SeededForExperiments

AGES = np.linspace(20, 60, 2001)
MISSING = [
    [None, *AGES[1:].tolist()],
    ["none", *AGES[1:].tolist()],
    np.array([None, *AGES[1:]], dtype=object),
    np.ma.masked_array(AGES, mask=np.arange(AGES.size) == 0),
    pd.Series([None, *AGES[1:]], dtype=object),
]
TEST = DistanceTest(epsilon=1.0, delta=1e-6, adjacency="replace")
MEDIANS = [
    ProposedMedian(low=0, high=1000, bound=0.5, test=TEST, epsilon=1.0),
    SearchedMedian(low=0, high=1000, bounds=(0.5, 5.0), test_epsilon=1.0, epsilon=1.0, delta=1e-6),
    SmoothMedian(low=0, high=1000, epsilon=1.0, delta=1e-6),
]


@pytest.mark.parametrize("median", MEDIANS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("data", MISSING, ids=["None", "text", "objects", "masked", "pandas"])
def test_medians_take_missing_entries_as_they_take_nan(median, data):
    as_nan = np.concatenate([[np.nan], AGES[1:]])
    found, expected = (
        median.release(each, SeededForExperiments(seed=3)).value for each in (data, as_nan)
    )
    assert found == expected


def vectors():
    noise = ScalarNoise("laplace", 1.0)
    design = SparseVectorDesign(noise, noise, sensitivity=1.0, tops=9, adjacency="add_remove")
    return [
        SparseVector(design, threshold=1e6),
        ExPostSparseVector(
            ExPostDesign(
                8.0, 16.0, sensitivity=1.0, threshold=500.0, lowest=0.0, highest=900.0,
                adjacency="add_remove",
            ),
            epsilon=50.0,
        ),
        BetweenThresholds(BetweenDesign(1e3, 1e6, 1.0, 1.0, 1.0, 9, 1e-6, "add_remove")),
    ]  # fmt: skip


@pytest.mark.parametrize("missing", [None, pd.NA, np.ma.masked, np.nan, object()])
@pytest.mark.parametrize("hide", [Secret, lambda value: value], ids=["secret", "plain"])
def test_queries_without_a_value_are_the_lowest(missing, hide):
    for vector in vectors():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert vector.ask(hide(missing)) in (False, "low")


def test_statistics_of_a_holdout_may_miss_entries():
    holdout = ReusableHoldout(
        2000, threshold=0.2, tops=3, noise=0.001, answer_sigma=0.001, adjacency="replace"
    )
    statistics = [None, "none", *[0.5] * 1998]
    assert holdout.check(0.5, statistics).was_near


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series])
def test_statistics_of_a_holdout_may_be_booleans(kind):
    holdout = ReusableHoldout(
        2000, threshold=0.2, tops=3, noise=0.001, answer_sigma=0.001, adjacency="replace"
    )
    assert holdout.check(0.5, kind([True, False] * 1000)).was_near
