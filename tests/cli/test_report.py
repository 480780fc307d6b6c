"""``taut report``."""

import json

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


def test_a_mistake_is_explained(refusal, tmp_path):
    assert str(tmp_path) in refusal(f"report {tmp_path}")
