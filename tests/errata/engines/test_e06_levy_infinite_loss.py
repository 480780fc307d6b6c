"""E6: Levy's formula is printed for losses that are finite; with failure mass it is off."""

import math

import pytest

import taut


def test_printed_half_is_wrong_by_half_of_the_failure_mass():
    failure, epsilon, printed = 1e-3, 3.0, -0.0079190738
    loss = taut.gaussian(1.0) + taut.approximate(0.1, failure)
    # taut inverts with half of the finite mass; the printed formula has 1/2, in both CDFs.
    estimate = loss.estimate_delta(epsilon, method="afa")
    literal = estimate - failure / 2 * (1 + math.exp(epsilon))
    bounds = loss.delta_bounds(epsilon)
    assert literal == pytest.approx(printed, rel=1e-6)
    assert literal < bounds.lower
    assert estimate == pytest.approx(bounds.upper, rel=1e-9)
