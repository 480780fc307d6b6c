"""One draw: exact masses, and the promise of the mechanism on all neighbours of tiny tables."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from taut.accounting import Adjacency, exponential
from taut.noise import SeededForExperiments
from taut.statistics._mechanisms.rank_choice import RankChoice, _uniform_below
from taut.statistics._mechanisms.sorted_points import Inside

EPSILON = 1.3
DOMAIN = range(5)
SHARES = [Fraction(1, 2), Fraction(1, 4), Fraction(9, 10), Fraction(2, 3)]


def choice(share, adjacency):
    a, b = share.as_integer_ratio()
    width = 2 * b if adjacency is Adjacency.REPLACE else 2 * max(a, b - a)
    rate = Fraction(EPSILON) / width
    return RankChoice(share, rate, 1.0, adjacency, exponential(EPSILON, adjacency=adjacency))


def distribution(one, data):
    masses = one.masses(np.array(sorted(data), dtype=np.int64), DOMAIN[0], DOMAIN[-1])
    return np.array([float(Fraction(mass, sum(masses))) for mass in masses])


def neighbours(data, adjacency):
    if adjacency is Adjacency.REPLACE:
        for i, x in itertools.product(range(len(data)), DOMAIN):
            yield (*data[:i], x, *data[i + 1 :])
    else:
        for x in DOMAIN:
            yield (*data, x)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.parametrize("share", SHARES)
def test_loss_spans_at_most_epsilon_on_all_neighbours(share, adjacency):
    """Bounded range, which is more than pure privacy: for all tables of up to three records."""
    one = choice(share, adjacency)
    widest = largest = 0.0
    for records in range(4):
        for data in itertools.combinations_with_replacement(DOMAIN, records):
            mine = distribution(one, data)
            for other in neighbours(data, adjacency):
                losses = np.log(mine / distribution(one, other))
                widest = max(widest, float(np.ptp(losses)))
                largest = max(largest, float(np.abs(losses).max()))
    assert widest <= EPSILON * (1 + 1e-12)
    assert largest <= EPSILON
    assert widest > 0.5 * EPSILON


@pytest.mark.parametrize("share", SHARES)
def test_profile_of_neighbours_is_below_that_of_the_loss(share):
    one = choice(share, Adjacency.ADD_REMOVE)
    claimed = {epsilon: one.loss.delta(epsilon) for epsilon in (0.0, 0.2, 0.5, 0.9)}
    for data in itertools.combinations_with_replacement(DOMAIN, 3):
        mine = distribution(one, data)
        for other in neighbours(data, Adjacency.ADD_REMOVE):
            theirs = distribution(one, other)
            for epsilon, delta in claimed.items():
                for p, q in ((mine, theirs), (theirs, mine)):
                    assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= delta * (1 + 1e-9)


class Listed(SeededForExperiments):
    """A source that yields given integers, little end first."""

    def __init__(self, place):
        super().__init__(seed=0)
        self.place = place

    def bytes(self, n):
        return self.place.to_bytes(n, "little")


@pytest.mark.parametrize("rate", [Fraction(1, 2), Fraction(3), Fraction(40)])
def test_every_candidate_has_exactly_its_mass(rate):
    """The first and the last number of every candidate's share of all numbers lead to it."""
    one = RankChoice(Fraction(1, 3), rate, 1.0, Adjacency.ADD_REMOVE, exponential(1.0))
    for data in ([], [3], [0, 0, 6, 6], [2, 3, 3, 3, 5, 6], [0] * 9, list(range(7)) * 40):
        points = np.array(sorted(data), dtype=np.int64)
        masses = one.masses(points, 0, 6)
        ends = list(itertools.accumulate(masses))
        for candidate, (mass, end) in enumerate(zip(masses, ends, strict=True)):
            for place in (end - mass, end - 1):
                assert one.draw(Inside.of(points), 0, 6, Listed(place)) == candidate


def test_draws_have_the_masses():
    one = choice(Fraction(1, 2), Adjacency.ADD_REMOVE)
    data = np.array([0, 1, 1, 4], dtype=np.int64)
    source = SeededForExperiments(seed=5)
    found = Counter(one.draw(Inside.of(data), 0, 4, source) for _ in range(4000))
    expected = distribution(one, data) * 4000
    assert chisquare([found[i] for i in DOMAIN], expected).pvalue > 1e-3


def test_the_median_of_many_records_is_near_the_middle():
    one = choice(Fraction(1, 2), Adjacency.REPLACE)
    points = np.arange(0, 10_000, dtype=np.int64)
    found = one.draw(Inside.of(points), 0, 10**12, SeededForExperiments(seed=1))
    assert abs(found - 5000) < 200


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 2**64 + 1])
def test_uniform_numbers_stay_below_their_bound(bound):
    source = SeededForExperiments(seed=3)
    drawn = [_uniform_below(bound, source) for _ in range(300)]
    assert 0 <= min(drawn) <= max(drawn) < bound
    assert max(drawn) >= (bound - 1) // 2
