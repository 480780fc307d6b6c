"""``taut tune``: what it shows, and what it keeps to itself."""

import json

import pytest
import torch
from runs.configs import write_config, write_points

torch.set_num_threads(1)


@pytest.fixture
def search(tmp_path):
    write_points(tmp_path)
    tune = {"trials": 2.0, "validation": "public"}
    tune["space"] = {"training.learning_rate": [0.1, 0.5]}
    return write_config(tmp_path, tune=tune, training={"seed": 3})


def test_page_shows_the_winner_and_what_it_hides(run, search):
    result = run(f"tune {search}")
    assert result.exit_code == 0, result.output
    words = ("learning_rate", "all trials", "not a promise", "add_remove", "an experiment")
    for word in (*words, "taut verify", str(search.parent / "run")):
        assert word in result.stdout
    assert "stays secret" in result.stderr


@pytest.mark.parametrize("training", [{"seed": 3}, {}])
def test_statement_is_certified_unless_there_was_a_seed(run, tmp_path, search, training):
    space = {"training.learning_rate": [0.1, 0.5]}
    tune = {"trials": 2.0, "validation": "public", "space": space}
    assert run(f"tune {write_config(tmp_path, tune=tune, training=training)}").exit_code == 0
    verified = run(f"verify {search.parent / 'run' / 'statement.json'}")
    assert verified.exit_code == len(training)
    assert ("its noise came from a seed" in verified.stdout) == bool(training)
    if not training:
        assert "not certified" not in verified.stdout
        assert "certified" in verified.stdout


def test_answer_in_json_is_a_statement(run_json, search):
    answer = run_json(f"tune {search}")
    assert answer["own_epsilon"] < answer["epsilon"]["upper"] <= 3.0
    assert json.loads((search.parent / "run" / "statement.json").read_text()).items() <= (
        answer.items()
    )


@pytest.mark.slow
def test_dry_run_shows_what_trials_cost_and_trains_nothing(run, run_json, search):
    page = run(f"tune {search} --dry-run").stdout
    assert "a setting is tried" in page
    assert "nothing was trained" in page
    assert not (search.parent / "run").exists()
    options = run_json(f"tune {search} --dry-run")["options"]
    assert [row["trials"] for row in options] == pytest.approx([1, 2, 5, 10, 20])


@pytest.mark.slow
def test_report_is_about_the_whole_search(run, run_json, search):
    answer = run_json(f"tune {search}")
    found = run_json(f"report {search.parent / 'run'}")
    assert found["epsilon"]["upper"] == pytest.approx(answer["epsilon"]["upper"])
    text = (search.parent / "run" / "report" / "index.html").read_text()
    assert "would hide that others were tried" in text
    assert "As an experiment only" in text
    claim = search.parent / "run" / "statement.json"
    claim.write_text(json.dumps({**json.loads(claim.read_text()), "epsilon": 0.1}))
    assert "does not keep" in run(f"report {search.parent / 'run'}").stderr


def test_file_of_a_run_is_refused(refusal, tmp_path):
    write_points(tmp_path)
    assert "[tune] is missing" in refusal(f"tune {write_config(tmp_path)}")


def test_ledger_pays_for_a_search_once_and_refuses_another(run, refusal, tmp_path, search):
    ledger = tmp_path / "budget.json"
    assert "spends nothing" in refusal(f"tune {search} --dry-run --ledger {ledger}")
    assert "--budget-epsilon and --budget-delta" in refusal(f"tune {search} --ledger {ledger}")
    assert not (tmp_path / "run").exists()
    line = f"tune {search} --ledger {ledger} --budget-epsilon 5 --budget-delta 1e-3"
    result = run(line)
    assert result.exit_code == 0, result.output
    assert "is left of epsilon = 5" in result.stdout
    spent = ledger.read_bytes()
    assert run(line).exit_code == 0
    assert ledger.read_bytes() == spent
    other = tmp_path / "other.toml"
    other.write_text(search.read_text().replace('directory = "run"', 'directory = "second"'))
    assert "left" in refusal(f"tune {other} --ledger {ledger}")
    assert ledger.read_bytes() == spent
    assert not (tmp_path / "second" / "statement.json").exists()
