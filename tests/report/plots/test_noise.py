"""The picture of mechanisms."""

import pytest

from taut.noise import Box, recommend
from taut.report import plot_noise


def test_names_every_mechanism(tmp_path):
    pytest.importorskip("matplotlib")
    found = recommend(Box([1.0, 4.0, 9.0]), 0.5, 1e-6)
    path = tmp_path / "noise.svg"
    plot_noise(found, path)
    text = path.read_text()
    assert text.count("<!-- ") > len(found.options)
    for option in found.options:
        assert option.name in text
