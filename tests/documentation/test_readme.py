"""What the README shows is what a reader gets."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from documentation.markdown_blocks import check_python_blocks, console_commands, lines

README = Path(__file__).parents[2] / "README.md"
RESULTS = README.parent / "docs" / "results.md"


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


def test_comparison_shows_what_was_measured():
    shown = README.read_text(encoding="utf-8").partition("| tool |")[2]
    rows = dict(
        re.findall(r"^\| ((?:taut|dp-|Opacus|prv-)[^|]+?) \| (.+?) \|$", shown, re.MULTILINE)
    )
    assert rows == {tool: measured()[tool] for tool in rows}
    assert len(rows) == 7


def measured() -> dict[str, str]:
    """Return upper bound, excess and time of every tool, of 10,000 steps of DP-SGD."""
    section = RESULTS.read_text(encoding="utf-8").partition("| T = 10,000 ")[2]
    found = {}
    for line in section.partition("| T = 100,000 ")[0].strip().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")][-9:]
        tool, _, upper, _, excess, _, seconds, *_ = cells
        share, time = 100 * float(excess), 1000 * float(seconds)
        found[tool] = f"{float(upper):.4f} | {share:.2g} % | {time:.0f} ms"
    return found
