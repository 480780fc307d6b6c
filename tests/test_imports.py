"""Importing the package loads no more than the question at hand needs."""

import subprocess
import sys

import pytest

HEAVY = (
    "matplotlib",
    "mpmath",
    "rich",
    "scipy.optimize",
    "scipy.signal",
    "scipy.stats",
    "torch",
    "typer",
)


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules, file=sys.stderr)"
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(completed.stderr.split())


@pytest.mark.parametrize(
    "statement", ["import taut", "import taut.accounting", "import taut; taut.gaussian(1.0)"]
)
def test_import_leaves_heavy_packages_alone(statement):
    assert modules_after(statement).isdisjoint(HEAVY)


def test_import_taut_waits_with_numpy():
    assert "numpy" not in modules_after("import taut")


def test_help_needs_no_numpy():
    statement = """
from typer.testing import CliRunner
from taut.cli._app import app
from typer.main import get_command
for command in ("", *get_command(app).commands):
    assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0
"""
    assert "numpy" not in modules_after(statement)
