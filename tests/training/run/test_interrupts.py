"""Interrupts: a run stops between two steps, keeps all of them, and goes on where it stopped."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from training.ranks import in_processes
from training.run.test_resume import Kill, Killed, trainer
from training.runs import data, model, plan, weights

from taut.training import Callback, Checkpointing, Logs, PrivateTrainer, RunHistory, RunLedger

LOSS = nn.CrossEntropyLoss(reduction="none")
PLAN = plan(steps=40)
ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")


def send(number=signal.SIGINT):
    os.kill(os.getpid(), number)


class Signal(Callback):
    """Sends signals to this process, as a key or another process does, after some step."""

    def __init__(self, after, *numbers):
        self._after = after
        self._numbers = numbers or (signal.SIGINT,)
        self.told = 0

    def on_step_end(self, trainer, event):
        if event.step == self._after:
            for number in self._numbers:
                send(number)

    def on_interrupt(self, trainer):
        self.told = trainer.step


def history(directory):
    return RunHistory.read(directory / "ledger.jsonl")


def handlers():
    return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)


def test_ctrl_c_loses_no_step(tmp_path):
    before, stop = handlers(), Signal(7)
    with pytest.raises(KeyboardInterrupt, match="after step 7 of 40"):
        trainer(tmp_path, model(), checkpoints=Checkpointing(), logs=Logs(callbacks=[stop])).fit(
            data()
        )
    assert handlers() == before
    assert stop.told == 7
    assert (history(tmp_path).steps, history(tmp_path).interrupts) == (7, (7,))
    assert not (tmp_path / "result.json").exists()
    result = trainer(tmp_path, model()).fit(data())
    assert (result.steps, result.counted_steps, result.stopped_at_budget) == (40, 40, False)
    found = history(tmp_path)
    assert (found.interrupts, found.crashes) == ((7,), ())


def test_interrupted_experiment_ends_where_the_undisturbed_one_does(tmp_path):
    straight, stopped = model(), model()
    trainer(tmp_path / "a", straight).fit(data())
    for after in (5, 6, 20, 21):
        with pytest.raises(KeyboardInterrupt):
            trainer(tmp_path / "b", stopped, logs=Logs(callbacks=[Signal(after)])).fit(data())
    trainer(tmp_path / "b", stopped).fit(data())
    assert torch.equal(weights(straight), weights(stopped))
    assert history(tmp_path / "b").steps == 40


def test_sigterm_exits_with_its_code(tmp_path):
    with pytest.raises(SystemExit) as ended:
        trainer(tmp_path, model(), logs=Logs(callbacks=[Signal(3, signal.SIGTERM)])).fit(data())
    assert ended.value.code == 143
    assert history(tmp_path).interrupts == (3,)
    assert trainer(tmp_path, model()).fit(data()).counted_steps == 40


def test_second_signal_stops_at_once(tmp_path):
    before = handlers()
    stop = Signal(6, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="at once"):
        trainer(tmp_path, model(), logs=Logs(callbacks=[stop])).fit(data())
    assert handlers() == before
    assert history(tmp_path).interrupts == ()
    result = trainer(tmp_path, model()).fit(data())
    # The checkpoint is that of step 4.
    assert (result.steps, result.counted_steps) == (38, 40)
    assert history(tmp_path).crashes == (2,)


def test_before_the_first_step_nothing_is_counted(tmp_path):
    class Early(Callback):
        def on_fit_start(self, trainer):
            send()

    with pytest.raises(KeyboardInterrupt, match="after step 0"):
        trainer(tmp_path, model(), logs=Logs(callbacks=[Early()])).fit(data())
    assert history(tmp_path).steps == 0
    assert (tmp_path / "ledger.jsonl").read_bytes().count(b"\n") == 1
    assert trainer(tmp_path, model()).fit(data()).counted_steps == 40


def test_during_the_checks_of_the_first_batch(tmp_path, monkeypatch):
    from taut.training._step import example_gradients

    def checked(*arguments, **options):
        send()
        return original(*arguments, **options)

    original = example_gradients.check_examples
    monkeypatch.setattr(example_gradients, "check_examples", checked)
    with pytest.raises(KeyboardInterrupt, match="after step 1 of"):
        trainer(tmp_path, model()).fit(data())
    monkeypatch.undo()
    assert trainer(tmp_path, model()).fit(data()).counted_steps == 40


def test_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    def saved(*arguments):
        if not sent:
            sent.append(True)
            send()
        original(*arguments)

    original, sent = torch.save, []
    monkeypatch.setattr(torch, "save", saved)
    with pytest.raises(KeyboardInterrupt, match="after step 4"):
        trainer(tmp_path, model()).fit(data())
    result = trainer(tmp_path, model()).fit(data())
    assert (result.steps, result.counted_steps) == (40, 40)


def test_in_the_last_step_the_run_is_finished_first(tmp_path):
    with pytest.raises(KeyboardInterrupt, match="after step 40 of 40"):
        trainer(tmp_path, model(), logs=Logs(callbacks=[Signal(40)])).fit(data())
    assert (tmp_path / "result.json").exists()
    assert history(tmp_path).interrupts == ()
    assert trainer(tmp_path, model()).fit(data()).counted_steps == 40


def test_in_evaluation_the_signal_is_pythons_own(tmp_path):
    private = trainer(tmp_path, model())
    private.fit(data())

    class Slow:
        def __len__(self):
            return 4

        def __getitem__(self, place):
            send()
            return data()[place]

    with pytest.raises(KeyboardInterrupt):
        private.evaluate(Slow())


def test_a_run_in_memory_goes_on():
    private = PrivateTrainer(model(), LOSS, PLAN, logs=Logs(callbacks=[Signal(5)]))
    with pytest.raises(KeyboardInterrupt):
        private.fit(data())
    result = private.fit(data())
    assert (result.steps, result.counted_steps) == (40, 40)


def test_handlers_of_others_are_left_alone(tmp_path):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        run = trainer(tmp_path, model(), logs=Logs(callbacks=[Signal(3, signal.SIGTERM)]))
        assert run.fit(data()).steps == 40
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_have_no_signals(tmp_path):
    found = []
    thread = threading.Thread(
        target=lambda: found.append(trainer(tmp_path, model()).fit(data()).steps)
    )
    thread.start()
    thread.join()
    assert found == [40]


class SlowExamples:
    """Examples that take a moment to fetch."""

    def __init__(self):
        self._data = data()

    def __len__(self):
        return len(self._data)

    def __getitem__(self, place):
        time.sleep(1e-3)
        return self._data[place]


WORKERS = """
import signal, torch
from training.runs import model, plan
from training.run.test_interrupts import LOSS, SlowExamples
from taut.training import Callback, Loading, Logs, PrivateTrainer
class Say(Callback):
    def on_step_end(self, trainer, event):
        print(event.step, flush=True)
