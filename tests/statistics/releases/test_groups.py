"""Totals and means by public groups: exact without noise, private with it, all cells there."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.audit import refute_training, replay
from taut.noise import SeededForExperiments
from taut.statistics import (
    Categories,
    CellCounts,
    GroupMeans,
    GroupTotals,
    Intervals,
    Mean,
    Quantiles,
    Table,
    release,
)
from taut.statistics._releases.groups import GroupSums
from taut.statistics._tables.clipped_column import ClippedColumn
from taut.statistics._tables.queries import Counts, Sums
from taut.statistics._tables.table import exact_answers

RANGE = (-1.0, 3.0)
KIND = Categories("kind", ["a", "b", "empty"])
MEANS, TOTALS = GroupMeans("x", RANGE, by=KIND), GroupTotals("x", RANGE, by=KIND)
NUMBERS = [math.nan, math.inf, -1e308, 0.3, 3.0, -1.0, 2.2]


def table(rows):
    return {
        "x": np.array([x for x, _ in rows], dtype=float),
        "kind": np.array([kind for _, kind in rows], dtype=np.str_),
    }


def integers(rows, groups):
    cells = groups.cells
    counts, sums = exact_answers(
        Table.open(table(rows)), [Counts(cells), Sums((groups.column,), cells)]
    )
    return np.array(groups.integers(counts, sums), dtype=object)


records = st.lists(st.tuples(st.sampled_from(NUMBERS), st.sampled_from("abc")), max_size=8)


@given(records, st.sampled_from(NUMBERS), st.sampled_from("abc"))
def test_a_record_moves_two_sums_of_its_group_by_the_radius_together(rows, x, kind):
    groups = MEANS.sums
    moved = integers([*rows, (x, kind)], groups) - integers(rows, groups)
    assert (moved >= 0).all()
    assert np.count_nonzero(moved) <= 2
    expected = 0 if kind == "c" else groups.size
    assert float(sum(moved)) * groups.unit == expected


def test_counts_and_sums_come_back_from_the_two_sums():
    rng = np.random.default_rng(0)
    rows = [(float(x), "ab"[i % 2]) for i, x in enumerate(rng.uniform(-1, 3, 20))]
    groups = GroupSums(ClippedColumn("x", *RANGE), (KIND,))
    counts, sums = groups.counts_and_sums(integers(rows, groups).astype(float) * groups.unit)
    np.testing.assert_allclose(counts, [10, 10, 0])
    inside = [np.array([x for x, kind in rows if kind == group]) for group in "ab"]
    np.testing.assert_allclose(sums[:2], [np.sum(one - 1) / 2 for one in inside], rtol=1e-7)
    np.testing.assert_allclose(MEANS.of(counts, sums)[:2], [one.mean() for one in inside])
    np.testing.assert_allclose(TOTALS.of(counts, sums), [*map(np.sum, inside), 0], atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"adjacency": "replace"}])
def test_errors_are_those_that_are_said(settings):
    rng = np.random.default_rng(1)
    rows = [(float(x), "ab"[i % 2]) for i, x in enumerate(rng.uniform(-1, 3, 2000))]
    if "adjacency" in settings:
        settings = {**settings, "records": len(rows)}
    truth = {
        MEANS.name: [np.mean([x for x, kind in rows if kind == group]) for group in "ab"],
        TOTALS.name: [np.sum([x for x, kind in rows if kind == group]) for group in "ab"],
        "counts by kind": [1000, 1000],
    }
    wanted = [MEANS, TOTALS, CellCounts(KIND)]
    ratios = []
    for seed in range(40):
        found = release(
            table(rows), wanted, epsilon=1.0, **settings, generator=SeededForExperiments(seed)
        )
        assert found.loss.epsilon(delta=0.0) <= 1.0
        for name, expected in truth.items():
            one = found[name]
            assert one.value.shape == (3,)
            ratios.append((one.value[:2] - expected) / one.standard_error[:2])
    spread = np.sqrt(np.mean(np.square(ratios)))
    assert 0.8 < spread < 1.2  # of 240 errors in units of what is said, half of them independent


def test_counts_of_the_same_cells_cost_nothing_more():
    data = table([(0.0, "a")] * 50)
    alone = release(data, [MEANS], epsilon=1.0)
    both = release(data, [MEANS, CellCounts(KIND)], epsilon=1.0)
    assert both.loss.epsilon(delta=0.0) == alone.loss.epsilon(delta=0.0)
    assert list(both.shares) == ["means of x by kind, counts by kind"]
    np.testing.assert_array_equal(
        both[MEANS.name].standard_error.shape, alone[MEANS.name].standard_error.shape
    )


def test_noise_does_not_grow_with_the_number_of_groups():
    data = table([(0.0, "a")])
    many = Categories("kind", [str(i) for i in range(500)])
    few = release(data, [GroupTotals("x", RANGE, by=KIND)], epsilon=1.0)
    more = release(data, [GroupTotals("x", RANGE, by=many)], epsilon=1.0)
    small, large = (np.max(found.estimates[0].standard_error) for found in (few, more))
    assert large < small * 1.01


def test_groups_of_two_columns_have_two_axes():
    bands = Intervals("x", [-1, 1, 3])
    found = release(table([(0.0, "a")] * 5), [GroupMeans("x", RANGE, by=[KIND, bands])], epsilon=9)
    labels = [label for label, _, _ in found.estimates[0].rows()]
    assert labels[0] == "a, [-1, 1)"
    assert found.estimates[0].value.shape == (3, 2)


def test_groups_share_a_budget_with_others():
    found = release(table([(0.0, "a")] * 9), [MEANS, Mean("x", RANGE)], epsilon=1.0)
    assert list(found) == ["means of x by kind", "mean of x"]
    assert found.loss.epsilon(delta=0.0) <= 1.0


@pytest.mark.parametrize("last", [(3.0, "a"), (math.nan, "b"), (-1e308, "c"), (-1.0, "empty")])
@pytest.mark.parametrize("wanted", [[MEANS], [TOTALS, CellCounts(KIND)]])
def test_replay_of_one_record_more(wanted, last):
    rows = [(0.5, "ab"[i % 2]) for i in range(6)]

    def program(data):
        found = release(table(data), wanted, epsilon=1.0)
        return found.to_dict(), str(found)

    claim = release(table(rows), wanted, epsilon=1.0).loss
    found = replay(program, [*rows, last], rows, claim=claim)
    assert found.passed, found.findings
    assert found.exercised or last[1] == "c"


def test_replay_of_a_record_that_changes_its_group():
    rows = [(0.5, "ab"[i % 2]) for i in range(6)]

    def program(data):
        wanted = [MEANS, CellCounts(KIND)]
        found = release(table(data), wanted, epsilon=1.0, adjacency="replace", records=7)
        return found.to_dict()

    found = replay(program, [*rows, (3.0, "a")], [*rows, (-1.0, "b")])
    assert found.passed, found.findings


def test_audit_finds_nothing():
    rows = [(0.5, "a")] * 3
    sides = [table(rows), table([*rows, (3.0, "a")])]
    claimed = release(sides[0], [TOTALS], epsilon=1.0).loss

    def run(with_canary, seed):
        source = SeededForExperiments(seed)
        found = release(sides[with_canary], [TOTALS], epsilon=1.0, generator=source)
        return found.estimates[0].value.tolist()

    assert refute_training(run, claimed=claimed, delta=0.01, most_runs=60, seed=3).passed


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GroupMeans("x", (3, -1), by=KIND), "must be below upper"),
        (lambda: GroupMeans("x", RANGE, by=[]), "got none"),
        (lambda: GroupTotals("x", RANGE, by=["kind"]), r"got \['kind'\]"),
        (lambda: GroupTotals("x", None, by=KIND), "must be a pair"),
    ],
)
def test_bad_groups_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_equal_statistics_are_released_again():
    for _ in range(2):  # the design of the first is remembered, and belongs to equal statistics
        cells = Categories("kind", ["a", "b"])
        wanted = [CellCounts(cells), GroupMeans("x", RANGE, by=KIND), Quantiles("x", [0.5], RANGE)]
        assert len(release(table([(0.0, "a")] * 9), wanted, epsilon=1.0)) == 3


def test_an_interval_of_the_column_itself_leaves_out_missing_values(tmp_path):
    # The documented way for a file, where nobody can filter: a plain mean is drawn to the middle.
    path = tmp_path / "table.csv"
    path.write_text("x\n" + "0.5\n\nnone\nnan\n" * 2_000)
    known = Intervals("x", [-1, 3])
    wanted = [GroupMeans("x", RANGE, by=known), CellCounts(known), Mean("x", RANGE)]
    seeded = SeededForExperiments(seed=0)
    means, counts, mean = release(path, wanted, epsilon=5.0, generator=seeded).estimates
    assert means.value[0] == pytest.approx(0.5, abs=0.05)
    assert counts.value[0] == pytest.approx(2_000, abs=20)
    assert mean.value == pytest.approx(0.875, abs=0.05)
