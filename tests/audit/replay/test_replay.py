"""A replay finds what noise does not hide, and says nothing about data in words."""

import re
import threading

import numpy as np
import pytest

import taut
from taut.audit import replay
from taut.errors import UnsoundConfiguration
from taut.noise import (
    Box,
    Histogram,
    L2Ball,
    SeededForExperiments,
    default_generator,
    grid_gaussian,
    integer_laplace,
    optimal_gaussian,
    optimal_laplace,
)
from taut.noise.recording import Recorder, active, recording

ROWS = np.random.default_rng(0).normal(size=(20, 3))
GAUSSIAN = optimal_gaussian(L2Ball(3, 1.0), epsilon=1.0, delta=1e-5)
LAPLACE = optimal_laplace(Box([1.0, 1.0, 1.0]), epsilon=1.0)


def clipped(rows):
    return GAUSSIAN.sensitivity.clip(rows)


def test_sound_program_passes():
    def program(rows):
        first = GAUSSIAN.release_sum(rows)
        second = LAPLACE.release(np.clip(rows, -1, 1).sum(0), public=np.zeros(3))
        return first, second, {"mean": first / 20}

    result = replay(program, ROWS, ROWS[:-1], crafted=True)
    assert result.passed, str(result)
    assert [release.kind for release in result.releases] == ["GaussianNoise", "LaplaceNoise"]
    assert result.exercised
    assert 0 < result.releases[0].measured <= 1


def test_measured_sensitivity_is_that_of_the_set():
    """By hand, in a set whose norm is not Euclidean."""
    noise = optimal_laplace(Box([0.5, 2.0]), epsilon=1.0)
    rows = np.array([[0.1, 0.2], [0.25, -1.5]])
    result = replay(lambda data: noise.release(data.sum(0)), rows, rows[:1], crafted=True)
    assert result.releases[0].measured == pytest.approx(max(0.25 / 0.5, 1.5 / 2.0))


def test_value_that_moves_too_far_is_found():
    long = np.vstack([ROWS, [[3.0, 0.0, 0.0]]])
    result = replay(lambda rows: GAUSSIAN.release(rows.sum(0)), long, long[:-1], crafted=True)
    (finding,) = result.findings
    assert "moved by more than its declared sensitivity" in finding
    assert "(3 times as far)" in finding


def test_result_around_the_mechanism_is_found():
    def program(rows):
        return GAUSSIAN.release_sum(rows) / len(rows)

    (finding,) = replay(program, ROWS, ROWS[:-1]).findings
    assert "the result depends on the data beside its releases" in finding


@pytest.mark.parametrize(
    ("returned", "where"),
    [
        (lambda rows: {"a": 1, "n": len(rows)}, "['n']"),
        (lambda rows: [0.0, rows.sum()], "[1]"),
        (lambda rows: set(range(len(rows))), "itself"),
        (lambda rows: rows.shape, "[0]"),
        (lambda rows: {str(i): 0 for i in range(len(rows))}, "the keys of itself"),
    ],
)
def test_place_of_a_difference_is_named(returned, where):
    (finding,) = replay(returned, ROWS, ROWS[:-1]).findings
    assert f"it differs in {where}" in finding


