"""E12: the hull of a function that bounds no profile is no profile; taut lifts it to one."""

import math

import pytest

import taut


def test_hull_of_too_low_a_function_is_lifted_to_a_profile():
    # min(1, g)** of h = 0 is 0, but every profile is at least 1 - t.
    loss = taut.from_profile({-1.0: 0.0, 1.0: 0.0})
    t = math.exp(-1.0)
    assert loss.profile(t) >= 1 - t
    assert loss.profile(t) == pytest.approx(1 - t, rel=1e-9)
