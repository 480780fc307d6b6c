"""The picture of methods."""

import pytest
from comparison.test_summary import comparison

from taut.report import plot_comparison


@pytest.mark.parametrize("seeds", [1, 3])
def test_names_every_arm(tmp_path, seeds):
    pytest.importorskip("matplotlib")
    rows = {"plain": [0.5, 0.6, 0.7], "group": [0.6, 0.7, 0.8], "normalised": [0.1, 0.2, 0.3]}
    path = tmp_path / "comparison.svg"
    plot_comparison(comparison({arm: row[:seeds] for arm, row in rows.items()}), path)
    text = path.read_text()
    shown = "accuracy on test examples", "noise of the mean gradient", "CPU seconds of a run"
    for word in (*rows, *shown, "no promise"):
        assert word in text


def test_losses_that_are_not_finite_have_no_dot(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "comparison.svg"
    plot_comparison(comparison({"plain": [None, None], "group": [None, None]}, loss=None), path)
    assert "loss on test examples" in path.read_text()
