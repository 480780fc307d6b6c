"""What the README shows is what a reader gets."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_blocks import check_python_blocks, console_commands, lines

README = Path(__file__).parents[1] / "README.md"


def test_python_blocks_print_what_the_readme_says():
    check_python_blocks(README)


@pytest.mark.parametrize(("command", "output"), console_commands(README))
def test_commands_print_what_the_readme_says(command, output, tmp_path):
    program, *arguments = shlex.split(command)
    assert program == "taut"
    completed = subprocess.run(
        [sys.executable, "-m", "taut", *arguments],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert lines(completed.stdout) == lines(output)
