"""The picture of correlated noise."""

import sys

import pytest

from taut.matrix import Workload, optimize
from taut.report import plot_ranking

RANKING = optimize(Workload(32), epochs=4, epsilon=2, delta=1e-5, bands=[2, 4])


def test_draws_every_kind(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "ranking.svg"
    plot_ranking(RANKING, path)
    text = path.read_text()
    assert text.lstrip().startswith("<?xml")
    for row in RANKING.leaders:
        assert f"{row.noise}, {row.sampling.replace('_', ' ')}" in text


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"taut\[report\]"):
        plot_ranking(RANKING, tmp_path / "ranking.svg")
