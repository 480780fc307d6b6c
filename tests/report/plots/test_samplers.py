"""The picture of samplers."""

import sys

import pytest

import taut
from taut.accounting import Mask
from taut.report import plot_samplers

RUNS = taut.compare_samplers(2.0, batch_size=10, examples=1_000, steps=50, delta=1e-5)


def test_draws_a_file(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "samplers.svg"
    plot_samplers(RUNS, path)
    text = path.read_text()
    assert text.lstrip().startswith("<?xml")
    assert len(text) > 5_000


def test_other_runs_are_called_so(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "samplers.svg"
    plot_samplers(RUNS, path)
    assert "another run" not in path.read_text()
    masked = taut.compare_samplers(
        2.0, batch_size=10, examples=1_000, steps=50, delta=1e-5, mask=Mask()
    )
    plot_samplers(masked, path)
    assert path.read_text().count("(another run)") == 2


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"taut\[report\]"):
        plot_samplers(RUNS, tmp_path / "samplers.svg")
