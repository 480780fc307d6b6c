"""Every epsilon that is logged bounds what was spent when it was."""

import csv

import numpy as np
import pytest
from torch import nn
from training.run.test_resume import Kill, Killed, trainer
from training.runs import data, model, plan

from taut.training import (
    Callback,
    CSVLog,
    FixedSizeSampling,
    FlatClip,
    Logs,
    Plan,
    PrivateTrainer,
    RunLedger,
    StepEnd,
    TensorBoardLog,
)
from taut.training._ledger.epsilon_course import EpsilonCourse
from taut.training._run.logs.step_rows import StepRows

LOSS = nn.CrossEntropyLoss(reduction="none")


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def lower(a_plan, steps):
    return a_plan.loss_at(steps).epsilon_bounds(a_plan.delta).lower


class Events(Callback):
    def __init__(self):
        self.seen = []

    def on_step_end(self, trainer, event):
        self.seen.append((event.counted, event.epsilon))


def assert_bounds(pairs, a_plan):
    """Refuse an epsilon that is below what so many steps surely cost, or that falls."""
    for counted, epsilon in pairs:
        assert epsilon >= lower(a_plan, counted), (counted, epsilon)
    assert [epsilon for _, epsilon in pairs] == sorted(epsilon for _, epsilon in pairs)


@pytest.mark.parametrize("steps", [1, 2, 7, 13, 40, 125])
def test_every_row_bounds_its_own_steps(tmp_path, steps):
    log, events, a_plan = CSVLog(tmp_path / "steps.csv"), Events(), plan(steps=steps)
    result = PrivateTrainer(model(), LOSS, a_plan, logs=Logs(callbacks=[log, events])).fit(data())
    rows = rows_of(tmp_path / "steps.csv")
    assert [int(row["step"]) for row in rows] == list(range(1, steps + 1))
    pairs = [(int(row["counted"]), float(row["epsilon"])) for row in rows]
    assert pairs == events.seen
    assert_bounds(pairs, a_plan)
    assert pairs[-1] == (steps, result.epsilon.upper)


