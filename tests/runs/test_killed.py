"""Commands that are killed at random moments: nothing that was spent is forgotten."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killed_commands.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_commands_go_on_and_count_what_was_seen(tmp_path, times):
    places = os.pathsep.join([str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH", "")])
    completed = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), str(times), "7"],
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    answer = json.loads(completed.stdout)
    assert answer["kills"] == times
    assert answer["always_counted"]
    assert answer["second_process"] == 3
    assert answer["exit_code"] == 0
    assert 0 < answer["steps"] <= answer["seen"] <= answer["counted"]
    assert answer["spent"] <= answer["epsilon"] <= answer["planned"] * (1 + 1e-9)
    assert answer["verdict"] == "certified"
