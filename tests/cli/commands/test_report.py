"""``taut report``."""

import json
import os
import subprocess
import sys

import pytest
import torch
from runs.configs import write_config, write_points

pytest.importorskip("matplotlib")
torch.set_num_threads(1)


@pytest.fixture
def trained(run, tmp_path):
    write_points(tmp_path)
    config = write_config(tmp_path, run={"directory": "run", "unit": "patient"})
    assert run(f"train {config}").exit_code == 0
    return tmp_path / "run"


def test_report_is_about_the_unit_of_the_run(run, run_json, trained):
    page = run(f"report {trained}").stdout
    assert str(trained / "report" / "index.html").replace("\n", "") in page.replace("\n", "")
    assert "patient" in (trained / "report" / "index.html").read_text()
    answer = run_json(f"report {trained} --unit visit --output {trained / 'other'}")
    assert answer["unit"] == "visit"
    stated = json.loads((trained / "result.json").read_text())
    assert answer["epsilon"]["upper"] == stated["epsilon"]["upper"]
    assert (trained / "other" / "index.html").exists()


def test_title_owner_and_dataset(run_json, trained):
    answer = run_json(f"report {trained} --title Digits --owner Team-A --dataset MNIST")
    assert answer["title"] == "Privacy report: Digits"
    assert (answer["owner"], answer["dataset"]) == ("Team-A", "MNIST")
    assert "<h1>Privacy report: Digits</h1>" in (trained / "report" / "index.html").read_text()


def test_terminals_without_greek_letters(trained):
    """In a process of its own, whose standard output really is in ASCII."""
    completed = subprocess.run(
        [sys.executable, "-m", "taut", "report", str(trained)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert "(epsilon = " in completed.stdout


def test_a_mistake_is_explained(refusal, tmp_path):
    assert str(tmp_path) in refusal(f"report {tmp_path}")
