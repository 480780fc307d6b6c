"""The examples run from start to end."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_accounting_tour_prints_bounds_and_saves_a_plot(tmp_path, capsys):
    plot = tmp_path / "plots" / "delta.png"
    runpy.run_path(str(EXAMPLES / "accounting_tour.py"))["main"](["--plot", str(plot)])
    printed = capsys.readouterr().out
    assert printed.count("<= epsilon <=") == 2
    assert "certified epsilon" in printed
    assert plot.read_bytes().startswith(b"\x89PNG")
