"""The page about the command line: what it shows is what a reader gets."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from documentation.markdown_blocks import console_commands, lines
from typer.testing import CliRunner

from taut.cli._app import app

torch.set_num_threads(1)
PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
TITLED = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
VARIES = re.compile(r"\d\.\d{8,}")  # digits that depend on the machine


@pytest.mark.slow
def test_commands_print_what_the_page_says(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name, text in TITLED.findall(PAGE.read_text(encoding="utf-8")):
        Path(name).write_text(text)
    commands = [*console_commands(PAGE), ("", "")]
    code = 0
    for (command, output), (following, _) in pairwise(commands):
        if command == "echo $?":
            assert output.strip() == str(code)
            continue
        program, *arguments = shlex.split(command)
        assert program == "taut"
        result = CliRunner().invoke(app, arguments)
        code = result.exit_code
        assert code == 0 or following == "echo $?", result.output
        if output.strip():
            assert _same_everywhere(result.output) == _same_everywhere(output)


def _same_everywhere(text):
    return lines(VARIES.sub("...", text))


def test_page_names_every_command():
    text = PAGE.read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert f"taut {command.callback.__name__}" in text
