"""A release between others: upper bounds of those above it, lower bounds of the one below."""

import pytest

import taut
from taut.accounting import PrivacyLoss, between, laplace, mixed_laplace
from taut.errors import UnsoundConfiguration

ABOVE, BELOW = taut.gaussian(1.0), taut.gaussian(1.1)


def test_bounds_are_those_of_the_losses_around_it():
    loss = between(ABOVE, ABOVE, BELOW, name="about one")
    for delta in (1e-2, 1e-5, 1e-12):
        bounds = loss.epsilon_bounds(delta)
        assert bounds.upper == pytest.approx(ABOVE.epsilon_bounds(delta).upper, rel=1e-9)
        assert bounds.lower == pytest.approx(BELOW.epsilon_bounds(delta).lower, rel=1e-9)


@pytest.mark.parametrize("half", ["remove", "add"])
def test_each_direction_has_its_own_bound(half):
    wide = taut.gaussian(0.5)
    loss = between(wide, ABOVE, BELOW, name="two directions", adjacency=half)
    bound = wide if half == "remove" else ABOVE
    assert loss.epsilon(1e-5) == pytest.approx(bound.epsilon(1e-5), rel=1e-9)


def test_sums_are_within_the_sums_of_the_losses_around_it():
    bounds = (10 * between(ABOVE, ABOVE, BELOW, name="about one")).epsilon_bounds(1e-5)
    assert bounds.upper <= (10 * ABOVE).epsilon(1e-5, 1e-6) * (1 + 1e-3)
    assert bounds.lower >= (10 * BELOW).epsilon_bounds(1e-5, 1e-6).lower * (1 - 1e-3)


def test_sums_may_stand_around_it():
    three = between(3 * ABOVE, 3 * ABOVE, 3 * BELOW, name="three")
    assert three.epsilon(1e-5) == pytest.approx((3 * ABOVE).epsilon(1e-5), rel=2e-3)
    assert between(ABOVE, ABOVE, taut.zero(), name="unknown").epsilon_bounds(1e-5).lower == 0


def test_bounds_that_contradict_each_other_do_not_cross():
    tiny, large = taut.approximate(0.5, 4e-10), taut.approximate(0.5, 0.02)
    loss = between(tiny, tiny, large, name="no such release")
    for epsilon in (0.0, 0.5, 0.6):
        bounds = loss.delta_bounds(epsilon)
        assert bounds.lower <= bounds.upper


def test_round_trip_and_name():
    loss = 2 * between(ABOVE, 2 * ABOVE, BELOW, name="about one")
    assert PrivacyLoss.from_json(loss.to_json()) == loss
    assert "2 * about one" in repr(loss)


@pytest.mark.parametrize("without", [mixed_laplace(1.0, 2.0), mixed_laplace(1.0, 2.0) + laplace(3)])
def test_losses_without_pairs_are_refused(without):
    for losses in ((without, ABOVE, BELOW), (ABOVE, without, BELOW), (ABOVE, ABOVE, without)):
        with pytest.raises(UnsoundConfiguration, match="dominating pairs"):
            between(*losses, name="no pair")


def test_replace_one_is_refused():
    with pytest.raises(UnsoundConfiguration, match="removing and what adding"):
        between(ABOVE, ABOVE, BELOW, name="about one", adjacency="replace")
