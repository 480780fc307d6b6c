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


@pytest.mark.parametrize(
    "statement",
    ["from taut.training import Plan", "from taut.training.features import featurise"],
)
def test_training_without_torch_says_what_to_install(statement):
    code = f"import sys\nsys.modules['torch'] = None\n{statement}"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert completed.returncode == 1
    assert completed.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: taut.training needs PyTorch; install it with: "
        "pip install 'taut[torch]'"
    )


def test_what_torch_itself_lacks_is_not_taken_for_torch(tmp_path):
    (tmp_path / "torch.py").write_text("import sympy_of_torch\n")
    code = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport taut.training"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert completed.stderr.splitlines()[-1].endswith("No module named 'sympy_of_torch'")
