"""``taut train`` and ``taut resume``."""

import json
import subprocess
import sys

import pytest
import torch
from runs.configs import write_config, write_points

from taut.training import Plan, RunLedger

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
    assert "26 trainable numbers" in page
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

    monkeypatch.setattr("taut.runs.train", interrupted)
    result = run(f"train {config}")
    assert result.exit_code == 130
    assert f"go on with: taut resume {config.parent / 'run'}" in result.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan": {"epsilonn": 3}}, "unknown key 'epsilonn'; did you mean 'epsilon'?"),
        ({"plan": {"epsilon": 1e-4, "batch_size": 1}}, "It would do to have"),
        ({"data": {"path": "none.npz"}}, "there is no file"),
        ({"model": {"widths": [9, 2]}}, "cannot take an input of shape [3]"),
        ({"model": {"widths": [3, 1]}}, "labels must be from 0 to 0"),
        ({"model": {"name": "broken:make", "widths": None}}, "ZeroDivisionError"),
    ],
)
def test_a_mistake_is_explained(refusal, tmp_path, changes, message):
    write_points(tmp_path)
    (tmp_path / "broken.py").write_text("def make(): return 1 / 0\n")
    assert message in refusal(f"train {write_config(tmp_path, **changes)}")


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
