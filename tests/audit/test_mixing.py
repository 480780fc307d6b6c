"""Mixed models with a hidden momentum do not keep the promise of mixed models; without it they do.

A model of one weight, released after every step. The mixing noise is fresh in every step, but the
buffer of the momentum carries each noisy gradient into many of them, where it is averaged out.
"""

import numpy as np
import pytest

import taut
from taut.audit import audit_observations


def mixed_runs(runs, *, steps, sigma, width, rate, momentum, canary, seed, blocks):
    """Return how far each state is from the middle of the two before it, summed over blocks."""
    draw = np.random.default_rng(seed)
    older, newer, buffer = np.zeros((3, runs))
    moves = np.zeros((runs, blocks))
    for step in range(steps):
        gradient = draw.random(runs) < rate if canary else 0.0
        buffer = momentum * buffer + gradient + sigma * draw.standard_normal(runs)
        gap = np.maximum(np.abs(newer - older), width)
        middle = (newer + older) / 2
        older, newer = newer, middle + gap * (draw.random(runs) - 0.5) - buffer
        moves[:, step * blocks // steps] += middle - newer
    return moves


def audited(runs, *, sigma, width, rate, steps, momentum, delta, blocks=10):
    setting = {"steps": steps, "sigma": sigma, "width": width, "rate": rate}
    sides = [
        mixed_runs(runs, **setting, momentum=momentum, canary=canary, seed=canary, blocks=blocks)
        for canary in (False, True)
    ]
    claimed = steps * taut.mixed_gaussian(sigma, width, rate=rate)
    return audit_observations(*sides, claimed=claimed, delta=delta)


FULL_BATCH = {"sigma": 1.0, "width": 10.0, "rate": 1.0, "steps": 20, "delta": 1e-2}
HEADLINE = {"sigma": 6.10, "width": 78.6, "rate": 0.178, "steps": 300, "delta": 1e-5}


def test_mixing_without_hidden_state_passes():
    assert audited(4_000, **FULL_BATCH, momentum=0.0).passed


def test_hidden_momentum_is_caught():
    result = audited(4_000, **FULL_BATCH, momentum=0.9)
    assert result.violations, str(result)


@pytest.mark.slow
def test_promised_epsilon_is_refuted_in_the_headline_setting():
    # Promised is delta 1e-5 at epsilon 1 (0.80 by the tighter conversion here); by the exact
    # likelihood ratio it is 5.6e-3 +- 0.9e-3. A sum of moves is an attack that proves enough.
    result = audited(400_000, **HEADLINE, momentum=0.9, blocks=2)
    assert result.epsilon_lower > result.claimed_epsilon
    assert len(result.violations) == 2
    assert audited(100_000, **HEADLINE, momentum=0.0, blocks=2).passed
