"""E46: unlikely histories under cyclic sampling are as many as the pairs that are used."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from taut.matrix import BandedEncoder, CyclicPoisson, amplified_loss

GROUPS, RATE, SIGMA, COLUMNS, UNLIKELY = 8, 0.9, 5.0, 64, 1e-3
# Every column has a one on the diagonal. Those of the first group, COLUMNS of them, have another
# one GROUPS rows below: it shares its row with the next column of the same group.


def chance_of(threshold):
    """P[sigma Z + x > threshold] for the history of one pair: a column's first entry, seen once."""
    return (1 - RATE) * ndtr(-threshold / SIGMA) + RATE * ndtr((1 - threshold) / SIGMA)


def printed_threshold():
    """The printed rule: delta_1 times the number of groups, over twice the entries past the first.

    It supposes that an example meets one of GROUPS such entries; here it meets all of them.
    """
    share = GROUPS * UNLIKELY / (2 * COLUMNS)
    return -ndtri(share) * SIGMA + 1.0


def test_the_printed_rule_exceeds_what_it_allows():
    union = COLUMNS * chance_of(printed_threshold())
    assert union == pytest.approx(0.003774, rel=1e-3)
    assert union > 3 * UNLIKELY


def test_draws_agree():
    random = np.random.default_rng(0)
    threshold, runs = printed_threshold(), 400_000
    drawn = random.random((runs, COLUMNS)) < RATE
    seen = drawn + SIGMA * random.standard_normal((runs, COLUMNS), dtype=np.float32)
    share = float((seen > threshold).any(axis=1).mean())
    assert share == pytest.approx(0.0037, abs=4 * math.sqrt(0.0037 / runs))


def test_taut_counts_pairs():
    table = np.zeros((GROUPS + 1, 32))
    table[0] = 1.0
    table[GROUPS, : 32 - GROUPS : GROUPS] = 1.0
    loss = amplified_loss(BandedEncoder(table), CyclicPoisson(GROUPS, 0.3), 8.0, delta=1e-5)
    lower, upper = loss.epsilon_bounds(1e-5)
    assert 0 < lower <= upper < math.inf
