"""The picture of what clipping does to a mean."""

import numpy as np
import pytest

from taut.noise.geometry import explore_clip_bias
from taut.report import plot_clip_bias


@pytest.mark.parametrize("rows", [np.random.default_rng(0).normal(1, 2, (50, 8)), [[1.0], [-1.0]]])
def test_draws_a_file(rows, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "bias.svg"
    plot_clip_bias(explore_clip_bias(rows, [0.1, 1.0, 10.0], provenance="public"), path)
    assert path.read_text().lstrip().startswith("<?xml")
    assert path.stat().st_size > 10_000
