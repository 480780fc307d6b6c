"""``taut audit``, and what ``taut report`` makes of it."""

import json

import pytest
import torch
from runs.configs import write_config, write_points

pytest.importorskip("matplotlib")
torch.set_num_threads(1)


@pytest.fixture
def trained(run, tmp_path):
    write_points(tmp_path)
    assert run(f"train {write_config(tmp_path, run={'directory': 'run'})}").exit_code == 0
    return tmp_path / "run"


def test_interval_closes_from_both_sides_and_is_reported(run, run_json, trained):
    page = run(f"audit {trained} --trials 5000").stdout
    assert "attack >= " in page
    assert "certified <= " in page
    kept = json.loads((trained / "audit.json").read_text())
    stated = json.loads((trained / "result.json").read_text())
    assert kept["epsilon_lower"] <= kept["epsilon_upper"] <= 1.01 * stated["epsilon"]["upper"]
    answer = run_json(f"report {trained}")
    assert answer["simulated_attack"]["epsilon_lower"] == kept["epsilon_lower"]
    written = (trained / "report" / "index.html").read_text()
    assert "From both sides" in written
    assert 'aria-labelledby="both-sides-title' in written


def test_statement_that_an_attack_exceeds_is_refuted(run, refusal, trained):
    run(f"audit {trained} --trials 2000")
    kept = json.loads((trained / "audit.json").read_text())
    (trained / "audit.json").write_text(json.dumps(kept | {"epsilon_lower": 99.0}))
    assert "refuted" in refusal(f"report {trained}")
    (trained / "audit.json").write_text(json.dumps(kept | {"delta": 0.5}))
    assert "run taut audit again" in refusal(f"report {trained}")
    (trained / "audit.json").write_text(json.dumps(kept | {"steps": kept["steps"] + 1}))
    assert f"at most the {kept['steps']} steps" in refusal(f"report {trained}")


def test_report_says_that_an_attack_is_some_steps_old(run, trained):
    run(f"audit {trained} --trials 2000")
    kept = json.loads((trained / "audit.json").read_text())
    run(f"report {trained}")
    assert "It is about the first" not in (trained / "report" / "index.html").read_text()
    (trained / "audit.json").write_text(json.dumps(kept | {"steps": 1}))
    run(f"report {trained}")
    words = f"It is about the first 1 of {kept['steps']} steps"
    assert words in (trained / "report" / "index.html").read_text()


def test_report_without_an_audit_says_nothing_of_one(run, trained):
    run(f"report {trained}")
    assert "From both sides" not in (trained / "report" / "index.html").read_text()


def test_a_search_is_no_run(refusal, tmp_path):
    (tmp_path / "tuning.json").write_text("{}")
    told = refusal(f"audit {tmp_path}")
    assert "holds a search" in told
    assert f"taut verify {tmp_path / 'statement.json'}" in told


def test_no_run(refusal, tmp_path):
    assert str(tmp_path) in refusal(f"audit {tmp_path}")
