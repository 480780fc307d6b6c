"""``taut train`` and ``taut resume``."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from runs.configs import write_config, write_points
from training.runs import append_entry

from taut.training import Plan, RunHistory, RunLedger

torch.set_num_threads(1)


@pytest.fixture
def config(tmp_path):
    write_points(tmp_path)
    return write_config(tmp_path)


def test_result_is_the_statement(run_json, config):
    answer = run_json(f"train {config}")
    directory = config.parent / "run"
    stated = json.loads((directory / "result.json").read_text())
    assert {key: answer[key] for key in stated} == stated
    assert answer["held_out"]["examples"] == 50
    assert answer["directory"] == str(directory)
    again = run_json(f"resume {directory}")
    assert {key: again[key] for key in stated} == stated


def test_page_names_promise_and_files(run, config):
    page = run(f"train {config}").stdout
    words = ("certified upper bound", "certified lower bound", "add_remove", "poisson", "held out")
    for word in (*words, "6 of 6, 6 counted", str(config.parent / "run")):
        assert word in page


def test_seed_is_called_an_experiment(run, tmp_path):
    write_points(tmp_path)
    path = write_config(tmp_path, training={"seed": 1})
    assert "an experiment, not a promise" in run(f"train {path}").stdout


def test_dry_run_trains_nothing(run, run_json, config):
    page = run(f"train {config} --dry-run").stdout
    assert "6 steps of 20 examples out of 100" in page
    assert "26 trainable parameters" in page
    plan = Plan.from_dict(run_json(f"train {config} --dry-run"))
    assert plan.epsilon == 3.0
    assert not (config.parent / "run").exists()


def test_a_run_in_use_has_an_exit_code_of_its_own(run, config):
    run(f"train {config}")
    directory = config.parent / "run"
    plan = Plan.from_json((directory / "plan.json").read_text())
    with RunLedger(directory / "ledger.jsonl", plan):
        result = run(f"resume {directory}")
    assert result.exit_code == 3
    assert "open elsewhere, in another process" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_interrupt_says_how_to_go_on(run, config, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("taut.training.PrivateTrainer.evaluate", interrupted)
    result = run(f"train {config}")
    assert result.exit_code == 130
    assert f"go on with: taut resume {config.parent / 'run'}" in result.stderr
    monkeypatch.undo()
    assert run(f"resume {config.parent / 'run'}").exit_code == 0


# The command, which says that it trains and waits in its fiftieth step until it may go on: however
# slow this process is, the signal comes between the first step and the last.
HELD = """
import time
from pathlib import Path
from torch.optim.optimizer import register_optimizer_step_post_hook
from taut.cli import main
folder, updates = Path({folder!r}), []
def hold(*_):
    updates.append(1)
    (folder / "trains").touch()
    while len(updates) == 50 and not (folder / "signalled").exists():
        time.sleep(0.01)
