"""The command as a whole: version, help, and the hint when its extra is missing."""

import subprocess
import sys

import pytest

import taut


def test_version(run):
    assert run("--version").stdout == f"taut {taut.__version__}\n"


@pytest.mark.parametrize("command", ["epsilon", "delta", "calibrate"])
def test_help_shows_an_example_that_works(run, command):
    text = run(f"{command} --help").stdout
    (example,) = [line.strip() for line in text.splitlines() if "Example:" in line]
    program, line = example.removeprefix("Example: ").split(maxsplit=1)
    assert program == "taut"
    result = run(line)
    assert result.exit_code == 0
    assert "certified upper bound" in result.stdout


def test_module_is_the_command():
    completed = subprocess.run(
        [sys.executable, "-m", "taut", "--version"], capture_output=True, text=True, check=True
    )
    assert completed.stdout == f"taut {taut.__version__}\n"


def test_missing_extra_is_named():
    code = "import sys; sys.modules['typer'] = None; from taut.cli import main; main()"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert completed.returncode == 1
    assert completed.stderr == "The taut command needs an extra: pip install 'taut[cli]'\n"
