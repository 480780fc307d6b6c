"""``taut verify``."""

import json
import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import taut
from taut.audit import verify_statement
from taut.cli._app import app

STATEMENTS = Path(__file__).parents[2] / "audit" / "statements"
RUN = {
    "delta": 1e-5,
    "mechanism": "dp-sgd",
    "noise_multiplier": 1.0,
    "batch_size": 100,
    "examples": 10_000,
    "steps": 1_000,
}


@pytest.fixture
def written(tmp_path):
    def write(**claim):
        path = tmp_path / "statement.json"
        path.write_text(json.dumps(RUN | claim))
        return path

    return write


@pytest.mark.parametrize(
    ("claim", "code", "word"),
    [
        ({"epsilon": 1.83, "sampler": "poisson"}, 0, "certified"),
        ({"epsilon": 8.0, "sampler": "poisson"}, 0, "looser than needed"),
        ({"epsilon": 1.81, "sampler": "poisson"}, 1, "wrong"),
        ({"epsilon": 1.71, "sampler": "allocation"}, 0, "certified"),
        ({"epsilon": 1.69, "sampler": "allocation"}, 1, "wrong"),
        ({"epsilon": 4.2, "sampler": "shuffle"}, 1, "not certified"),
        ({"epsilon": 1.83, "sampler": "shuffle"}, 1, "sampler mismatch"),
    ],
)
def test_verdict_and_exit_code(run, written, claim, code, word):
    result = run(f"verify {written(**claim)}")
    assert result.exit_code == code
    assert word in result.stdout
    assert "certified upper bound" in result.stdout


def test_is_the_library_answer(run_json, written):
    claim = {"epsilon": 1.83, "sampler": "poisson"}
    assert run_json(f"verify {written(**claim)}") == verify_statement(RUN | claim).to_dict()


def test_answers_of_taut_epsilon_verify(run, run_json, tmp_path):
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(run_json("epsilon --sigma 1 --rate 0.01 --steps 10 --delta 1e-5")))
    assert run(f"verify {path}").exit_code == 0


def test_statement_from_standard_input():
    claim = {"epsilon": 5.0, "delta": 1e-5, "loss": taut.gaussian(1.0).to_dict()}
    result = CliRunner().invoke(app, ["verify", "-"], input=json.dumps(claim))
    assert result.exit_code == 0
    assert "looser than needed" in result.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not valid JSON"),
        (b"\xff", "is not a text in UTF-8"),
        (b'{"epsilon": 1}', "needs 'sampler', one of"),
        (b'{"eps": 1}', "unknown key 'eps'"),
    ],
)
def test_a_mistake_is_explained(refusal, tmp_path, text, message):
    path = tmp_path / "statement.json"
    path.write_bytes(text)
    assert message in refusal(f"verify {path}")


def test_a_missing_file_is_explained(refusal, tmp_path):
    assert "none.json" in refusal(f"verify {tmp_path / 'none.json'}")


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("--max-epsilon 3 --max-delta 1e-5 --adjacency add_remove", 0),
        ("--max-epsilon 1.8", 1),
        ("--max-delta 1e-6", 1),
        ("--adjacency replace", 1),
        ("--adjacency user", 2),
        ("--max-epsilon -1", 2),
    ],
)
def test_limits_of_the_reader_decide_the_exit_code(run, written, gate, code):
    result = run(f"verify {written(epsilon=1.83, sampler='poisson')} {gate}")
    assert result.exit_code == code
    assert ("refused" in result.stdout) == (code == 1)


def test_true_and_refused_are_told_apart(run, written):
    result = run(f"verify {written(epsilon=1.83, sampler='poisson')} --max-epsilon 1")
    assert "certified, but refused" in result.stdout


def test_says_what_it_cannot_show(run, written):
    assert "no signature" in run(f"verify {written(epsilon=1.83, sampler='poisson')}").stdout


def test_claim_and_recomputation_do_not_look_contradictory(run, tmp_path):
    loss = 50 * taut.gaussian(1.545643).poisson(0.1)
    upper = loss.epsilon(1e-4)
    path = tmp_path / "statement.json"
    path.write_text(json.dumps({"epsilon": upper, "delta": 1e-4, "loss": loss.to_dict()}))
    page = run(f"verify {path}").stdout
    rows = dict(line.split(None, 1) for line in page.splitlines() if not line.startswith(" "))
    claimed = float(rows["claimed"].split()[1])
    assert float(rows["recomputed"].split()[0]) <= claimed


def test_a_pipe_named_in_a_statement_does_not_hang(run, tmp_path):
    data = json.loads((STATEMENTS / "hybrid_in_a_file.json").read_text())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data["plan"]["clipping"]["subspaces"] = str(pipe)
    path = tmp_path / "statement.json"
    path.write_text(json.dumps(data))
    result = run(f"verify {path}")
    assert result.exit_code == 1
    assert "not checked: the subspaces" in result.stdout
    assert run(f"verify {path} --subspaces {STATEMENTS / 'subspaces.npz'}").exit_code == 0


def test_what_takes_too_long_is_given_up(refusal, written, monkeypatch):
    monkeypatch.setattr("taut.audit.verify_statement", lambda *_, **__: time.sleep(60))
    path = written(epsilon=1.83, sampler="poisson")
    assert "not recomputed within 0.2 seconds" in refusal(f"verify {path} --timeout 0.2")
    assert "--timeout must be" in refusal(f"verify {path} --timeout 0")


@pytest.mark.parametrize("sampler", ["fixed-size", "fixed_size", "Fixed-Size"])
def test_samplers_have_one_vocabulary(run_json, written, sampler):
    assert run_json(f"verify {written(epsilon=15, sampler=sampler)}")["sampler"] == "fixed_size"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_that_nobody_writes_to_ends(tmp_path, refusal):
    os.mkfifo(tmp_path / "statement.json")
    assert "not recomputed within 0.2 seconds" in refusal(
        f"verify {tmp_path / 'statement.json'} --timeout 0.2"
    )