def test_number_of_releases_is_compared():
    def program(rows):
        return [GAUSSIAN.release_sum(rows) for _ in range(len(rows) // 10)]

    (finding,) = replay(program, ROWS, ROWS[:-1]).findings
    assert "fewer releases on the neighbour" in finding
    (finding,) = replay(program, ROWS[:-1], ROWS).findings
    assert "more releases on the neighbour" in finding


def test_kind_and_shape_are_compared():
    def either(rows):
        return (GAUSSIAN if len(rows) % 2 else LAPLACE).release_sum(rows)

    (finding,) = replay(either, ROWS, ROWS[:-1]).findings
    assert "which mechanism is used depends on the data" in finding

    def by_class(rows):
        kinds = np.unique(rows[:, 0].round())
        return integer_laplace(Histogram(len(kinds)), epsilon=1.0).release(np.ones(len(kinds)))

    rows = np.array([[0.0], [1.0], [2.0]])
    (finding,) = replay(by_class, rows, rows[:-1]).findings
    assert "another number of coordinates" in finding


def test_parameters_are_compared():
    def program(rows):
        return optimal_laplace(Box([np.abs(rows).max()]), epsilon=1.0).release([0.0])

    rows = np.array([[0.5], [2.0]])
    (finding,) = replay(program, rows, rows[:-1]).findings
    assert "has another errors and radius and sensitivity on the neighbour" in finding


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_failure_on_one_side_is_found_without_its_message(error):
    def program(rows):
        if len(rows) < 20:
            raise error(f"the secret is {rows[0, 0]}")
        return GAUSSIAN.release_sum(rows)

    (finding,) = replay(program, ROWS, ROWS[:-1]).findings
    assert finding.startswith(
        f"{error.__name__} was raised on the neighbour alone, at test_replay.py:"
    )
    assert "secret" not in finding


def test_failure_of_the_program_is_its_own():
    with pytest.raises(ZeroDivisionError):
        replay(lambda _: 1 / 0, ROWS, ROWS[:-1])
    assert active() is None


def test_program_cannot_catch_its_way_out():
    def program(rows):
        for _ in range(len(rows)):
            try:
                GAUSSIAN.release_sum(rows)
            except Exception:  # the most that a program catches
                return "nothing happened"
        return None

    assert not replay(program, ROWS[:-1], ROWS).passed


def test_words_hold_no_numbers_of_the_data():
    """Two runs on data of other sizes give the same words, unless the data are crafted."""
    long = np.vstack([ROWS, [[3.7, 0.0, 0.0]]])
    far = np.vstack([ROWS, [[1e9, 0.0, 0.0]]])

    def program(rows):
        return GAUSSIAN.release(rows.sum(0)), len(rows), [0] * len(rows)

    words = [str(replay(program, rows, rows[:-1])) for rows in (long, far)]
    assert words[0] == words[1]
    assert "3.7" not in words[0]
    result = replay(program, long, long[:-1])
    assert all(release.measured is None for release in result.releases)


def test_noise_that_comes_back_is_found():
    wide = np.random.default_rng(1).normal(size=(20, 6))
    noise = optimal_gaussian(L2Ball(6, 1.0), epsilon=1.0, delta=1e-5)

    def program(rows):
        seeds = SeededForExperiments(seed=3), SeededForExperiments(seed=3)
        return [noise.release_sum(rows * (i + 1), seed) for i, seed in enumerate(seeds)]

    (finding,) = replay(program, wide, wide[:-1]).findings
    assert "has the noise of release 1 again" in finding


def test_claim_is_compared_with_the_sum_of_releases():
    def program(rows):
        return [LAPLACE.release_sum(rows), LAPLACE.release_sum(rows)]

    assert replay(program, ROWS, ROWS[:-1], claim=taut.pure(2.0)).passed
    (finding,) = replay(program, ROWS, ROWS[:-1], claim=taut.pure(1.5)).findings
    assert "2 of 2 releases" in finding


def test_claim_leaves_out_what_the_record_does_not_reach():
    """Parallel composition: groups are released apart, and a record is in one of them."""

    def program(rows):
        return [
            LAPLACE.release_sum(rows[rows[:, 0] > 0]),
            LAPLACE.release_sum(rows[rows[:, 0] < 0]),
        ]

    assert replay(program, ROWS, ROWS[:-1], claim=taut.pure(1.0)).passed


def test_rounding_of_a_sum_is_no_finding():
    noise = optimal_laplace(Box([1.0]), epsilon=1.0)
    rows = np.full((3_000, 1), 0.1)
    rows[-1] = 1.0
    result = replay(lambda data: noise.release([sum(data[:, 0])]), rows, rows[:-1])
    assert result.passed, str(result)


def test_replaced_record_may_move_twice_as_far():
    rows = np.array([[1.0], [0.5]])
    other = np.array([[1.0], [-0.5]])
    noise = optimal_laplace(Box([0.6]), epsilon=1.0)

    def program(data):
        return noise.release(data.sum(0))

    assert replay(program, rows, other).passed
    assert not replay(program, rows, other, adjacency="add_remove").passed


def test_vacuous_replay_says_so():
    result = replay(lambda _: GAUSSIAN.release(np.zeros(3)), ROWS, ROWS[:-1])
    assert result.passed
    assert not result.exercised
    assert "nothing was tested" in result.notes[-1]


def test_other_branch_is_a_note():
    def program(rows):
        if len(rows) == 20:
            return GAUSSIAN.release_sum(rows)
        return GAUSSIAN.release_sum(rows)

    result = replay(program, ROWS, ROWS[:-1])
    assert result.passed
    assert "was reached from test_replay.py" in result.notes[0]


def test_choices_between_releases_are_the_same():
    """From the secure generator, from seeds made outside, and from global generators."""
    outside = SeededForExperiments(seed=1)

    def program(rows):
        chosen = default_generator().uniform_below(10, 4)
        more = outside.uniform_below(10, 4)
        GAUSSIAN.release_sum(rows, generator=outside)
        if len(rows) == 19:
            default_generator().bytes(5)  # asks for more; the next release sets it right
            np.random.random(3)  # noqa: NPY002
        GAUSSIAN.release_sum(rows)
        after = default_generator().bytes(3), outside.bytes(3), np.random.random(2)  # noqa: NPY002
        return chosen, more, after, np.random.default_rng(5).random()

    assert replay(program, ROWS, ROWS[:-1]).passed


# --- a frozen replay is never mistaken for a release ---------------------------------------------


def test_noise_of_the_first_run_is_fresh():
    seen = []

    def program(rows):
        seen.append(GAUSSIAN.release_sum(rows))
        return seen[-1]

    replay(program, ROWS, ROWS[:-1])
    replay(program, ROWS, ROWS[:-1])
    assert (seen[0] == seen[1]).all()
    assert (seen[0] != seen[2]).any()
    assert (GAUSSIAN.release_sum(ROWS) != seen[0]).any()


def test_other_threads_are_not_frozen():
    seen = []

    def program(rows):
        worker = threading.Thread(target=lambda: seen.append(GAUSSIAN.release_sum(rows)))
        worker.start()
        worker.join()

    replay(program, ROWS, ROWS)
    assert (seen[0] != seen[1]).any()


def test_recorder_that_was_kept_is_blind():
    kept = []

    def program(rows):
        kept.append(active())
        return GAUSSIAN.release_sum(rows)

    replay(program, ROWS, ROWS[:-1])
    assert active() is None
    assert all(isinstance(one, Recorder) and not one.is_here for one in kept)
    with recording(kept[1]):
        assert active() is None
        assert (GAUSSIAN.release_sum(ROWS) != GAUSSIAN.release_sum(ROWS)).any()


def test_replays_are_not_nested():
    with pytest.raises(UnsoundConfiguration, match="a replay is going on"):
        replay(lambda rows: replay(len, rows, rows), ROWS, ROWS)


def test_frozen_outcomes_cannot_be_changed():
    def program(rows):
        released = GAUSSIAN.release_sum(rows)
        released += 1.0
        return released

    assert replay(program, ROWS, ROWS[:-1]).passed


def test_grid_gaussian_takes_part():
    noise = grid_gaussian(sigma=4, sensitivity=1, grid=1, on_grid=True)
    result = replay(lambda rows: noise.release(len(rows)), ROWS, ROWS[:-1], claim=noise.loss)
    assert result.passed, str(result)
    assert not replay(lambda rows: noise.release(2 * len(rows)), ROWS, ROWS[:-1]).passed


def test_result_is_ready_for_json():
    found = replay(lambda rows: GAUSSIAN.release_sum(rows), ROWS, ROWS[:-1]).to_dict()
    assert found["passed"]
    assert re.match(r"test_replay.py:\d+", found["releases"][0]["place"])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"function": 3}, "function must be callable"),
        ({"differs_at": 1.5}, "differs_at must be an integer"),
        ({"claim": 1.0}, "claim must be a PrivacyLoss"),
        ({"function": lambda rows: (x for x in rows)}, "return a list"),
        ({"function": lambda _: object.__new__(Slotted)}, "cannot be compared"),
    ],
)
def test_wrong_use_is_refused(arguments, match):
    given = {"function": len, "data": ROWS, "neighbour": ROWS, **arguments}
    with pytest.raises(TypeError, match=match):
        replay(**given)


class Slotted:
    __slots__ = ()


@pytest.mark.parametrize(
    ("data", "neighbour", "doubled"),
    [
        ((ROWS, ROWS[:, 0]), (ROWS[:-1], ROWS[:-1, 0]), False),
        ({"x": ROWS, "bound": 1.0}, {"x": ROWS[:-1], "bound": 1.0}, False),
        (([1.0, 2.0], [0, 1]), ([1.0], [0]), False),
        ((ROWS, 3), (ROWS + 0.0, 3), True),
        (([1.0, 2.0], [0, 1]), ([1.0, 2.0, 3.0], [0, 1]), True),
        (([1.0, 2.0], "ab"), ([1.0, 5.0], "abc"), True),
    ],
)
def test_columns_that_lose_a_record_are_no_exchange(data, neighbour, doubled):
    moved = iter([0.0, 1.5])
    box = optimal_laplace(Box([1.0]), epsilon=1.0)
    result = replay(lambda _: box.release([next(moved)]), data, neighbour)
    assert result.passed == doubled
