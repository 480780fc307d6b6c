"""Several quantiles: the promise of a tree by enumeration, and its errors by Monte Carlo."""

import itertools
from collections import defaultdict
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from taut.accounting import Adjacency
from taut.noise import SeededForExperiments
from taut.statistics._mechanisms.fine_points import fine_grid
from taut.statistics._mechanisms.quantile_tree import QuantileTree, quantile_tree
from taut.statistics._mechanisms.sorted_points import SortedPoints

QUARTERS = tuple(Fraction(i, 4) for i in (1, 2, 3))
CANDIDATES = 4
DECILES = tuple(Fraction(i, 10) for i in range(1, 10))


@cache
def joint(tree, points, candidates):
    """Return the probability of every joint outcome, by walking through the tree."""
    found = defaultdict(float)
    ends = {-1: 0, len(tree.shares): candidates}

    def walk(nodes, placed, chance):
        if not nodes:
            found[tuple(placed[i] for i in range(len(tree.shares)))] += chance
            return
        node, *rest = nodes
        low, high = (placed[node.below], placed[node.above]) if tree.is_tree else (0, candidates)
        if high <= low:
            walk(rest, {**placed, node.index: min(low, candidates - 1)}, chance)
            return
        inside = np.array([p for p in points if low <= p < high], dtype=np.int64)
        masses = tree._choice(node).masses(inside, low, high - 1)
        for candidate, mass in zip(range(low, high), masses, strict=True):
            walk(rest, {**placed, node.index: candidate}, chance * (mass / sum(masses)))

    walk(list(tree._nodes), ends, 1.0)
    return found


def losses(tree, one, other):
    mine, theirs = (joint(tree, tuple(sorted(data)), CANDIDATES) for data in (one, other))
    assert mine.keys() == theirs.keys()
    return np.log([mine[key] / theirs[key] for key in mine])


@pytest.mark.parametrize("is_tree", [True, False])
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_epsilon_of_all_levels_on_all_neighbours(is_tree, adjacency):
    """Pure privacy of three quantiles: every table of two records, or three, on four candidates."""
    tree = QuantileTree(QUARTERS, 0.8, adjacency, is_tree)
    promised = tree.loss.epsilon(delta=0)
    assert promised == pytest.approx(0.8 * (2 if is_tree else 3))
    worst = 0.0
    for records in range(3):
        for data in itertools.combinations_with_replacement(range(CANDIDATES), records):
            for x in range(CANDIDATES):
                if adjacency is Adjacency.ADD_REMOVE:
                    pairs = [(data, (*data, x))]
                else:
                    pairs = [((*data, y), (*data, x)) for y in range(x)]
                for one, other in pairs:
                    worst = max(worst, float(np.abs(losses(tree, one, other)).max()))
    assert 0.3 * promised < worst <= promised * (1 + 1e-12)


def test_one_level_of_a_tree_is_bounded_range():
    """Given the root, what a level releases has losses within an interval of epsilon."""
    tree = QuantileTree(QUARTERS, 0.8, Adjacency.REPLACE, True)
    for one, other in [((0, 3), (0, 0)), ((0, 3), (3, 3)), ((1, 2, 3), (1, 2, 0))]:
        mine, theirs = joint(tree, tuple(sorted(one)), 4), joint(tree, tuple(sorted(other)), 4)
        for root in range(4):
            ratios = [np.log(mine[key] / theirs[key]) for key in mine if key[1] == root]
            assert np.ptp(ratios) <= 0.8 * (1 + 1e-12)


def test_a_tree_is_taken_where_it_errs_less():
    assert not quantile_tree(QUARTERS[:1], 1.0, Adjacency.ADD_REMOVE, concentrated=False).is_tree
    assert quantile_tree(DECILES, 1.0, Adjacency.ADD_REMOVE, concentrated=False).is_tree
    deciles = quantile_tree(DECILES, 1.0, Adjacency.ADD_REMOVE, concentrated=False)
    assert deciles.levels == 4
    assert deciles.loss.epsilon(delta=0) <= 1.0 + 1e-12


@pytest.mark.parametrize("is_tree", [True, False])
def test_rank_errors_are_those_of_simulations(is_tree):
    shares = tuple(Fraction(i, 6) for i in (1, 2, 3, 4, 5))
    tree = QuantileTree(shares, 0.5, Adjacency.ADD_REMOVE, is_tree)
    grid = fine_grid(0, 1)
    n = 2000
    points = grid.points((np.arange(n) + 0.5) / n)
    source = SeededForExperiments(seed=2)
    drawn = np.array([tree.places(SortedPoints(points), grid, source) for _ in range(150)])
    ranks = np.searchsorted(points, drawn)
    errors = ranks - n * np.array([float(share) for share in shares])
    measured = np.sqrt((errors**2).mean(axis=0))
    assert measured == pytest.approx(np.array(tree.rank_errors), rel=0.25)


def test_quantiles_are_in_order_and_on_the_grid():
    grid = fine_grid(0, 100, step=0.25)
    points = grid.points(np.random.default_rng(0).normal(50, 10, 500))
    for is_tree in (True, False):
        tree = QuantileTree(DECILES, 0.1, Adjacency.REPLACE, is_tree)
        places = tree.places(SortedPoints(points), grid, SeededForExperiments(seed=0))
        values = [grid.value(place) for place in places]
        assert values == sorted(values)
        assert all(value % 0.25 == 0 and 0 <= value <= 100 for value in values)


def test_equal_records_do_not_move_the_quantiles_beyond_them():
    """Half of all records are zero: quantiles above the median still find their shares."""
    values = np.concatenate([np.zeros(5000), np.linspace(10, 20, 5000)])
    grid = fine_grid(0, 100)
    tree = QuantileTree(DECILES, 1.0, Adjacency.ADD_REMOVE, True)
    places = tree.places(SortedPoints(grid.points(values)), grid, SeededForExperiments(seed=4))
    found = np.array([grid.value(place) for place in places])
    assert found[:4] == pytest.approx(0.0, abs=1e-6)
    assert found[5:] == pytest.approx([12, 14, 16, 18], abs=0.3)


def test_no_records_give_some_candidate():
    grid = fine_grid(0, 1, step=0.5)
    tree = QuantileTree(DECILES, 1.0, Adjacency.ADD_REMOVE, True)
    places = tree.places(SortedPoints(grid.points(np.empty(0))), grid, SeededForExperiments(seed=0))
    assert len(places) == 9
    assert all(0 <= place < grid.places for place in places)
