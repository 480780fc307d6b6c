"""Exact answers and counts behind a test: all neighbours of tiny domains, both relations."""

import math
from array import array
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from oracles.tested_releases import THRESHOLDS, added, discrete, exchanged, passing, whole_noise

from taut.adaptive import DistanceTest, StableHistogram, StableMode, StableRelease
from taut.adaptive._secret import reveal
from taut.audit import refute_training, replay
from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments

PAIRS = {"replace": lambda: exchanged("abc", 5), "add_remove": lambda: added("abc", 6)}


def counts_of(data):
    return [data.count(value) for value in "abc"]


@pytest.mark.parametrize("adjacency", PAIRS)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.1), (0.4, 0.3)])
def test_mode_keeps_its_loss_on_all_neighbours(adjacency, epsilon, delta):
    test = DistanceTest(epsilon, delta, adjacency)
    mode = StableMode(test)
    claimed = {t: mode.loss.profile(t) for t in THRESHOLDS.tolist()}

    def outputs(data):
        distance = reveal(mode.distance(counts_of(data)))
        p = passing(epsilon, test.threshold, distance)
        return {None: 1 - p, "abc"[int(np.argmax(counts_of(data)))]: p}

    known, worst = {}, 0.0
    for one, other in PAIRS[adjacency]():
        p, q = (known.setdefault(tuple(sorted(d)), outputs(d)) for d in (one, other))
        for t, most in claimed.items():
            truth = discrete(p, q, t)
            assert truth <= most * (1 + 1e-9)
            worst = max(worst, truth / most)
    assert worst > 0.9


@pytest.mark.parametrize(
    ("adjacency", "counts", "expected"),
    [
        ("add_remove", [9, 4, 1], 4),
        ("add_remove", [5, 5], 0),
        ("add_remove", [1], 0),
        ("add_remove", [2], 1),
        ("replace", [9, 4, 1], 2),
        ("replace", [9, 3], 2),
        ("replace", [5, 4], 0),
        ("replace", [3], 1),
        ("replace", [0, 0], 0),
    ],
)
def test_distance_counts_records_until_the_winner_can_change(adjacency, counts, expected):
    mode = StableMode(DistanceTest(1.0, 0.1, adjacency))
    assert reveal(mode.distance(counts)) == expected


@pytest.mark.parametrize("adjacency", PAIRS)
def test_histogram_keeps_its_loss_on_all_neighbours(adjacency):
    """Values are independent, so that the profile of one or two cells is all there is."""
    test = DistanceTest(1.0, 0.05, adjacency)
    claimed = StableHistogram(test).loss
    at, mass = whole_noise(1.0, 25)

    def cell(count):
        sums = zip((count + at).tolist(), mass.tolist(), strict=True)
        shown = {x: m for x, m in sums if count and x > test.threshold}
        return {**shown, None: 1 - sum(shown.values())}

    moves = [(0, 1), (1, 0), (2, 3), (3, 2)]
    for t in THRESHOLDS[::6].tolist():
        most = claimed.profile(t)
        for a, b in moves:
            if adjacency == "add_remove":
                assert discrete(cell(a), cell(b), t) <= most * (1 + 1e-9)
                continue
            for c, d in moves:
                if (a < b) == (c < d):
                    continue  # one count rises, the other falls
                p, q = (
                    {(x, y): m * n for x, m in cell(i).items() for y, n in cell(j).items()}
                    for i, j in ((a, c), (b, d))
                )
                assert discrete(p, q, t) <= most * (1 + 1e-9)


def test_histogram_shows_what_many_have_and_never_what_one_has():
    counts = StableHistogram(DistanceTest(1.0, 1e-6, "add_remove"))
    data = ["tea"] * 200 + ["milk"] * 90 + [f"name {i}" for i in range(50)]
    found = counts.release(data, SeededForExperiments(1)).value
    assert list(found) == ["tea", "milk"]
    assert abs(found["tea"] - 200) < 20
    assert counts.release([]).value == {}
    assert counts.release(np.array([3, 3, 4])).released
    assert "tea" in counts.release([*data, ["no", "value"]]).value
    with pytest.raises(ValueError, match="2 axes"):
        counts.release(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ((1, "a"), (True, "a")),
        (Decimal("1.0"), Decimal("1.00")),
        (2, np.int64(2)),
    ],
)
def test_equal_values_do_not_show_how_one_record_wrote_them(usual, odd):
    test = DistanceTest(1.0, 1e-6, "replace")
    for data in ([odd, *[usual] * 300], [*[usual] * 300, odd]):
        mode = StableMode(test).release(data).value
        (shown,) = StableHistogram(test).release(data).value
        for found in (mode, shown):
            assert (type(found), repr(found)) == (type(usual), repr(usual))


def test_of_equal_values_the_histogram_keeps_the_largest_count():
    test = DistanceTest(1.0, 1e-6, "replace")
    found = StableHistogram(test).release([True] * 300 + [1] * 2000).value
    assert [type(value) for value in found] == [int]
    assert found[1] > 1000


