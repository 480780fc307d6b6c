"""Estimates lie between the bounds, and what is known of shuffled trees is in order."""

import pytest

from taut.accounting import gaussian
from taut.errors import UnsoundConfiguration
from taut.matrix import (
    BallsInBins,
    ToeplitzEncoder,
    Workload,
    amplified_loss,
    estimate_balls_in_bins,
    identity,
    shuffled_tree_bounds,
    square_root,
)


@pytest.mark.parametrize(("bands", "sigma"), [(1, 4.0), (4, 8.0), (4, 16.0)])
def test_estimates_lie_between_the_bounds(bands, sigma):
    encoder = square_root(Workload(120), bands=bands)
    sampler = BallsInBins(24)
    found = estimate_balls_in_bins(encoder, sampler, sigma, delta=1e-5, draws=60_000)
    lower, upper = amplified_loss(encoder, sampler, sigma, delta=1e-5).epsilon_bounds(1e-5)
    assert found.delta_error < 0.1
    assert lower * 0.99 <= found.epsilon <= upper * 1.01


def test_estimates_know_independent_noise():
    found = estimate_balls_in_bins(identity(20), BallsInBins(20), 2.0, delta=1e-5)
    expected = gaussian(2.0).allocated(20).epsilon(1e-5)
    assert found.epsilon == pytest.approx(expected, rel=0.02)


def test_entries_below_zero_have_no_estimate():
    with pytest.raises(UnsoundConfiguration, match="below zero"):
        estimate_balls_in_bins(ToeplitzEncoder(4, [1.0, -0.5]), BallsInBins(2), 1.0)


def test_a_shuffled_tree_gains_at_most_what_its_mean_allows():
    lower, upper = shuffled_tree_bounds(1024, 20.0).epsilon_bounds(1e-6)
    assert lower == pytest.approx(gaussian(20.0, (2 - 1 / 1024) ** 0.5).epsilon(1e-6), rel=1e-6)
    assert upper == pytest.approx(gaussian(20.0, 11**0.5).epsilon(1e-6), rel=1e-6)
    one = shuffled_tree_bounds(1, 20.0).epsilon_bounds(1e-6)
    assert one.lower == pytest.approx(one.upper, rel=1e-6)


def test_shuffled_trees_are_complete_and_zeroed_out():
    with pytest.raises(ValueError, match="power of two"):
        shuffled_tree_bounds(6, 1.0)
    with pytest.raises(UnsoundConfiguration, match="zero_out"):
        shuffled_tree_bounds(4, 1.0, adjacency="add_remove")
