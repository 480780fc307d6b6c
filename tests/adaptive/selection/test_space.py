"""Spaces of settings: what may be in them, and draws that favour none."""

import math

import pytest

from taut.adaptive import Range, Setting, Space
from taut.noise import SeededForExperiments


def test_grid_lists_every_setting():
    space = Space({"a": [1, 2], "b": ["x", "y", "z"]})
    assert space.size == 6
    assert {"a": 2, "b": "z"} in space.settings


def test_draws_are_uniform_over_a_grid():
    space, bits = Space({"a": [1, 2], "b": [3, 4]}), SeededForExperiments(0)
    counts = {}
    for _ in range(2_000):
        key = tuple(space.draw(bits).values())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 4
    assert max(counts.values()) < 600


def test_ranges_stay_within_their_bounds():
    space, bits = Space({"rate": Range(0.01, 1.0, log=True)}), SeededForExperiments(0)
    drawn = [space.draw(bits)["rate"] for _ in range(500)]
    assert 0.01 <= min(drawn) < 0.02
    assert 0.5 < max(drawn) <= 1.0
    assert sum(value < 0.1 for value in drawn) == pytest.approx(250, abs=60)
    with pytest.raises(ValueError, match="no list of settings"):
        _ = space.settings


@pytest.mark.parametrize(
    "wide", [Range(-1.7e308, 1.7e308), Range(1e-308, 1e308, log=True), Range(0.1, 0.3)]
)
def test_values_are_between_the_bounds(wide):
    values = [wide.at(share) for share in (0.0, 1e-17, 0.3, 0.9, 1 - 2**-53, 1.0)]
    assert values == sorted(values)
    assert wide.low <= values[0]
    assert values[-1] <= wide.high


def test_setting_is_a_mapping():
    setting = Setting({"rate": 0.1})
    assert dict(setting) == {"rate": 0.1}
    assert setting.directory is None
    assert "0.1" in repr(setting)
    assert len(setting) == 1


@pytest.mark.parametrize(
    ("axes", "error", "message"),
    [
        ({}, ValueError, "empty"),
        ({"a": []}, ValueError, "must not be empty"),
        ({"a": "text"}, TypeError, "list or a Range"),
        ({"a": 3}, TypeError, "list or a Range"),
        ({1: [0.5]}, TypeError, "names of a space must be texts"),
        ({"a": [1.0, math.nan]}, ValueError, "finite"),
        ({"a": list(range(200)), "b": list(range(200))}, ValueError, "leave some out"),
    ],
)
def test_refusals(axes, error, message):
    with pytest.raises(error, match=message):
        Space(axes)


@pytest.mark.parametrize(
    ("low", "high", "log"), [(1.0, 1.0, False), (0.0, 1.0, True), (math.nan, 1.0, False)]
)
def test_range_refusals(low, high, log):
    with pytest.raises(ValueError, match="low"):
        Range(low, high, log=log)
