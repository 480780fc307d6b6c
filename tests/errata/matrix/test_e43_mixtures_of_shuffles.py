"""E43: close to uniform is not a mixture of partial shuffles."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

SIZE, RATIO = 3, 1.4


def is_even(order):
    swaps = sum(a > b for a, b in itertools.combinations(order, 2))
    return swaps % 2 == 0


ORDERS = list(itertools.permutations(range(SIZE)))
TILTED = np.array([RATIO if is_even(order) else 1.0 for order in ORDERS])
TILTED /= TILTED.sum()


def partial_shuffles(moving):
    """Laws that put all but ``moving`` elements into fixed places, and shuffle the others."""
    for chosen in itertools.combinations(range(SIZE), SIZE - moving):
        for places in itertools.permutations(range(SIZE), SIZE - moving):
            fits = [
                all(order[p] == e for e, p in zip(chosen, places, strict=True)) for order in ORDERS
            ]
            yield np.array(fits) / sum(fits)


def test_the_law_has_the_ratio_of_the_lemma():
    assert TILTED.max() / TILTED.min() == pytest.approx(RATIO)
    assert sum(TILTED[i] for i, order in enumerate(ORDERS) if is_even(order)) == pytest.approx(
        0.58333, abs=1e-5
    )


def test_every_partial_shuffle_of_two_is_half_even():
    even = np.array([is_even(order) for order in ORDERS])
    moving = int(SIZE / RATIO)
    assert moving == 2
    for law in partial_shuffles(moving):
        assert law @ even == pytest.approx(0.5)


def test_it_is_outside_of_their_hull():
    corners = np.array(list(partial_shuffles(2))).T
    found = linprog(
        np.zeros(corners.shape[1]),
        A_eq=np.vstack([corners, np.ones(corners.shape[1])]),
        b_eq=np.append(TILTED, 1.0),
    )
    assert found.status == 2  # infeasible
