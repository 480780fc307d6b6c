"""E34: a vote of k neighbours has sensitivity sqrt(2), and Table 4.1 cannot be recomputed."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from taut.accounting import noisy_vote

DELTA = 1e-5
ORDERS = range(2, 80)


def test_one_record_out_lets_another_in():
    k, classes, largest = 3, 3, 0.0
    for labels in itertools.product(range(classes), repeat=5):  # sorted by distance
        votes = np.bincount(labels[:k], minlength=classes)
        for removed in range(5):
            rest = labels[:removed] + labels[removed + 1 :]
            moved = votes - np.bincount(rest[:k], minlength=classes)
            largest = max(largest, float(np.linalg.norm(moved)))
    assert largest == math.sqrt(2)


def screening(order, k, threshold, sigma, rate):
    p, largest = ndtr((np.arange(k + 1.0) - threshold) / sigma), 0.0
    for present, absent in ((p[1:], p[:-1]), (p[:-1], p[1:])):
        mixed = (1 - rate) * absent + rate * present
        for a, b in ((mixed, absent), (absent, mixed)):
            moment = a**order * b ** (1 - order) + (1 - a) ** order * (1 - b) ** (1 - order)
            largest = max(largest, math.log(moment.max()) / (order - 1))
    return largest


def vote(order, sigma, square, rate):
    total = sum(
        math.comb(order, j)
        * (1 - rate) ** (order - j)
        * rate**j
        * math.expm1(j * (j - 1) * square / (2 * sigma**2))
        for j in range(2, order + 1)
    )
    return math.log1p(total) / (order - 1)


def epsilons(run, square):
    """Return the classic and the improved epsilon of a run."""
    k, threshold, sigma_1, sigma_2, rate, screened, answered = run
    totals = {
        a: screened * screening(a, k, threshold, sigma_1, rate)
        + answered * vote(a, sigma_2, square, rate)
        for a in ORDERS
    }
    classic = min(value - math.log(DELTA) / (a - 1) for a, value in totals.items())
    improved = min(
        value + math.log1p(-1 / a) - math.log(DELTA * a) / (a - 1) for a, value in totals.items()
    )
    return classic, improved


@pytest.mark.parametrize(
    ("run", "printed", "right", "with_one"),
    [
        ((300, 180, 75.0, 25.0, 0.15, 1000, 735), 0.47, (1.163, 0.953), (0.834, 0.669)),
        ((300, 210, 85.0, 20.0, 0.2, 18_000, 3877), 2.92, (4.832, 4.292), (3.455, 3.024)),
    ],
    ids=["MNIST", "CIFAR-10"],
)
def test_table_4_1_is_too_low_with_either_sensitivity(run, printed, right, with_one):
    assert epsilons(run, 2) == pytest.approx(right, abs=1e-3)
    assert epsilons(run, 1) == pytest.approx(with_one, abs=1e-3)
    assert printed < min(with_one)


def test_taut_takes_the_root_of_two():
    assert noisy_vote(sigma=25.0).rdp(2) == pytest.approx(2 * 2 / (2 * 25.0**2))
    assert noisy_vote(sigma=25.0, neighbours="radius").rdp(2) == pytest.approx(1 / 25.0**2)
