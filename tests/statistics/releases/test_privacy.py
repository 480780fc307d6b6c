"""Replays of every statistic on neighbouring tables, and sequential audits."""

import math

import numpy as np
import pytest

from taut.audit import refute_training, replay
from taut.noise import SeededForExperiments
from taut.statistics import (
    Categories,
    CellCounts,
    Count,
    Covariance,
    Intervals,
    Mean,
    Quantiles,
    Total,
    Variance,
    release,
)

RANGE = (-1.0, 3.0)
CELLS = Categories("kind", ["a", "b"])
ONE_BY_ONE = [
    [Count()],
    [Mean("x", RANGE)],
    [Total("x", (5, 9))],
    [Variance("x", RANGE)],
    [Covariance({"x": RANGE, "y": RANGE})],
    [CellCounts(CELLS)],
    [CellCounts([CELLS, Intervals("x", [-1, 0, 1])])],
    [Quantiles("x", [0.5], RANGE)],
    [Quantiles("x", [0.1, 0.25, 0.5, 0.75, 0.9], RANGE)],
]
TOGETHER = [Mean("x", RANGE), CellCounts(CELLS), Quantiles("y", [0.25, 0.5, 0.75], RANGE)]
LAST = [
    (3.0, -1.0, "a"),
    (-1.0, 3.0, "b"),
    (math.nan, math.inf, "c"),
    (1e308, -1e308, "a"),
    (1.0, 1.0, "b"),
]


def table(rows):
    return {
        "x": np.array([row[0] for row in rows]),
        "y": np.array([row[1] for row in rows]),
        "kind": np.array([row[2] for row in rows], dtype=np.str_),
    }


def rows(n):
    x, y = np.random.default_rng(0).normal(size=(2, 10)).tolist()
    return [(x[i], y[i], "ab"[i % 2]) for i in range(n)]


@pytest.mark.parametrize("wanted", [*ONE_BY_ONE, TOGETHER])
@pytest.mark.parametrize("last", LAST)
def test_replay_of_one_record_more(wanted, last):
    def program(data):
        found = release(table(data), wanted, epsilon=1.0)
        return found.to_dict(), str(found)

    claim = release(table(rows(3)), wanted, epsilon=1.0).loss
    found = replay(program, [*rows(7), last], rows(7), claim=claim)
    assert found.passed, found.findings
    assert found.exercised or last[2] == "c" or last[0] > 1  # in no cell


@pytest.mark.parametrize("wanted", [*ONE_BY_ONE[1:], TOGETHER])
@pytest.mark.parametrize("last", LAST[:3])
def test_replay_of_one_record_replaced(wanted, last):
    def program(data):
        found = release(
            table(data), wanted, epsilon=1.0, delta=1e-3, adjacency="replace", records=8
        )
        return found.to_dict()

    found = replay(program, [*rows(7), last], rows(8))
    assert found.passed, found.findings


def audited(wanted, sides, pick, claimed_for=None, most_runs=60):
    claimed = release(sides[0], claimed_for or wanted, epsilon=1.0).loss

    def run(with_canary, seed):
        source = SeededForExperiments(seed)
        return pick(release(sides[with_canary], wanted, epsilon=1.0, generator=source))

    return refute_training(run, claimed=claimed, delta=0.01, most_runs=most_runs, seed=3).passed


SIDES = [table(rows(3)), table([*rows(3), (3.0, 3.0, "a")])]


@pytest.mark.parametrize("wanted", [ONE_BY_ONE[1], ONE_BY_ONE[3], ONE_BY_ONE[5], ONE_BY_ONE[7]])
def test_audits_find_nothing(wanted):
    def pick(found):
        return np.ravel(found.estimates[0].value).astype(float).tolist()

    assert audited(wanted, SIDES, pick)


def test_an_audit_would_find_a_sum_without_bounds():
    """The test above can fail: a total that counts the record five times is refuted."""
    wanted = [Total("x", RANGE)]
    sides = [SIDES[0], table([*rows(3), *[(3.0, 3.0, "a")] * 5])]
    assert not audited(wanted, sides, lambda found: [found.estimates[0].value], most_runs=400)
