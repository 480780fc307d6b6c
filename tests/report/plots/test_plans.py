"""The picture of a sweep."""

import pytest

from taut.report import plot_plans
from taut.runs import sweep_plan

pytest.importorskip("matplotlib")
RUN = {"examples": 200, "batch_size": 50, "epochs": 4, "epsilon": 2.0, "delta": 1e-3}


@pytest.mark.parametrize("knob", ["batch_size", "epsilon"])
def test_picture_names_what_was_swept(tmp_path, knob):
    values = {"batch_size": [25, 50], "epsilon": [1e-6, 1.0, 2.0]}[knob]
    path = tmp_path / "plan.svg"
    plot_plans(sweep_plan(knob, values, **RUN), path)
    text = path.read_text()
    assert f"<!-- {knob.replace('_', ' ')} -->" in text
    assert "<!-- noise multiplier -->" in text


def test_nothing_to_draw_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_plans(sweep_plan("epsilon", [1e-6], **RUN), tmp_path / "plan.svg")
