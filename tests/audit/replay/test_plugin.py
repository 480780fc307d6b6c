"""The fixture for pytest: a test of five lines, and nothing loaded before it is asked for."""

import subprocess
import sys
import textwrap

TESTS = """
    import numpy as np
    from taut.noise import L2Ball, optimal_gaussian

    NOISE = optimal_gaussian(L2Ball(1, 1.0), epsilon=1.0, delta=1e-6)
    ROWS = np.array([[0.1], [0.9], [0.4]])


    def test_sound(taut_replay):
        taut_replay(NOISE.release_sum, ROWS, ROWS[:-1])


    def test_leak(taut_replay):
        taut_replay(lambda rows: NOISE.release_sum(rows) / len(rows), ROWS, ROWS[:-1])


    def test_idle(taut_replay):
        taut_replay(lambda rows: NOISE.release([0.0]), ROWS, ROWS[:-1])
"""


def run(tmp_path, *arguments):
    (tmp_path / "test_user.py").write_text(textwrap.dedent(TESTS))
    command = [sys.executable, "-m", "pytest", "-p", "taut._pytest_plugin", "-q", "-rf"]
    return subprocess.run(
        [*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    ).stdout


def test_fixture_fails_a_leaking_program(tmp_path):
    said = run(tmp_path)
    assert "1 passed" in said
    assert "2 failed" in said
    assert "the result depends on the data beside its releases" in said
    assert "nothing was tested" in said


def test_plugin_costs_nothing_before_it_is_used():
    code = (
        "import sys, taut._pytest_plugin; "
        "sys.exit(bool({'numpy', 'scipy', 'torch', 'taut.audit'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
