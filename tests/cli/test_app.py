"""The command as a whole: version, help, and the hint when its extra is missing."""

import json
import math
import os
import subprocess
import sys

import pytest

import taut
from taut.cli._page import json_numbers


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


COMMANDS = (
    "epsilon",
    "delta",
    "calibrate",
    "samplers",
    "noise",
    "release",
    "plan",
    "train",
    "resume",
    "report",
    "risk",
    "tune",
    "matrix",
    "compare",
    "audit",
    "verify",
    "check",
    "doctor",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_and_speaks_json(run, command):
    text = run(f"{command} --help").stdout
    assert f"Example: taut {command}" in text
    assert "--json" in text


def test_help_shows_sections_in_brackets_and_no_line_breaks_of_the_source(run):
    text = " ".join(run("tune --help").stdout.split())
    assert "whose [plan] has the promise for all trials, with a section [tune] that says" in text
    lines = [line.strip() for line in run("release --help").stdout.splitlines()]
    assert "which cells they" not in lines


def test_the_list_of_commands_is_whole():
    from taut.cli._app import app

    assert {found.callback.__name__ for found in app.registered_commands} == set(COMMANDS)


def test_help_is_instant():
    """Counted in processor time, which other work on the machine hardly touches."""
    code = "import time; from taut.cli import main; import atexit\n"
    code += "atexit.register(lambda: print(time.process_time())); main()"
    spent = []
    for _ in range(3):
        completed = subprocess.run(
            [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
        )
        spent.append(float(completed.stdout.split()[-1]))
    assert min(spent) < 0.5


def test_shells_are_offered_completion(run):
    assert "--install-completion" in run("--help").stdout
    completed = subprocess.run(
        [sys.executable, "-m", "taut"],
        env={"_TAUT_COMPLETE": "complete_bash", "COMP_WORDS": "taut ver", "COMP_CWORD": "1"}
        | dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.stdout.split() == ["verify"]


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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("verify {0}/missing.json", "missing.json: No such file"),
        ("verify {0}", "Is a directory"),
        ("verify {0}/deep.json", "nested too deeply"),
        ("noise {0}/deep.json --epsilon 1", "nested too deeply"),
        ("epsilon --loss {0}/deep.json --delta 1e-5", "nested too deeply"),
        ("noise {0}/bytes.csv --epsilon 1", "bytes.csv is not a text in UTF-8"),
        ("train {0}/missing.toml", "missing.toml: No such file"),
        (
            "compare demo --epsilon 1 --delta 1e-5 --gradients 9 --batch-size 9 --config "
            "{0}/bytes.csv",
            "bytes.csv: not valid TOML",
        ),
        ("epsilon --sigma 1 --steps -5 --delta 1e-5", "steps must be at least 0, got steps=-5"),
        ("calibrate --epsilon 1 --delta 0", "no Gaussian noise keeps --delta 0"),
        ("calibrate --epsilon 1 --delta 1e-5 --steps 0", "--steps must be at least 1"),
    ],
)
def test_mistakes_name_what_is_wrong(refusal, tmp_path, line, message):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\xff")
    found = refusal(line.format(tmp_path))
    assert message in found
    assert "Errno" not in found


def test_json_has_no_numbers_that_json_has_not():
    data = {"a": [math.nan, math.inf, -math.inf, 1.5, 2, None, True]}
    text = json.dumps(json_numbers(data), allow_nan=False)
    assert json.loads(text) == {"a": [None, "Infinity", "-Infinity", 1.5, 2, None, True]}
