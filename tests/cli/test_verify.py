"""``taut verify``."""

import json

import pytest
from typer.testing import CliRunner

import taut
from taut.audit import verify_statement
from taut.cli._app import app

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
