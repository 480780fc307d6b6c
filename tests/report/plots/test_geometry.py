"""The picture of public vectors."""

import sys

import numpy as np
import pytest

from taut.noise.geometry import geometry_report, private_second_moment
from taut.report import plot_geometry

ROWS = np.random.default_rng(0).standard_normal((60, 20)) / np.arange(1, 21)
REPORTS = {
    "rows": geometry_report(ROWS, provenance="public"),
    "moment": geometry_report(
        private_second_moment(np.tile(ROWS, (2000, 1)), 1.0, 1.0, 1e-6), provenance="released"
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_draws_a_file(name, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "geometry.svg"
    plot_geometry(REPORTS[name], path)
    text = path.read_text()
    assert text.lstrip().startswith("<?xml")
    assert len(text) > 10_000


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"taut\[report\]"):
        plot_geometry(REPORTS["rows"], tmp_path / "geometry.svg")