torch.set_num_threads(1)
PrivateTrainer(
    model(), LOSS, plan(steps=100_000), run_dir={run!r}, loading=Loading(num_workers=1),
    logs=Logs(callbacks=[Say()]),
).fit(SlowExamples())
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, -2), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_a_key_that_reaches_workers_too_loses_no_step(tmp_path, number, code):
    places = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    run, said = tmp_path / "run", tmp_path / "said"
    # Into a file: of a pipe, communicate() does not see lines that were read ahead.
    with said.open("w") as lines:
        child = subprocess.Popen(
            [sys.executable, "-c", WORKERS.format(run=str(run))],
            env={**os.environ, "PYTHONPATH": places},
            stdout=lines,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    while said.read_text().count("\n") < 5 and child.poll() is None:
        time.sleep(1e-3)
    if number == signal.SIGINT:
        os.killpg(child.pid, number)  # as a terminal does
    else:
        child.send_signal(number)
    _, errors = child.communicate(timeout=600)
    assert child.returncode == code, errors
    last = max(map(int, said.read_text().split()))
    assert (history(run).steps, history(run).interrupts) == (last, (last,))
    saved = torch.load(run / "checkpoint.pt", weights_only=True)
    assert saved["step"] == last


def interrupted_in_one_process(rank, folder):
    """Interrupt one of two processes, three times; return where this one stopped, and why."""
    torch.set_num_threads(1)
    taken = []

    def count(*_):
        taken.append(True)
        if rank == 1 and len(taken) == 5:
            for _ in range(3):
                send()

    hook = register_optimizer_step_post_hook(count)
    private = trainer(folder, model(), checkpoints=Checkpointing())
    try:
        private.fit(data())
        found = "finished"
    except KeyboardInterrupt as stop:
        found = str(stop)
    hook.remove()
    return found, trainer(folder, model()).fit(data()).counted_steps


def test_processes_stop_together_whichever_is_asked(tmp_path):
    found = in_processes(interrupted_in_one_process, tmp_path)
    assert found == [("stopped after step 5 of 40", 40)] * 2
    assert (history(tmp_path).interrupts, history(tmp_path).crashes) == ((5,), ())


# --- what a ledger tells about stops -------------------------------------------------------------


def take(path, steps, first=0, **end):
    ledger = RunLedger(path, PLAN)
    for step in range(first, first + steps):
        ledger.record(step)
    if end.pop("crash", False):
        ledger._spare = 0  # a process that is killed returns nothing
    ledger.close(**end)
    return ledger.history


def test_history_tells_interrupts_from_crashes(tmp_path):
    path = tmp_path / "ledger.jsonl"
    take(path, 10, interrupted_after=10)
    take(path, 3, first=10, crash=True)  # 13 of them reserved, and not returned
    assert RunHistory.read(path).crashes == ()
    found = take(path, 2, first=11)
    assert (found.interrupts, found.crashes) == ((10,), (15,))
    assert RunHistory.read(path) == found
    assert found.steps == 10 + 16 + 2
    assert 13 + sum(found.crashes) == found.steps


def test_a_torn_line_is_part_of_the_crash(tmp_path):
    path = tmp_path / "ledger.jsonl"
    take(path, 16, crash=True)
    path.write_bytes(path.read_bytes() + b'{"reser')
    found = take(path, 1, first=12)
    assert found.crashes == (20,)
    assert RunHistory.read(path).crashes == (20,)
    assert found.steps == 16 + 16 + 1 == 13 + 20


def test_a_crash_by_an_error_is_no_interrupt(tmp_path):
    with pytest.raises(Killed):
        trainer(tmp_path, model(), logs=Logs(callbacks=[Kill(7)])).fit(data())
    trainer(tmp_path, model()).fit(data())
    found = history(tmp_path)
    assert (found.interrupts, found.crashes) == ((), (3,))


@pytest.mark.parametrize("line", ['{"return": 0, "interrupted": -1}', '{"return": 1.5}'])
def test_malformed_stops_are_refused(tmp_path, line):
    path = tmp_path / "ledger.jsonl"
    take(path, 3)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match="malformed"):
        RunHistory.read(path)
