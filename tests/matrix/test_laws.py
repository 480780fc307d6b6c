"""Laws of counts and sums lie on the safe side of exact ones, and tails below their share."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from taut.matrix._accounting.laws import binomial_law, pushed, sum_laws, tail_point


def exact_binomial(size, rate):
    share = Fraction(rate)
    return [math.comb(size, k) * share**k * (1 - share) ** (size - k) for k in range(size + 1)]


def survival(masses, beyond=0.0):
    """Return P[value at least the k-th], exactly, for the given floats."""
    total = Fraction(beyond)
    found = []
    for mass in reversed(list(masses)):
        total += Fraction(float(mass))
        found.append(total)
    return found[::-1]


@pytest.mark.parametrize(("size", "rate"), [(1, 0.3), (7, 0.9), (64, 1 / 64), (300, 0.5)])
def test_binomial_laws_enclose_the_exact_one(size, rate):
    truth = survival_of(exact_binomial(size, rate))
    above, left = binomial_law(size, rate, 1e-22, up=True)
    below, _ = binomial_law(size, rate, 1e-22, up=False)
    for k, value in enumerate(survival(above, left)):
        assert value >= truth[k] - Fraction(1, 10**15)
    for k, value in enumerate(survival(below)):
        assert value <= truth[k] + Fraction(1, 10**15)
    assert math.fsum(above) + left == pytest.approx(1, abs=1e-13)
    assert max(abs(a - b) for a, b in zip(above, below, strict=True)) < 1e-10


def survival_of(masses):
    return [sum(masses[k:]) for k in range(len(masses))]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0, 1e-3))
def test_pushing_orders_laws(masses, error):
    total = math.fsum(masses) or 1.0
    law = np.array([masses]) / total if sum(masses) else np.array([[1.0] + [0.0] * len(masses)])
    up = pushed(law, np.zeros(1), error, up=True)[0]
    down = pushed(law, np.zeros(1), error, up=False)[0]
    assert (up >= 0).all()
    assert (down >= 0).all()
    tails = [np.cumsum(part[::-1])[::-1] for part in (down, law[0], up)]
    assert (tails[0][1:] <= tails[1][1:] * (1 - error) + 1e-15).all()
    assert (tails[2] >= np.minimum(tails[1] * (1 + error), 1.0) - 1e-13).all()


def enumerated(entries, rates):
    """Return all sums with their probabilities."""
    sums, masses = [], []
    for drawn in itertools.product((0, 1), repeat=len(entries)):
        sums.append(float(np.dot(drawn, entries)))
        masses.append(math.prod(r if d else 1 - r for d, r in zip(drawn, rates, strict=True)))
    return np.array(sums), np.array(masses)


@pytest.mark.parametrize("group", [1.0, 1.3])
def test_laws_of_sums_enclose_enumeration(group):
    random = np.random.default_rng(1)
    entries = random.uniform(0.1, 1.0, (3, 9))
    entries[1, :4] = 0.0
    rates = random.uniform(0.05, 0.7, (3, 9))
    grid = np.append(0.0, 0.1 * 1.01 ** np.arange(500))
    for up in (True, False):
        values, law, beyond = sum_laws(entries, rates, grid, group, 1e-22, up=up)
        for row in range(3):
            sums, masses = enumerated(entries[row], rates[row])
            for at in (0.05, 0.3, 1.0, 2.2, 4.0):
                truth = float(masses[sums >= at].sum())
                found = float(law[row, values >= at].sum()) + (beyond[row] if up else 0.0)
                assert found >= truth - 1e-12 if up else found <= truth + 1e-12
        assert law.sum(axis=1) + beyond == pytest.approx(np.ones(3), abs=1e-12)


def test_a_sum_on_the_grid_is_not_rounded_up_a_step():
    grid = np.append(0.0, 0.5 * 2.0 ** np.arange(8))
    values, law, _ = sum_laws(np.full((1, 2), 0.5), np.full((1, 2), 0.5), grid, 1.0, 1e-22, up=True)
    assert law[0, :3] == pytest.approx([0.25, 0.5, 0.25])
    assert (values[1:] > grid[1:]).all()
    assert values == pytest.approx(grid, rel=1e-9)


@pytest.mark.parametrize("share", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_tails_are_below_their_share(share, rate):
    random = np.random.default_rng(2)
    for _ in range(10):
        values = random.uniform(0.0, 2.0, 8)
        deviation = float(random.uniform(0.5, 6.0))
        tau = tail_point(
            np.array([deviation]),
            np.array([values.sum()]),
            np.array([(values**2).sum()]),
            np.array([values.max()]),
            rate,
            share,
        )
        sums, masses = enumerated(values, [rate] * 8)
        assert float(masses @ ndtr((sums - tau[0]) / deviation)) <= share
