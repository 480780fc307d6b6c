"""Runs that are killed go on, and no update goes uncounted."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from training.runs import Kill, Killed, data, model, plan, sgd, weights

from taut.errors import UnsoundConfiguration
from taut.noise import SeededForExperiments
from taut.training import (
    Checkpointing,
    Logs,
    Plan,
    PrivateTrainer,
    RunHistory,
    RunLedger,
    TrainingResult,
)

LOSS = nn.CrossEntropyLoss(reduction="none")
SCRIPT = Path(__file__).parents[1] / "killed_runs.py"


def trainer(directory, net, *, steps=40, seed=5, **options):
    generator = None if seed is None else SeededForExperiments(seed=seed)
    settings = {
        "optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        "scheduler": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 7),
        "ema": 0.9,
        "checkpoints": Checkpointing(every=4),
    }
    return PrivateTrainer(
        net, LOSS, plan(steps=steps), run_dir=directory, generator=generator, **settings | options
    )


def test_resumed_experiment_ends_where_the_undisturbed_one_does(tmp_path):
    whole = model()
    undisturbed = trainer(tmp_path / "whole", whole, steps=13)
    undisturbed.fit(data())
    with pytest.raises(Killed):
        trainer(tmp_path / "cut", model(), steps=13, logs=Logs(callbacks=[Kill(8)])).fit(data())
    net = model(seed=99)
    resumed = trainer(tmp_path / "cut", net, steps=13)
    result = resumed.fit(data())
    assert (result.steps, result.counted_steps) == (13, 13)
    # Bit by bit: sampling, noise, moments, learning rate and average went on.
    assert torch.equal(weights(net), weights(whole))
    with resumed.averaged(), undisturbed.averaged():
        assert torch.equal(weights(net), weights(whole))


def test_steps_after_the_checkpoint_count_again(tmp_path):
    with pytest.raises(Killed):
        trainer(tmp_path, model(), logs=Logs(callbacks=[Kill(7)])).fit(data())
    result = trainer(tmp_path, model()).fit(data())
    # The checkpoint is that of step 4: steps 5 to 7 were taken twice, at the price of the last 3.
    assert (result.steps, result.counted_steps) == (37, 40)
    assert result.stopped_at_budget
    assert result.epsilon.upper <= plan(steps=40).epsilon * (1 + 1e-9)
    assert "Stopped at the budget after 37 of 40" in result.statement


def test_old_checkpoint_resumed_twice_counts_every_time(tmp_path):
    old = tmp_path / "old.pt"
    with pytest.raises(Killed):
        trainer(tmp_path / "run", model(), logs=Logs(callbacks=[Kill(9)])).fit(data())
    shutil.copy(tmp_path / "run" / "checkpoint.pt", old)  # that of step 8
    for _ in range(2):
        shutil.copy(old, tmp_path / "run" / "checkpoint.pt")
        with pytest.raises(Killed):
            trainer(tmp_path / "run", model(), logs=Logs(callbacks=[Kill(12)])).fit(data())
    history = RunHistory.read(tmp_path / "run" / "ledger.jsonl")
    assert history.steps == 9 + 4 + 4
    assert history.loss == plan(steps=17).loss


def test_finished_run_is_not_trained_again(tmp_path):
    first, again = model(), model(seed=99)
    result = trainer(tmp_path, first).fit(data())
    repeated = trainer(tmp_path, again).fit(data())
    assert repeated == result == TrainingResult.from_json((tmp_path / "result.json").read_text())
    assert torch.equal(weights(first), weights(again))


def test_resume_takes_the_plan_of_the_run(tmp_path):
    with pytest.raises(Killed):
        PrivateTrainer(
            model(),
            LOSS,
            plan(steps=9),
            run_dir=tmp_path,
            checkpoints=Checkpointing(every=2),
            logs=Logs(callbacks=[Kill(4)]),
        ).fit(data())
    resumed = PrivateTrainer.resume(tmp_path, model(), LOSS)
    assert resumed.plan == plan(steps=9)
    assert resumed.fit(data()).steps == 9
    with pytest.raises(ValueError, match="no run was begun"):
        PrivateTrainer.resume(tmp_path / "nowhere", model(), LOSS)


def test_lost_checkpoint_begins_anew_at_the_price_of_what_was_seen(tmp_path):
    with pytest.raises(Killed):
        trainer(tmp_path, model(), logs=Logs(callbacks=[Kill(9)])).fit(data())
    (tmp_path / "checkpoint.pt").unlink()
    result = trainer(tmp_path, model()).fit(data())
    assert (result.steps, result.counted_steps) == (31, 40)


def test_another_plan_is_refused(tmp_path):
    trainer(tmp_path, model()).fit(data())
    with pytest.raises(UnsoundConfiguration, match="another plan"):
        trainer(tmp_path, model(), steps=41).fit(data())


def test_never_resuming_refuses_a_directory_in_use(tmp_path):
    trainer(tmp_path, model()).fit(data(), resume="never")
    with pytest.raises(ValueError, match="holds a run"):
        trainer(tmp_path, model()).fit(data(), resume="never")


def test_second_process_is_refused(tmp_path):
    with RunLedger(tmp_path / "ledger.jsonl", plan(steps=40)):
        code = (
            "from pathlib import Path; from torch import nn; "
            "from training.run.test_resume import trainer, model, data; "
            f"trainer(Path({str(tmp_path)!r}), model()).fit(data())"
        )
        completed = run_python("-c", code)
        assert completed.returncode != 0
        assert "open elsewhere" in completed.stderr
        with pytest.raises(UnsoundConfiguration, match="open elsewhere"):
            trainer(tmp_path, model()).fit(data())


def test_what_the_run_began_with_must_be_given_again(tmp_path):
    trainer(tmp_path, model()).fit(data())
    with pytest.raises(ValueError, match="ema must be given again"):
        trainer(tmp_path, model(), ema=None).fit(data())
    with pytest.raises(ValueError, match="scheduler must be given again"):
        trainer(tmp_path, model(), scheduler=None).fit(data())
    with pytest.raises(UnsoundConfiguration, match="seed"):
        trainer(tmp_path, model(), seed=None).fit(data())


@pytest.mark.parametrize("content", [b"", b"no checkpoint"])
def test_damaged_checkpoint_is_refused(tmp_path, content):
    trainer(tmp_path, model()).fit(data())
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(ValueError, match="cannot read the checkpoint"):
        trainer(tmp_path, model()).fit(data())


def test_other_files_are_no_checkpoints(tmp_path):
    trainer(tmp_path, model()).fit(data())
    torch.save({"schema": "other"}, tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match="not a checkpoint"):
        trainer(tmp_path, model()).fit(data())


def test_failed_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    def fail(_, file):
        file.write(b"half of it")
        raise OSError("disk full")

    with pytest.raises(Killed):
        trainer(tmp_path, model(), logs=Logs(callbacks=[Kill(5)])).fit(data())
    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        trainer(tmp_path, model()).fit(data())
    monkeypatch.undo()
    assert trainer(tmp_path, model()).fit(data()).counted_steps == 40


def test_interrupted_run_in_memory_goes_on():
    net = model()
    kill = Kill(3)
    private = PrivateTrainer(net, LOSS, plan(), optimizer=sgd(net), logs=Logs(callbacks=[kill]))
    with pytest.raises(Killed):
        private.fit(data())
    result = private.fit(data())
    assert (result.steps, result.counted_steps) == (6, 6)


def run_python(*arguments):
    root = Path(__file__).parents[3]
    paths = os.pathsep.join([str(root / "src"), str(root / "tests")])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_killed_runs_count_every_update_that_was_seen(tmp_path):
    completed = run_python(str(SCRIPT), str(tmp_path / "run"), "12", "2026")
    assert completed.returncode == 0, completed.stderr
    kills, seen, steps, counted = map(int, completed.stdout.split())
    assert kills == 12
    assert counted >= seen >= steps > 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    a_plan = Plan.from_dict(result["plan"])
    assert counted <= a_plan.steps
    assert result["epsilon"]["upper"] >= a_plan.loss_at(seen).epsilon_bounds(a_plan.delta).lower
    assert RunHistory.read(tmp_path / "run" / "ledger.jsonl").steps == counted


# --- ledgers that were lost ----------------------------------------------------------------------


def emptied(path):
    path.write_bytes(b"")


def cut_off(path):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))


@pytest.mark.parametrize("lose", [Path.unlink, emptied, cut_off])
def test_lost_ledger_is_refused(tmp_path, lose):
    with pytest.raises(Killed):
        trainer(tmp_path, model(), logs=Logs(callbacks=[Kill(32)])).fit(data())
    path = tmp_path / "ledger.jsonl"
    kept = path.read_bytes()
    lose(path)
    with pytest.raises(UnsoundConfiguration, match=r"knows of 32.*Restore ledger\.jsonl"):
        trainer(tmp_path, model()).fit(data())
    path.write_bytes(kept)
    assert trainer(tmp_path, model()).fit(data()).counted_steps == 40


def test_lost_ledger_without_a_checkpoint_is_refused(tmp_path):
    trainer(tmp_path, model(), steps=2).fit(data())
    (tmp_path / "checkpoint.pt").unlink()
    emptied(tmp_path / "ledger.jsonl")
    with pytest.raises(UnsoundConfiguration, match=r"restore ledger\.jsonl"):
        trainer(tmp_path, model(), steps=2).fit(data())


def test_result_of_uncounted_updates_is_refused():
    with pytest.raises(UnsoundConfiguration, match="only counted_steps=0"):
        TrainingResult.of(plan(), RunLedger(None, plan()).history, steps=1, is_secure=True)
