"""The ledger never counts fewer steps than became visible."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from taut.accounting import zero
from taut.errors import AdjacencyMismatch, BudgetExceeded, UnsoundConfiguration
from taut.training import FixedSizeSampling, FlatClip, Plan, RunHistory, RunLedger

SIZES = {"examples": 10_000, "batch_size": 100, "clipping": FlatClip(1.0)}
PLAN = Plan(**SIZES, steps=200, noise_multiplier=1.0, delta=1e-5)
OTHER = Plan(**SIZES, steps=200, noise_multiplier=1.5, delta=1e-5)


def take(ledger, steps):
    for step in range(steps):
        ledger.record(step)


def test_memory_counts_every_record():
    with RunLedger(None, PLAN) as ledger:
        assert (ledger.steps, ledger.loss, ledger.epsilon(1e-5)) == (0, zero(), 0.0)
        take(ledger, 5)
    assert ledger.steps == 5
    assert ledger.loss == 5 * PLAN.step_loss
    assert ledger.epsilon(1e-5) == PLAN.epsilon_at(5)
    assert ledger.epsilon(1e-6) == (5 * PLAN.step_loss).epsilon(1e-6)


def test_closed_ledger_holds_exactly_what_was_recorded(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunLedger(path, PLAN, block=8) as ledger:
        take(ledger, 11)
    assert RunHistory.read(path).steps == ledger.steps == 11
    assert json.loads(path.read_text().splitlines()[0])["run"] == PLAN.to_dict()


def test_reader_sees_reserved_steps_while_the_run_goes_on(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunLedger(path, PLAN, block=8) as ledger:
        ledger.record(0)
        assert RunHistory.read(path).steps == 8
        assert ledger.steps == 1


def test_going_back_to_an_old_checkpoint_counts_all_steps(tmp_path):
    path = tmp_path / "run.jsonl"
    for _ in range(3):
        with RunLedger(path, PLAN) as ledger:
            take(ledger, 4)
    assert ledger.steps == 12
    assert len(ledger.history.segments) == 1


def test_another_plan_begins_a_segment_and_losses_add(tmp_path):
    path = tmp_path / "run.jsonl"
    for plan, steps in ((PLAN, 3), (OTHER, 2)):
        with RunLedger(path, plan) as ledger:
            take(ledger, steps)
    assert ledger.loss == 3 * PLAN.step_loss + 2 * OTHER.step_loss
    assert RunHistory.read(path).loss == ledger.loss


def test_another_relation_is_refused_and_leaves_the_file_alone(tmp_path):
    path = tmp_path / "run.jsonl"
    RunLedger(path, PLAN).close()
    before = path.read_bytes()
    replace = Plan(
        **SIZES, steps=10, noise_multiplier=1.0, delta=1e-5, sampling=FixedSizeSampling()
    )
    with pytest.raises(AdjacencyMismatch, match="another ledger"):
        RunLedger(path, replace)
    assert path.read_bytes() == before


def test_enforced_budget_allows_the_planned_steps_and_no_more():
    plan = Plan(**SIZES, steps=5, noise_multiplier=1.0, delta=1e-5)
    ledger = RunLedger(None, plan, enforce=True)
    take(ledger, 5)
    with pytest.raises(BudgetExceeded, match="step 5 would exceed"):
        ledger.record(5)
    assert ledger.steps == 5
    assert ledger.epsilon(plan.delta) <= plan.epsilon


def test_enforced_budget_covers_earlier_segments(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunLedger(path, OTHER) as ledger:
        take(ledger, 50)
    ledger = RunLedger(path, PLAN, enforce=True)
    with pytest.raises(BudgetExceeded):
        take(ledger, 201)
    ledger.close()
    taken = ledger.history.segments[-1].steps
    assert 0 < taken < 200
    assert ledger.loss.epsilon(1e-5) <= PLAN.epsilon
    assert (ledger.loss + PLAN.step_loss).epsilon(1e-5) > PLAN.epsilon


def test_would_exceed_looks_ahead():
    ledger = RunLedger(None, PLAN)
    assert not ledger.would_exceed(PLAN.epsilon, 1e-5, steps=200)
    assert ledger.would_exceed(PLAN.epsilon_at(100), 1e-5, steps=101)
    assert ledger.would_exceed(0.0, 1e-5)


def test_not_enforced_a_run_may_go_on():
    ledger = RunLedger(None, Plan(**SIZES, steps=2, noise_multiplier=1.0, delta=1e-5))
    take(ledger, 4)
    assert ledger.loss == 4 * PLAN.step_loss


# --- what goes wrong ---------------------------------------------------------------------------


def recorded(path, steps, block=8):
    """Return the bytes of a ledger that was never closed."""
    ledger = RunLedger(path, PLAN, block=block)
    take(ledger, steps)
    content = path.read_bytes()
    ledger.close()
    return content


def near_the_end_of_a_line(content, end):
    return b"\n" in content[max(end - 4, 0) : end + 4]


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_every_cut_of_the_file_counts_at_least_what_was_durable(tmp_path, every):
    content = recorded(tmp_path / "whole.jsonl", 20)
    header = content.index(b"\n") + 1
    durable = {header: 0}
    for end in range(header, len(content) + 1):
        durable[end] = 8 * content[header:end].count(b"\n")
    for end in (*range(0, header, 97), *range(header, len(content) + 1)):
        if end > header and end % every and not near_the_end_of_a_line(content, end):
            continue
        path = tmp_path / "cut.jsonl"
        path.write_bytes(content[:end])
        lower = durable.get(end, 0)
        assert lower <= RunHistory.read(path).steps <= lower + 8
        with RunLedger(path, PLAN) as ledger:
            ledger.record(0)
        again = RunHistory.read(path)
        assert again.torn == 0
        assert lower + 1 <= again.steps == ledger.steps <= lower + 9
        path.unlink()


def test_torn_line_stays_counted_after_recovery(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(recorded(path, 3)[:-4])
    for _ in range(3):
        with RunLedger(path, PLAN) as ledger:
            assert ledger.steps == 8


def test_crash_while_recovering_is_recovered_from(tmp_path):
    path = tmp_path / "run.jsonl"
    content = recorded(path, 3)
    path.write_bytes(content[:-4] + b'\n{"to')
    with RunLedger(path, PLAN) as ledger:
        assert ledger.steps == 16
    assert RunHistory.read(path).steps == 16


def test_damage_in_the_middle_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    lines = recorded(path, 20).splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"\x00\x00\n", *lines[2:]]))
    with pytest.raises(ValueError, match="line 2 is damaged"):
        RunLedger(path, PLAN)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"reserve": -3}\n', "line 2 is malformed.*at least 1"),
        (b'{"return": 9}\n', "line 2 is malformed.*9 steps returned"),
        (b'{"what": 1}\n', "line 2 is malformed"),
    ],
)
def test_malformed_lines_are_refused(tmp_path, line, message):
    path = tmp_path / "run.jsonl"
    RunLedger(path, PLAN).close()
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(ValueError, match=message):
        RunHistory.read(path)


def test_a_file_that_is_no_ledger_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    with pytest.raises(ValueError, match="does not begin with"):
        RunLedger(path, PLAN)
    assert path.read_text() == "dear diary\n"


def test_unknown_schema_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    RunLedger(path, PLAN).close()
    path.write_text(path.read_text().replace("run-ledger/1", "run-ledger/9"))
    with pytest.raises(ValueError, match="expected schema"):
        RunLedger(path, PLAN)


def test_closed_ledger_takes_no_steps(tmp_path):
    for path in (None, tmp_path / "run.jsonl"):
        ledger = RunLedger(path, PLAN)
        ledger.close()
        ledger.close()
        with pytest.raises(UnsoundConfiguration, match="closed"):
            ledger.record(0)


def test_full_disk_stops_the_run_and_the_file_recovers(tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    ledger = RunLedger(path, PLAN, block=4)
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, line: write(file, line[:5]) and _full())
        with pytest.raises(OSError, match="No space"):
            ledger.record(0)
    with pytest.raises(UnsoundConfiguration, match="closed"):
        ledger.record(0)
    assert ledger.steps == 0
    with RunLedger(path, PLAN) as again:
        again.record(0)
    assert RunHistory.read(path).steps == 5


def _full():
    raise OSError(28, "No space left on device")


def test_second_opening_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunLedger(path, PLAN), pytest.raises(UnsoundConfiguration, match="open elsewhere"):
        RunLedger(path, PLAN)
    RunLedger(path, PLAN).close()


def test_bad_arguments():
    with pytest.raises(ValueError, match="plan must be a Plan"):
        RunLedger(None, "plan")
    with pytest.raises(ValueError, match="block must be at least 1"):
        RunLedger(None, PLAN, block=0)
    with pytest.raises(ValueError, match="step must be at least 0"):
        RunLedger(None, PLAN).record(-1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_neither_counts_nor_holds_the_lock(tmp_path):
    path = tmp_path / "run.jsonl"
    ledger = RunLedger(path, PLAN)
    ledger.record(0)
    context = multiprocessing.get_context("fork")
    queue, done = context.Queue(), context.Event()
    child = context.Process(target=_in_child, args=(ledger, queue, done))
    child.start()
    assert "closed" in queue.get(timeout=600)
    ledger.record(1)
    ledger.close()
    with RunLedger(path, PLAN) as again:  # while the child lives
        assert again.steps == 2
    done.set()
    child.join()


def _in_child(ledger, queue, done):
    try:
        ledger.record(0)
    except UnsoundConfiguration as error:
        queue.put(str(error))
    ledger.close()
    done.wait(600)


WRITER = textwrap.dedent(
    """
    import os, sys
    from taut.training import FlatClip, Plan, RunLedger
    plan = Plan(examples=10_000, batch_size=100, clipping=FlatClip(1.0), steps=200,
                noise_multiplier=1.0, delta=1e-5)
    seen = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
    # Every death is that of a child: imports are paid once.
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            ledger = RunLedger(sys.argv[1], plan, block=int(line))
            print("ready", os.getpid(), flush=True)
            step = 0
            while True:
                ledger.record(step)
                os.write(seen, b".")
                step += 1
        os.waitpid(child, 0)
        print("dead", flush=True)
    """
)


def wait_for(path, size):
    """Wait until a file is as large, however little of the machine its writer gets."""
    patience = time.monotonic() + 600
    while path.stat().st_size < size:
        assert time.monotonic() < patience
        time.sleep(1e-3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_moment_the_ledger_counts_every_visible_step(tmp_path):
    path, seen = tmp_path / "run.jsonl", tmp_path / "seen"
    seen.touch()
    chance = random.Random(1)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(seen)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as writer:
        for round_ in range(20):
            block = chance.choice([1, 2, 7, 64])
            print(block, file=writer.stdin, flush=True)
            word, process = writer.stdout.readline().split()
            assert word == "ready"
            if round_ == 0:
                with pytest.raises(UnsoundConfiguration, match="open elsewhere"):
                    RunLedger(path, PLAN)
            wait_for(seen, seen.stat().st_size + chance.randrange(20))
            time.sleep(chance.random() * 0.05)
            os.kill(int(process), signal.SIGKILL)
            assert writer.stdout.readline() == "dead\n"
            visible = seen.stat().st_size
            assert RunHistory.read(path).steps >= visible
        writer.stdin.close()
    assert visible > 100
    assert RunHistory.read(path).steps <= visible + 20 * 64
