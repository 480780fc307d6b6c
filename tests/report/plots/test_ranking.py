"""The picture of correlated noise."""

import sys

import pytest

from taut.matrix import Workload, optimize
from taut.report import plot_ranking

SAMPLERS = ["poisson", "cyclic_poisson", "fixed_order"]


@pytest.fixture(scope="module")
def ranking():
    return optimize(Workload(32), epochs=4, epsilon=2, delta=1e-5, bands=[2, 4], samplers=SAMPLERS)


def test_draws_every_kind(tmp_path, ranking):
    pytest.importorskip("matplotlib")
    path = tmp_path / "ranking.svg"
    plot_ranking(ranking, path)
    text = path.read_text()
    assert text.lstrip().startswith("<?xml")
    for row in ranking.leaders:
        assert f"{row.noise}, {row.sampling.replace('_', ' ')}" in text


def test_without_matplotlib(tmp_path, monkeypatch, ranking):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"taut\[report\]"):
        plot_ranking(ranking, tmp_path / "ranking.svg")
