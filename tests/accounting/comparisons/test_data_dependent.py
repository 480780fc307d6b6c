"""Data-dependent divergences: upper bounds where they stand, and kept out of every guarantee."""

import copy
import logging
import math
import pickle

import numpy as np
import pytest
from oracles.divergences import divergence
from scipy.special import ndtr

import taut
from taut.accounting._comparisons.data_dependent import (
    data_dependent_gnmax,
    data_dependent_lnmax,
    data_dependent_screening,
)
from taut.errors import UnsoundConfiguration

ORDERS = [2.0, 4.0, 8.0]
SECRET = data_dependent_gnmax([200, 30, 20], 40, [8.0])


def values(secret):
    return secret.private_value()[1]


def moved_votes(votes):
    """Return all votes in which one voter chose another class."""
    for i in range(len(votes)):
        for j in range(len(votes)):
            if i != j and votes[i] > 0:
                changed = list(votes)
                changed[i] -= 1
                changed[j] += 1
                yield changed


def winner_gaussian(votes, sigma):
    """Return the law of the noisy winner by quadrature over the winner's noise."""
    x = np.linspace(-9.0, 9.0, 4001)
    density = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    law = [
        float((density * np.prod([ndtr((v - w) / sigma + x) for w in others], axis=0)).sum())
        for v, others in ((v, votes[:i] + votes[i + 1 :]) for i, v in enumerate(votes))
    ]
    return np.array(law) / sum(law)


def winner_laplace(votes, scale):
    x = np.linspace(-60.0, 60.0, 240_001)
    density = np.exp(-np.abs(x)) / 2 * (x[1] - x[0])

    def below(y):
        return np.where(y < 0, np.exp(-np.abs(y)) / 2, 1 - np.exp(-np.abs(y)) / 2)

    law = [
        float((density * np.prod([below((v - w) / scale + x) for w in others], axis=0)).sum())
        for v, others in ((v, votes[:i] + votes[i + 1 :]) for i, v in enumerate(votes))
    ]
    return np.array(law) / sum(law)


@pytest.mark.parametrize(
    ("votes", "sigma"),
    [([200, 30, 20], 40.0), ([60, 10], 15.0), ([40, 35, 25], 12.0), ([196, 187], 1.23)],
)
def test_gaussian_winner_is_bounded_for_every_changed_vote(votes, sigma):
    here = winner_gaussian(votes, sigma)
    bound = values(data_dependent_gnmax(votes, sigma, ORDERS))
    backward = values(data_dependent_gnmax(votes, sigma, ORDERS, reverse=True))
    for other in moved_votes(votes):
        there = winner_gaussian(other, sigma)
        for order, value, reverse in zip(ORDERS, bound, backward, strict=True):
            assert divergence(here, there, order) <= value + 1e-9
            assert divergence(there, here, order) <= reverse + 1e-9


@pytest.mark.parametrize(
    ("votes", "scale"), [([60, 10, 5], 5.0), ([30, 10], 2.0), ([12, 11, 10], 4.0)]
)
def test_laplace_winner_is_bounded_for_every_changed_vote(votes, scale):
    here = winner_laplace(votes, scale)
    bound = values(data_dependent_lnmax(votes, scale, ORDERS))
    backward = values(data_dependent_lnmax(votes, scale, ORDERS, reverse=True))
    for other in moved_votes(votes):
        there = winner_laplace(other, scale)
        for order, value, reverse in zip(ORDERS, bound, backward, strict=True):
            assert divergence(here, there, order) <= value + 1e-8
            assert divergence(there, here, order) <= reverse + 1e-8


def test_the_published_bounds_say_nothing_about_the_reverse():
    here, there = winner_gaussian([196, 187], 1.23), winner_gaussian([195, 188], 1.23)
    published = values(data_dependent_gnmax([196, 187], 1.23, [2.0]))[0]
    assert divergence(there, here, 2.0) > 30 * published
    here, there = winner_laplace([30, 10], 2.0), winner_laplace([29, 11], 2.0)
    published = values(data_dependent_lnmax([30, 10], 2.0, [4.0]))[0]
    assert divergence(there, here, 4.0) > 1.3 * published


@pytest.mark.parametrize("make", [data_dependent_gnmax, data_dependent_lnmax])
def test_a_lead_that_a_vote_can_turn_proves_nothing_in_reverse(make):
    plain = values(make([100, 100], 40.0, [8.0], reverse=True))
    assert values(make([101, 100], 40.0, [8.0], reverse=True)) == plain


def test_clear_winners_cost_less_and_ties_cost_the_plain_bound():
    clear = values(data_dependent_gnmax([200, 30, 20], 40, [8.0]))[0]
    assert clear == pytest.approx(0.000681036, rel=1e-5)
    tied = values(data_dependent_gnmax([100, 100], 40, [8.0]))[0]
    assert tied == 8 / 40**2
    assert values(data_dependent_lnmax([300, 0], 10.0, [2.0]))[0] < 1e-9