@pytest.mark.parametrize(
    "setting",
    [
        {"steps": 5_000},
        {"steps": 3_000, "sampling": FixedSizeSampling()},
        {"steps": 625, "noise_multiplier": None, "epsilon": 2.0},
    ],
)
def test_long_runs_are_bounded_at_every_count(setting):
    a_plan = Plan(
        examples=1_000, batch_size=64, delta=1e-5, clipping=FlatClip(1.0),
        **{"noise_multiplier": 1.8562596565251759} | setting,
    )  # fmt: skip
    ledger = RunLedger(None, a_plan, enforce=True)
    course = EpsilonCourse(ledger, a_plan.delta)
    wanted = set(np.unique(np.geomspace(1, a_plan.steps, 60).astype(int)).tolist())
    found = []
    for step in range(a_plan.steps):
        ledger.record(step)
        bound = course.now()
        if step + 1 in wanted:
            found.append((step + 1, bound))
    assert_bounds(found, a_plan)
    for counted, bound in found:
        near = lower(a_plan, min(-(-counted * 5 // 4), a_plan.steps))
        assert bound <= near * 1.002, counted
    assert bound == a_plan.loss.epsilon_bounds(a_plan.delta).upper


def test_few_bounds_are_computed(monkeypatch):
    a_plan = plan(steps=2_000)
    ledger = RunLedger(None, a_plan, enforce=True)
    course, asked = EpsilonCourse(ledger, a_plan.delta), []
    monkeypatch.setattr(course, "_bound_at", lambda _, count: asked.append(count) or float(count))
    for step in range(2_000):
        ledger.record(step)
        assert course.now() >= step + 1
    assert len(asked) <= 45


def test_earlier_plans_are_in_the_bound(tmp_path):
    first, second = plan(steps=20), plan(steps=30, noise_multiplier=1.5)
    with RunLedger(tmp_path / "ledger.jsonl", first) as ledger:
        for step in range(5):
            ledger.record(step)
    with RunLedger(tmp_path / "ledger.jsonl", second) as ledger:
        course = EpsilonCourse(ledger, second.delta)
        for step in range(30):
            ledger.record(step)
            assert course.now() >= ledger.loss.epsilon_bounds(second.delta).lower


def test_resumed_run_logs_one_history(tmp_path):
    a_plan, path = plan(steps=40), tmp_path / "steps.csv"
    with pytest.raises(Killed):
        trainer(tmp_path / "run", model(), logs=Logs(callbacks=[CSVLog(path), Kill(7)])).fit(data())
    assert [int(row["step"]) for row in rows_of(path)] == [1, 2, 3, 4, 5, 6, 7]
    result = trainer(tmp_path / "run", model(), logs=Logs(callbacks=[CSVLog(path)])).fit(data())
    rows = rows_of(path)
    assert [int(row["step"]) for row in rows] == list(range(1, 38))
    counted = [int(row["counted"]) for row in rows]
    assert counted == [1, 2, 3, 4, *range(8, 41)]
    assert_bounds([(int(row["counted"]), float(row["epsilon"])) for row in rows], a_plan)
    assert float(rows[-1]["epsilon"]) == result.epsilon.upper


def test_last_row_states_the_result_if_no_step_was_left(tmp_path):
    a_plan, path = plan(steps=40), tmp_path / "steps.csv"
    with pytest.raises(Killed):
        trainer(tmp_path / "run", model(), logs=Logs(callbacks=[CSVLog(path), Kill(6)])).fit(data())
    with RunLedger(tmp_path / "run" / "ledger.jsonl", a_plan) as ledger:
        for step in range(34):
            ledger.record(step)
    result = trainer(tmp_path / "run", model(), logs=Logs(callbacks=[CSVLog(path)])).fit(data())
    rows = rows_of(path)
    assert [int(row["step"]) for row in rows] == [1, 2, 3, 4]
    assert rows[-1]["counted"] == "40"
    assert float(rows[-1]["epsilon"]) == result.epsilon.upper


def test_last_row_is_that_of_the_last_step_whatever_lies_between(tmp_path):
    path = tmp_path / "steps.csv"
    with pytest.raises(Killed):
        trainer(tmp_path / "run", model(), logs=Logs(callbacks=[Kill(7)])).fit(data())
    trainer(tmp_path / "run", model(), logs=Logs(callbacks=[CSVLog(path, every=10)])).fit(data())
    assert [row["step"] for row in rows_of(path)] == ["10", "20", "30", "37"]
    before = path.read_bytes()
    trainer(tmp_path / "run", model(), logs=Logs(callbacks=[CSVLog(path, every=10)])).fit(data())
    assert path.read_bytes() == before


def test_board_shows_one_history_rounded_up(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board, a_plan = tmp_path / "board", plan(steps=40)
    with pytest.raises(Killed):
        trainer(
            tmp_path / "run", model(), logs=Logs(callbacks=[TensorBoardLog(board), Kill(7)])
        ).fit(data())
    result = trainer(tmp_path / "run", model(), logs=Logs(callbacks=[TensorBoardLog(board)])).fit(
        data()
    )
    points = EventAccumulator(str(board)).Reload().Scalars("privacy/epsilon")
    assert [point.step for point in points] == list(range(1, 38))
    counts = [1, 2, 3, 4, *range(8, 41)]
    assert_bounds([(n, point.value) for n, point in zip(counts, points, strict=True)], a_plan)
    assert result.epsilon.upper <= points[-1].value <= result.epsilon.upper * (1 + 1e-6)


# --- rows in files -------------------------------------------------------------------------------


def written(path, *steps, tail=""):
    rows = "".join(f"{step},{step}\r\n" for step in steps)
    path.write_bytes(f"step,epsilon\r\n{rows}{tail}".encode())
    return StepRows(path)


def test_rows_of_an_earlier_run_stay(tmp_path):
    rows = written(tmp_path / "log.csv", 1, 2, 3, 1, 2, tail="3,")
    rows.drop_after(0)
    assert [row["step"] for row in rows_of(tmp_path / "log.csv")] == ["1", "2", "3"]


def test_rows_that_cannot_be_read_stay(tmp_path):
    rows = written(tmp_path / "log.csv", 1, "of another tool", 2)
    rows.drop_after(0)
    assert len(rows_of(tmp_path / "log.csv")) == 2


def test_columns_of_the_file_are_kept(tmp_path):
    rows = written(tmp_path / "log.csv", 1)
    rows.append({"step": 2, "counted": 5, "epsilon": 0.5})
    assert rows.last() == {"step": "2", "epsilon": "0.5"}


def test_a_file_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "log.csv").write_text("name,address\n")
    log = CSVLog(tmp_path / "log.csv")
    with pytest.raises(ValueError, match="no column 'step'"):
        PrivateTrainer(model(), LOSS, plan(), logs=Logs(callbacks=[log])).fit(data())
    assert (tmp_path / "log.csv").read_text() == "name,address\n"


def test_a_row_can_be_logged_by_hand(tmp_path):
    log = CSVLog(tmp_path / "log.csv")
    log.on_step_end(None, StepEnd(1, 2, 0.5, 0.1, None))
    assert rows_of(tmp_path / "log.csv")[0]["epsilon"] == "0.1"
