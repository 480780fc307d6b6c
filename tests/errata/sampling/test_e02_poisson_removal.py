"""E2: the printed removal pair of Poisson sampling is wrong for asymmetric pairs."""

import math

import numpy as np
import pytest
from oracles.divergences import hockey_stick

import taut


@pytest.mark.parametrize("epsilon", [0.0, math.log(1.1), 1.0, 5.0])
def test_printed_pair_misses_an_output_that_betrays_the_record(epsilon):
    without, present, rate = np.array([1.0, 0.0]), np.array([0.5, 0.5]), 0.1
    # What the sampled mechanism does on the two datasets of the removal half, by definition.
    truth = hockey_stick((1 - rate) * without + rate * present, without, math.exp(epsilon))
    printed = hockey_stick((1 - rate) * present + rate * without, present, math.exp(epsilon))
    assert truth == pytest.approx(0.05)
    assert printed <= truth * (1 + 1e-12)
    if epsilon > math.log(1.1):
        assert printed == 0
    loss = taut.finite(without, present, adjacency="remove").poisson(rate)
    bounds = loss.delta_bounds(epsilon)
    assert bounds.lower <= truth * (1 + 1e-12)
    assert truth <= bounds.upper * (1 + 1e-12)
    assert bounds.gap < 1e-9


def test_corrected_pair_covers_random_mechanisms_on_three_records():
    # A mechanism on subsets of {a, b, x}: any output distribution for each subset. The record x is
    # removed; the base pair is the tight one over both contexts, by its profile.
    rng = np.random.default_rng(5)
    rate, thresholds = 0.3, np.array([0.5, 0.8, 1.0, 1.1, 1.5, 3.0])
    for _ in range(200):
        outputs = rng.dirichlet(np.full(3, 0.5), size=(4, 2))  # context, x absent or present
        weight = np.array([(1 - rate) ** 2, rate * (1 - rate), rate * (1 - rate), rate**2])
        absent, present = weight @ outputs[:, 0], weight @ outputs[:, 1]
        sampled = (1 - rate) * absent + rate * present
        for t in thresholds:
            truth = hockey_stick(sampled, absent, t)
            inner = (t - (1 - rate)) / rate
            base = max(
                hockey_stick(outputs[c, 1], outputs[c, 0], inner) if inner > 0 else 1 - inner
                for c in range(4)
            )
            assert truth <= rate * base + 1e-12  # the rule of taut's removal half
