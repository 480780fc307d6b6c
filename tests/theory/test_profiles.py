"""docs/theory/profiles.md: from points above a profile to a pair that composes."""

import math

import numpy as np
import pytest
from oracles.divergences import hockey_stick

import taut


def envelope(thresholds, deltas, t):
    """Return the lower convex envelope of the points at ``t``: the least chord above it."""
    if t >= thresholds[-1]:
        return deltas.min()
    left, right = thresholds <= t, thresholds > t
    x, y = thresholds[left][:, None], deltas[left][:, None]
    chord = y + (deltas[right] - y) * (t - x) / (thresholds[right] - x)
    return min(chord.min(), deltas[left].min())


def symmetric_truth(p, q, t):
    return max(hockey_stick(p, q, t), hockey_stick(q, p, t))


def test_hull_of_random_points_is_the_envelope_and_dominates():
    rng = np.random.default_rng(3)
    for _ in range(30):
        p, q = rng.dirichlet(np.ones(4), 2)
        at = np.sort(rng.uniform(-2.0, 2.0, 7))
        raised = [min(symmetric_truth(p, q, math.exp(e)) + rng.exponential(0.02), 1.0) for e in at]
        loss = taut.from_profile(dict(zip(at.tolist(), raised, strict=True)))
        mirrored = [1 - math.exp(-e) + math.exp(-e) * d for e, d in zip(at, raised, strict=True)]
        thresholds = np.exp(np.concatenate([[-800.0], at, -at]))
        deltas = np.concatenate([[1.0], raised, mirrored])
        order = np.argsort(thresholds)
        for t in np.exp(rng.uniform(-3.0, 3.0, 8)):
            value = loss.profile(float(t))
            assert value >= symmetric_truth(p, q, t) * (1 - 1e-12)
            assert value == pytest.approx(
                envelope(thresholds[order], deltas[order], t), rel=1e-6, abs=1e-9
            )


def test_composition_of_the_hull_covers_the_composition_of_the_mechanism():
    rng = np.random.default_rng(4)
    for _ in range(5):
        p, q = rng.dirichlet(np.ones(3), 2)
        points = {e: symmetric_truth(p, q, math.exp(e)) for e in np.linspace(0.0, 2.0, 9).tolist()}
        loss = 2 * taut.from_profile(points)
        for t in (1.0, 1.5, 3.0):
            truth = symmetric_truth(np.outer(p, p), np.outer(q, q), t)
            assert loss.delta(math.log(t)) >= truth * (1 - 1e-9)


def test_both_orders_of_a_finite_pair_are_covered_exactly():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    loss = taut.finite(p, q, adjacency="replace")
    for t in np.exp(np.linspace(-2.0, 2.0, 41)):
        assert loss.profile(float(t)) == pytest.approx(symmetric_truth(p, q, t), rel=1e-9)
