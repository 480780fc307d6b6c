"""E20: domination at thresholds from one on does not survive composition."""

import numpy as np
import pytest
from oracles.divergences import hockey_stick

import taut

P, Q = np.array([0.2, 0.05, 0.75]), np.array([0.1, 0.4, 0.5])
CLAIMED_P, CLAIMED_Q = np.array([0.7, 0.3]), np.array([0.35, 0.65])


def test_a_pair_dominated_from_one_on_composes_to_more():
    for t in np.linspace(1.0, 4.0, 301):
        assert hockey_stick(P, Q, t) <= hockey_stick(CLAIMED_P, CLAIMED_Q, t) + 1e-12
    assert hockey_stick(P, Q, 0.6) > hockey_stick(CLAIMED_P, CLAIMED_Q, 0.6)
    twice = hockey_stick(np.outer(P, P), np.outer(Q, Q), 1.0)
    claimed = hockey_stick(np.outer(CLAIMED_P, CLAIMED_P), np.outer(CLAIMED_Q, CLAIMED_Q), 1.0)
    assert twice == pytest.approx(0.5425)
    assert claimed == pytest.approx(0.3675)


def test_taut_composes_the_whole_profile():
    bounds = (2 * taut.finite(P, Q, adjacency="add")).delta_bounds(0.0)
    assert bounds.lower <= 0.5425 + 1e-12
    assert bounds.upper >= 0.5425 - 1e-12
    assert bounds.gap <= 1e-3


def test_one_sided_profiles_must_be_known_below_one():
    with pytest.raises(taut.errors.UnsoundConfiguration, match="below 0"):
        taut.from_profile({0.0: 0.5, 0.7: 0.0}, adjacency="add")
