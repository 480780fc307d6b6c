"""Errors that are expected before any data are touched are those that releases then have."""

import numpy as np
import pytest

from taut.errors import AdjacencyMismatch
from taut.noise import SeededForExperiments
from taut.statistics import (
    Categories,
    CellCounts,
    Count,
    Covariance,
    GroupMeans,
    GroupTotals,
    Mean,
    Quantiles,
    Total,
    Variance,
    check_columns,
    expected_errors,
    release,
)

KIND = Categories("kind", ["a", "b"])
RANGE = (0.0, 10.0)
FIXED = [
    Count(),
    Total("x", RANGE),
    CellCounts(KIND, name="cells"),
    GroupTotals("y", RANGE, by=KIND),
]
OTHERS = [
    Mean("x", RANGE),
    Variance("x", RANGE),
    Covariance({"x": RANGE, "y": RANGE}),
    GroupMeans("x", RANGE, by=KIND),
    Quantiles("y", [0.25, 0.5, 0.75], RANGE),
]
RECORDS = 4000
SETTINGS = [
    {},
    {"adjacency": "replace"},
    pytest.param({"delta": 1e-6}, marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(5, 0.5, RECORDS),
        "y": rng.uniform(0, 10, RECORDS),
        "kind": rng.choice(["a", "b"], RECORDS),
    }


@pytest.mark.parametrize("settings", SETTINGS)
def test_expected_errors_are_those_of_the_release(table, settings):
    wanted = [*FIXED, *OTHERS]
    expected = expected_errors(wanted, epsilon=2.0, records=RECORDS, **settings)
    public = {"records": RECORDS} if "adjacency" in settings else {}
    source = SeededForExperiments(1)
    found = release(table, wanted, epsilon=2.0, **settings, **public, generator=source)
    assert list(expected) == list(found)
    assert expected.promise.loss == found.loss
    assert expected.shares == found.shares
    for one in FIXED:
        np.testing.assert_allclose(expected[one.name], found[one.name].standard_error)
    for one in OTHERS:
        ratio = expected[one.name] / found[one.name].standard_error
        assert (ratio > 0.5).all()
        assert (ratio < 2.0).all()


def test_expected_errors_are_shown_and_stored():
    found = expected_errors([*FIXED, OTHERS[-1]], epsilon=1.0, records=100)
    page = str(found)
    assert "standard errors for 100 records; no data were read" in page
    assert "cells: a" in page
    assert "quantiles of y: 0.5" in page
    assert len(found) == 5
    stored = found.to_dict()
    assert stored["standard_errors"]["count"] == found["count"]
    assert stored["promise"]["delta"] == 0.0


def test_long_tables_are_cut():
    cells = CellCounts(Categories("kind", [str(i) for i in range(40)]))
    assert "... 16 more" in str(expected_errors([cells], epsilon=1.0, records=100))


@pytest.mark.parametrize(
    ("wanted", "settings", "words"),
    [
        ([Count()], {"records": 0}, "records must be at least 1"),
        ([Count()], {"records": 9, "adjacency": "replace"}, "more than a count"),
        ([Count()], {"records": 9, "delta": 1.0}, "delta must be in"),
    ],
)
def test_bad_questions_are_refused(wanted, settings, words):
    with pytest.raises(ValueError, match=words):
        expected_errors(wanted, epsilon=1.0, **settings)


def test_statistics_are_checked_as_those_of_a_release():
    # Of two with one name, one was dropped without a word, and its budget shared all the same.
    with pytest.raises(ValueError, match="different names, got 'count' twice"):
        expected_errors([Count(), Count()], epsilon=1.0, records=9)
    for wanted in ([], None, ["count"]):
        with pytest.raises(TypeError, match="statistics must be a list"):
            expected_errors(wanted, epsilon=1.0, records=9)
    for one in (Count(), (count for count in [Count()])):
        assert expected_errors(one, epsilon=1.0, records=9)["count"] > 0


def test_columns_are_checked_without_a_look_at_records(table):
    check_columns(table, [*FIXED, *OTHERS])
    with pytest.raises(ValueError, match="no column 'z'"):
        check_columns(table, [GroupMeans("z", RANGE, by=KIND)])
    with pytest.raises(ValueError, match="'kind' must hold numbers"):
        check_columns(table, [Quantiles("kind", [0.5], RANGE)])


def test_relations_without_a_release_are_refused():
    with pytest.raises(AdjacencyMismatch, match="got 'zero_out'"):
        expected_errors([Count()], epsilon=1.0, records=10, adjacency="zero_out")