def test_counts_of_unsigned_words_do_not_turn_negative():
    mode = StableMode(DistanceTest(1.0, 1e-6, "add_remove"))
    for most in (2**63 - 1, 2**63, 2**64 - 1):
        assert mode.release_counts(np.array([3, most], dtype=np.uint64)).value == 1
    assert mode.release_counts(np.array([120, 3], dtype=np.int8)).value == 0
    assert reveal(mode.distance(np.array([2**63, 2**64 - 1], dtype=np.uint64))) == 0


@pytest.mark.parametrize("made", [np.array, torch.tensor, pd.Series, partial(array, "q")])
def test_numbers_of_arrays_tensors_and_columns_are_those_of_python(made):
    """Every entry of a tensor counted as a value of its own, so that nothing was ever found."""
    numbers = [7] * 90 + [3] * 5
    values = made(numbers)
    test = DistanceTest(epsilon=1.0, delta=1e-6, adjacency="add_remove")
    value = StableMode(test).release(values).value
    assert (value, type(value)) == (7, int)
    assert list(StableHistogram(test).release(values).value) == [7]


@pytest.mark.parametrize("made", [torch.tensor, pd.DataFrame, pl.DataFrame])
def test_tensors_and_tables_with_rows_are_refused(made):
    """Tables gave the names of their columns for records."""
    rows = made({"kind": [7] * 90}) if made is not torch.tensor else made([[7]] * 90)
    test = DistanceTest(epsilon=1.0, delta=1e-6, adjacency="add_remove")
    for release in (StableMode(test), StableHistogram(test)):
        with pytest.raises(ValueError, match="one value per record, got an array of 2 axes"):
            release.release(rows)


def test_values_whose_hash_or_look_fails_count_for_none():
    class Odd:
        def __hash__(self):
            raise ValueError("of record 17")

    class Shy:
        def __repr__(self):
            raise RuntimeError("of record 18")

    data = [*["tea"] * 300, Odd(), Shy()]
    for adjacency in PAIRS:
        assert StableMode(DistanceTest(1.0, 1e-6, adjacency)).release(data).value == "tea"


def test_functions_that_misbehave_are_refused_at_full_cost():
    test = DistanceTest(1.0, 1e-6, "replace")

    def broken(data):
        raise ValueError(f"record {data[0]} is odd")

    for answer, distance in [
        (broken, lambda _: 10**6),
        (len, broken),
        (len, lambda _: math.nan),
        (len, lambda _: -5),
        (len, lambda _: "far"),
        (len, lambda _: 2.5),
    ]:
        outcome = StableRelease(answer, distance, test).release([777])
        assert (outcome.released, outcome.value, outcome.loss) == (False, None, test.loss)
    assert StableRelease(len, lambda _: math.inf, test).release([777]).value == 1


def test_interrupts_are_not_swallowed():
    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        StableRelease(len, interrupted, DistanceTest(1.0, 1e-6, "replace")).release([1])


def test_warnings_of_functions_are_not_seen(recwarn):
    release = StableRelease(
        len, lambda _: int(np.log(np.zeros(1))[0] < 0), DistanceTest(1.0, 1e-6, "replace")
    )
    release.release([1])
    assert not recwarn.list


def test_bad_arguments_are_named():
    test = DistanceTest(1.0, 1e-6, "replace")
    with pytest.raises(TypeError, match="answer"):
        StableRelease(3, len, test)
    with pytest.raises(TypeError, match="test"):
        StableRelease(len, len, None)
    with pytest.raises(TypeError, match="test"):
        StableMode(1.0)
    with pytest.raises(UnsoundConfiguration, match="add_remove"):
        StableHistogram(DistanceTest(1.0, 1e-6, "zero_out"))
    for counts in ([], [[1]], [-77], [0.5]):
        with pytest.raises(ValueError, match="counts must be") as caught:
            StableMode(test).release_counts(counts)
        assert "77" not in str(caught.value)


@pytest.mark.parametrize("adjacency", PAIRS)
def test_replay_finds_nothing(adjacency):
    test = DistanceTest(1.0, 1e-6, adjacency)
    data = ["a"] * 60 + ["b"] * 20 + ["c"]
    neighbour = data[:-1] if adjacency == "add_remove" else [*data[:-1], "new"]
    for release in (StableMode(test).release, StableHistogram(test).release):
        result = replay(lambda rows, r=release: r(rows).value, data, neighbour, claim=2 * test.loss)
        assert result.passed, result.findings
    assert result.exercised


def test_sequential_audit_finds_nothing():
    test = DistanceTest(1.0, 0.05, "add_remove")
    counts = StableHistogram(test)

    def run(with_canary, seed):
        data = ["a"] * (test.threshold + 1) + ["a"] * with_canary
        return [float(counts.release(data, SeededForExperiments(seed)).value.get("a", 0))]

    assert refute_training(run, claimed=counts.loss, delta=0.1, most_runs=100, seed=1).passed