register_optimizer_step_post_hook(hold)
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_an_interrupted_run_goes_on_where_it_stopped(run, tmp_path, number, code):
    write_points(tmp_path)
    plan = {"steps": 500, "noise_multiplier": 8.0, "epsilon": None}
    config = write_config(tmp_path, plan=plan, run={"checkpoint_seconds": 60.0})
    child = subprocess.Popen(
        [sys.executable, "-c", HELD.format(folder=str(tmp_path)), "train", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = tmp_path / "run" / "metrics.csv"
    while not (tmp_path / "trains").exists() and child.poll() is None:
        time.sleep(0.01)
    child.send_signal(number)
    (tmp_path / "signalled").touch()
    output, errors = child.communicate(timeout=600)
    assert (child.returncode, output) == (code, "")
    (after,) = RunHistory.read(tmp_path / "run" / "ledger.jsonl").interrupts
    assert 0 < after <= 50
    assert f"Interrupted after step {after} of 500; go on with: taut resume" in errors
    result = run(f"resume {tmp_path / 'run'} --json")
    assert result.stderr == f"Going on after step {after} of 500\n"
    answer = json.loads(result.stdout)
    assert (answer["steps"], answer["counted_steps"]) == (500, 500)
    rows = list(csv.DictReader(metrics.read_text().splitlines()))
    assert [int(row["step"]) for row in rows] == list(range(1, 501))
    assert float(rows[-1]["epsilon"]) == answer["epsilon"]["upper"]


def test_an_interrupt_before_the_first_step_leaves_nothing(run, config, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("taut.training.PrivateTrainer.fit", interrupted)
    result = run(f"train {config}")
    assert result.exit_code == 130
    assert result.stderr == "Interrupted before the first step: nothing was trained or spent\n"
    assert not (config.parent / "run").exists()


def test_lost_steps_are_named_when_a_run_goes_on(run, config):
    run(f"train {config}")
    directory = config.parent / "run"
    for name in ("checkpoint.pt", "model.pt", "result.json"):
        (directory / name).unlink()
    ledger = directory / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text(lines[0])
    append_entry(ledger, {"reserve": 4, "step": 0})
    words = "Going on after step 0 of 6; 4 further steps count, of which no checkpoint was written"
    assert words in run(f"resume {directory}").stderr


def test_a_file_cannot_run_commands(refusal, tmp_path):
    write_points(tmp_path)
    ran = tmp_path / "ran"
    model = {"name": "os:system", "widths": None, "command": f"touch {ran}"}
    config = write_config(tmp_path, model=model)
    for options in ("", " --dry-run", " --allow-code os", " --allow-code os --dry-run"):
        message = refusal(f"train {config}{options}")
        assert "--allow-code os" in message or "cannot import 'os'" in message
    assert not ran.exists()
    assert not (tmp_path / "run").exists()


def test_code_is_run_if_it_is_allowed_and_ones_own(run, refusal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_points(tmp_path)
    (tmp_path / "allowed_net.py").write_text(
        "from torch import nn\ndef make(): return nn.Linear(3, 2)\n"
    )
    config = write_config(tmp_path, model={"name": "allowed_net:make", "widths": None})
    assert "add --allow-code allowed_net" in refusal(f"train {config}")
    assert run(f"train {config} --dry-run --allow-code allowed_net").exit_code == 0
    assert run(f"train {config} --allow-code allowed_net").exit_code == 0
    assert "add --allow-code allowed_net" in refusal(f"resume {tmp_path / 'run'}")
    assert run(f"resume {tmp_path / 'run'} --allow-code allowed_net").exit_code == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan": {"epsilonn": 3}}, "unknown key 'epsilonn'; did you mean 'epsilon'?"),
        ({"plan": {"epsilon": 1e-4, "batch_size": 1}}, "Any one of these would suffice"),
        ({"data": {"path": "none.npz"}}, "there is no file"),
        ({"model": {"widths": [9, 2]}}, "cannot take an input of shape [3]"),
        ({"model": {"widths": [3, 1]}}, "labels must be from 0 to 0"),
        ({"model": {"name": "broken:make", "widths": None}}, "ZeroDivisionError"),
    ],
)
def test_a_mistake_is_explained(refusal, tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    write_points(tmp_path)
    (tmp_path / "broken.py").write_text("def make(): return 1 / 0\n")
    config = write_config(tmp_path, **changes)
    assert message in refusal(f"train {config} --allow-code broken")


def test_a_missing_file_is_explained(refusal, tmp_path):
    assert "none.toml" in refusal(f"train {tmp_path / 'none.toml'}")


def test_a_run_is_begun_once(refusal, run, config):
    run(f"train {config}")
    assert "already holds a run" in refusal(f"train {config}")


def test_there_must_be_a_run(refusal, tmp_path):
    assert "no run was begun" in refusal(f"resume {tmp_path}")


def test_without_torch_the_extra_is_named(config):
    code = "import sys; sys.modules['torch'] = None; from taut.cli import main; main()"
    completed = subprocess.run(
        [sys.executable, "-c", code, "train", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 2
    assert completed.stderr == "Error: this needs PyTorch: pip install 'taut[torch]'\n"
