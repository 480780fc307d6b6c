"""E48: coins are drawn one after the other given all before them, not given those that fell."""

import numpy as np
import pytest
from scipy.special import expit, logit

RATE, SIGMA, OUTPUT = 0.3, 0.7, 1.2


def posterior():
    """The joint law of two coins given the noisy sum of both, shape (2, 2)."""
    coins = np.add.outer([0.0, 1.0], [0.0, 1.0])
    prior = np.outer([1 - RATE, RATE], [1 - RATE, RATE])
    law = prior * np.exp((coins * OUTPUT - coins**2 / 2) / SIGMA**2)
    return law / law.sum()


def test_given_only_those_that_fell_the_joint_law_is_another():
    law = posterior()
    first, second = law[1].sum(), law[:, 1].sum()
    # Where the first coin did not fall, "all that fell are in the set" says nothing.
    printed = (1 - first) * second
    assert printed != pytest.approx(law[0, 1], rel=0.1)
    assert printed < law[0, 1]


def test_given_all_before_it_no_coin_exceeds_the_bound():
    law = posterior()
    bound = expit(logit(RATE) + (2 * OUTPUT - 1) / (2 * SIGMA**2))
    for other in (0, 1):
        assert law[other, 1] / law[other].sum() <= bound * (1 + 1e-12)
    assert law[0, 1] / law[0].sum() == pytest.approx(bound)
