"""What is shown on a terminal, and that nothing is shown elsewhere."""

import io
import sys

import pytest

from taut.training import StepEnd
from taut.training._run.logs.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    return screen


def show(loss=0.25, epsilon=1.23401, **options):
    progress = Progress(2, 100.0, **{"wanted": True} | options)
    progress.show(StepEnd(1, 2, 0.5, epsilon, loss))
    progress.show(StepEnd(2, 2, 1.0, epsilon, loss))
    progress.close()


def test_bar_shows_loss_as_private_and_epsilon_rounded_up(monkeypatch):
    pytest.importorskip("rich")
    screen = terminal(monkeypatch)
    show()
    text = screen.getvalue()
    assert "loss 0.2500 (private)" in text
    assert "epsilon 1.235" in text
    assert "examples/s expected" in text


def test_lines_without_rich(monkeypatch):
    screen = terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    monkeypatch.setattr("taut.training._run.logs.progress._SECONDS_PER_LINE", -1.0)
    show(loss=None, epsilon=None)
    first, second = screen.getvalue().splitlines()
    assert first.startswith("step 1/2")
    assert second.startswith("step 2/2")
    assert "loss" not in first
    assert "epsilon" not in first


def test_nothing_if_unwanted(monkeypatch):
    screen = terminal(monkeypatch)
    show(wanted=False)
    assert screen.getvalue() == ""


def test_nothing_into_logs(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    show()
    assert log.getvalue() == ""
