"""The proposed median: distances by enumeration, its loss on all pairs of a tiny domain."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.tested_releases import THRESHOLDS, behind_test, exchanged, laplace_profile, passing

from taut.adaptive import DistanceTest, ProposedMedian
from taut.adaptive._propose.classic.median_distance import (
    around_median,
    clipped,
    farthest,
    moves_to_exceed,
    widest,
)
from taut.adaptive._secret import reveal
from taut.audit import refute_training, replay
from taut.errors import AdjacencyMismatch
from taut.noise import SeededForExperiments

TEST = DistanceTest(epsilon=1.0, delta=0.05, adjacency="replace")
WIDE = DistanceTest(epsilon=0.5, delta=1e-6, adjacency="replace")


def lower_median(data):
    return sorted(data)[(len(data) + 1) // 2 - 1]


def local_sensitivity(data, domain):
    here = lower_median(data)
    return max(
        abs(here - lower_median((*data[:i], x, *data[i + 1 :])))
        for i in range(len(data))
        for x in domain
    )


@cache
def worst_within(data, moves, domain):
    """Return the largest local sensitivity within so many exchanges, by enumeration."""
    if moves == 0:
        return local_sensitivity(data, domain)
    near = {tuple(sorted((*data[:i], x, *data[i + 1 :]))) for i in range(len(data)) for x in domain}
    return max(worst_within(each, moves - 1, domain) for each in near)


@pytest.mark.parametrize("records", [1, 2, 3, 4, 5])
def test_distances_are_those_of_enumeration(records):
    domain = (0, 1, 3, 4)
    for data in itertools.combinations_with_replacement(domain, records):
        values = np.array(data, dtype=float)
        near = around_median(values, 0.0, 4.0, records + 2)
        found = [widest(near, k) for k in range(records + 1)]
        assert found == [worst_within(data, k, domain) for k in range(records + 1)]
        for bound in (0, 0.5, 1, 2, 3, 3.5):
            exceeding = [k for k, most in enumerate(found) if most > bound]
            assert moves_to_exceed(values, 0.0, 4.0, bound, 99) == min(exceeding, default=99)
            most = farthest(records, 0.0, 4.0, bound)
            assert most is None or min(exceeding, default=99) <= most
        assert moves_to_exceed(values, 0.0, 4.0, 4.0, 99) == 99
        assert farthest(records, 0.0, 4.0, 4.0) is None


@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=60),
    st.floats(-5, 5),
    st.floats(0, 4),
    st.integers(1, 30),
)
def test_distances_of_neighbours_differ_by_one_at_most(data, other, bound, cap):
    values = clipped(data, -3.0, 3.0)
    neighbour = clipped([*data[:-1], other], -3.0, 3.0)
    found = [moves_to_exceed(each, -3.0, 3.0, bound, cap) for each in (values, neighbour)]
    assert abs(found[0] - found[1]) <= 1


@pytest.mark.parametrize("bound", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("records", [3, 4, 5])
def test_loss_holds_for_all_neighbours_of_a_tiny_domain(records, bound):
    epsilon = 0.7 if bound else None
    median = ProposedMedian(0, 4, bound, TEST, epsilon)
    claimed = {t: median.loss.profile(t) for t in THRESHOLDS.tolist()}
    bits = {d: passing(1.0, TEST.threshold, d) for d in [*range(records + 1), TEST.cap]}
    worst = 0.0
    for one, other in exchanged((0, 1, 2, 4), records):
        p, q = (bits[reveal(median.distance(list(data)))] for data in (one, other))
        shift = abs(lower_median(one) - lower_median(other))
        apart = math.inf if shift and not bound else shift / bound * 0.7 if shift else 0.0
        for t, most in claimed.items():
            truth = behind_test(p, q, lambda s, x=apart: laplace_profile(x, s), t)
            assert truth <= most * (1 + 1e-9)
            worst = max(worst, truth / most)
    assert worst > 0.5  # the claim is not far from what neighbours reach


def test_reference_is_one_order_statistic():
    for data, middle in (([5], 5), ([1, 9], 1), ([1, 2, 9], 2), ([1, 2, 8, 9], 2)):
        always = ProposedMedian(0, 10, 10.0, TEST, 400.0)
        values = [always.release(data, SeededForExperiments(s)).value for s in range(20)]
        assert np.median(values) == pytest.approx(middle, abs=0.2)


def test_an_exact_median_is_released_where_no_record_moves_it():
    exact = ProposedMedian(0, 10, 0.0, WIDE)
    outcome = exact.release([3.25] * 1001)
    assert outcome
    assert outcome.value == 3.25
    assert outcome.loss == WIDE.loss
    refused = exact.release(np.linspace(0, 10, 1001))
    assert (refused.released, refused.value, refused.loss) == (False, None, WIDE.loss)


def test_records_that_are_no_numbers_do_not_make_it_fail():
    median = ProposedMedian(0, 10, 0.5, WIDE, 1.0)
    data = np.full(1001, 4.0)
    data[:3] = math.nan, math.inf, -math.inf
    assert median.release(data).released
    assert reveal(median.distance([math.nan] * 101)) == reveal(median.distance([0.0] * 101))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"low": 3, "high": 3}, "low must be below high"),
        ({"low": 4, "high": 3}, "low must be below high"),
        ({"low": math.nan}, "low"),
        ({"low": -1e308, "high": 1e308}, "finite"),
        ({"bound": -1.0}, "bound"),
        ({"bound": math.nan}, "bound"),
        ({"epsilon": None}, "epsilon must be given"),
        ({"bound": 0.0}, "epsilon must be left out"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"test": None}, "test must be a DistanceTest"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(bad, says):
    given_ = {"low": 0, "high": 10, "bound": 1.0, "test": TEST, "epsilon": 1.0, **bad}
    with pytest.raises((ValueError, TypeError), match=says):
        ProposedMedian(**given_)


def test_other_relations_are_refused():
    test = DistanceTest(1.0, 1e-6, "add_remove")
    with pytest.raises(AdjacencyMismatch, match="replace"):
        ProposedMedian(0, 10, 1.0, test, 1.0)


@pytest.mark.parametrize("data", [[], [[1.0, 2.0]], 3.0], ids=str)
def test_data_without_records_are_refused(data):
    with pytest.raises(ValueError, match="one number per record"):
        ProposedMedian(0, 10, 1.0, TEST, 1.0).release(data)


def test_proposals_that_always_fail_are_refused_by_the_number_of_records_alone():
    median = ProposedMedian(0, 10, 1.0, WIDE, 1.0)
    for data in ([777.25] * 20, [0.125] * 20):
        with pytest.raises(ValueError, match="no data of 20 records") as caught:
            median.release(data)
        assert "777" not in str(caught.value)
        assert "0.125" not in str(caught.value)


def test_replay_finds_nothing():
    median = ProposedMedian(0, 10, 0.5, WIDE, 1.0)
    rng = np.random.default_rng(0)
    data = rng.normal(5, 0.1, 2001)
    for other in (0.0, 10.0, math.nan, 1e300):
        neighbour = np.append(data[:-1], other)
        result = replay(lambda rows: median.release(rows).value, data, neighbour, claim=median.loss)
        assert result.passed, result.findings
        assert len(result.releases) == 2


def test_sequential_audit_finds_nothing():
    test = DistanceTest(epsilon=1.0, delta=0.01, adjacency="replace")
    median = ProposedMedian(0, 10, 1.0, test, 1.0)
    near = np.repeat([5.0, 5.5, 6.5], [12, 10, 1])
    sides = [np.append(near, 5.0), np.append(near, 10.0)]
    distances = [reveal(median.distance(side)) for side in sides]
    assert abs(distances[0] - distances[1]) == 1

    def run(with_canary, seed):
        outcome = median.release(sides[with_canary], SeededForExperiments(seed))
        return [float(outcome.released), outcome.value if outcome else 0.0]

    result = refute_training(run, claimed=median.loss, delta=0.02, most_runs=400, seed=1)
    assert result.passed


def test_sequential_audit_refutes_noise_for_less_than_the_bound():
    """The same audit, of a release that skips the test and takes the local sensitivity."""
    test = DistanceTest(epsilon=1.0, delta=0.01, adjacency="replace")
    median = ProposedMedian(0, 10, 1.0, test, 1.0)
    sides = [np.repeat([5.0, 6.0], [12, 11]), np.repeat([5.0, 6.0], [11, 12])]

    def run(with_canary, seed):
        return [
            lower_median(sides[with_canary].tolist()) + np.random.default_rng(seed).laplace(0, 0.1)
        ]

    assert not refute_training(run, claimed=median.loss, delta=0.02, most_runs=400, seed=1).passed


def test_a_million_records_take_no_sort():
    median = ProposedMedian(0, 1, 0.001, WIDE, 1.0)
    data = np.random.default_rng(1).random(1_000_000)
    assert median.release(data).released