def test_second_order_bound_ends_where_its_theorem_does():
    # mu_1 is about 3.5 here, so order 8 falls back to the plain bound.
    low, high = values(data_dependent_gnmax([9, 1], 1.0, [2.0, 8.0]))
    assert low < 2.0
    assert high == 8.0


def test_screening_at_a_count_is_the_larger_neighbour_and_below_the_maximum():
    order, k, threshold, sigma = 5.0, 30, 18.0, 6.0
    z = (np.arange(k + 1) - threshold) / sigma
    family = taut.accounting._mechanisms.screening.screening_rdp(k, threshold, sigma, [order])[0]
    for count in (0, 7, 18, 30):
        here = ndtr(np.array([z[count], -z[count]]))
        truth = max(
            max(divergence(here, there, order), divergence(there, here, order))
            for t in (count - 1, count + 1)
            if 0 <= t <= k
            for there in [ndtr(np.array([z[t], -z[t]]))]
        )
        value = values(data_dependent_screening(count, k, threshold, sigma, [order]))[0]
        assert value == pytest.approx(truth, rel=1e-9)
        assert truth <= value <= family


def test_no_print_shows_the_value(caplog):
    shown = [repr(SECRET), str(SECRET), f"{SECRET}", f"{SECRET:.3f}", f"{SECRET!r}"]
    with caplog.at_level(logging.INFO):
        logging.getLogger("taut").info("spent %s", SECRET)
    number = f"{values(SECRET)[0]:.3e}".split("e")[0][:3]
    assert all(number not in text for text in [*shown, caplog.text])
    assert "sensitive" in shown[0]


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: taut.gaussian(1.0) + SECRET,
        lambda: SECRET + taut.gaussian(1.0),
        lambda: SECRET + 1.0,
        lambda: 1.0 + SECRET,
        lambda: SECRET < 1.0,
        lambda: SECRET >= SECRET,
        lambda: pickle.dumps(SECRET),
        lambda: copy.copy(SECRET),
        lambda: copy.deepcopy(SECRET),
    ],
)
def test_no_guarantee_is_made_of_it(attempt):
    with pytest.raises(UnsoundConfiguration, match="smooth sensitivity"):
        attempt()


@pytest.mark.parametrize("convert", [float, int, complex, round, math.exp, iter, len])
def test_no_number_is_made_of_it(convert):
    with pytest.raises(TypeError):
        convert(SECRET)


def test_no_attribute_holds_the_value_by_a_plain_name():
    assert not hasattr(SECRET, "__dict__")
    assert not hasattr(SECRET, "value")
    assert not hasattr(SECRET, "values")


def test_values_add_up_among_themselves():
    total = sum([SECRET, SECRET]) + 2 * SECRET
    assert values(total)[0] == 4 * values(SECRET)[0]
    mixed = SECRET + data_dependent_lnmax([200, 30], 40, [8.0])
    assert "GNMax and LNMax" in repr(mixed)


def test_what_is_handed_out_is_a_copy():
    SECRET.private_value()[1][:] = 0.0
    assert values(SECRET)[0] > 0


def test_different_orders_do_not_add_up():
    with pytest.raises(ValueError, match="same orders"):
        SECRET + data_dependent_gnmax([200, 30, 20], 40, [4.0])


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: data_dependent_gnmax([5], 1.0, [2.0]),
        lambda: data_dependent_gnmax([[5, 3]], 1.0, [2.0]),
        lambda: data_dependent_gnmax([5, -3], 1.0, [2.0]),
        lambda: data_dependent_gnmax([5, math.nan], 1.0, [2.0]),
        lambda: data_dependent_gnmax(["a", "b"], 1.0, [2.0]),
        lambda: data_dependent_gnmax([5, 3], 0.0, [2.0]),
        lambda: data_dependent_gnmax([5, 3], 1.0, [1.0]),
        lambda: data_dependent_gnmax([5, 3], 1.0, []),
        lambda: data_dependent_lnmax([5, 3], -1.0, [2.0]),
        lambda: data_dependent_screening(31, 30, 18.0, 6.0, [2.0]),
        lambda: data_dependent_screening(3, 0, 18.0, 6.0, [2.0]),
        lambda: data_dependent_screening(3, 30, 18.0, 0.0, [2.0]),
        lambda: SECRET * -1,
    ],
)
def test_bad_arguments(attempt):
    with pytest.raises(ValueError, match="must"):
        attempt()


def test_errors_do_not_tell_the_votes():
    with pytest.raises(ValueError, match="votes") as caught:
        data_dependent_gnmax([517, -3], 1.0, [2.0])
    assert "517" not in str(caught.value)
    with pytest.raises(ValueError, match="count") as caught:
        data_dependent_screening(517, 30, 18.0, 6.0, [2.0])
    assert "517" not in str(caught.value)
