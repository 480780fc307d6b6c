"""Ways to call the command line from a test."""

import json

import pytest
from typer.testing import CliRunner

from taut.cli._app import app


@pytest.fixture
def run(monkeypatch):
    """Run ``taut`` with the words of a line; the result has exit_code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "200")
    return lambda line: CliRunner().invoke(app, line.split())


@pytest.fixture
def run_json(run):
    """Run ``taut ... --json`` and return what it printed, parsed."""

    def call(line):
        result = run(f"{line} --json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return call


@pytest.fixture
def refusal(run):
    """Run ``taut`` with a mistake in it and return the message."""

    def call(line):
        result = run(line)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        return result.stderr

    return call
