"""Guesses of one run by how sure they are: every canary counts by its log odds."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["weighs_guesses", "weighted_lower_bound", "weighted_p_value"]

_UNIT = 0.1  # of log odds: weights are whole multiples, so that their sums are few
_HEAVIEST = 60  # multiples: a guess of odds exp(6) beyond those that are tested is as good as sure
_MOST = 300  # guesses that are weighed, the surest: the tail of their sum takes milliseconds
_STEP = 0.02  # of the grid of epsilons that are tested in turn
_LARGEST = 50.0  # epsilon: no number of canaries that fits into a run refutes more
_ROUNDING = 1e-12  # of a probability: a thousand times what a thousand convolutions lose
_SHARE = 1 / 3  # of what may fail: the most that delta may take for all canaries


def weighs_guesses(canaries: int, delta: float, failure: float) -> bool:
    """Return whether the weighted test is to be used: by numbers that are known before the run."""
    return canaries * delta <= _SHARE * failure


def weighted_p_value(
    log_odds: NDArray[np.float64], included: NDArray[np.bool_], epsilon: float, delta: float
) -> float:
    """Return the probability of so heavy right guesses or more, if a run is (epsilon, delta)-DP.

    Args:
        log_odds: estimated log odds that a canary was included, from the run alone, shape (m,).
        included: whether it was, by a fair coin.
        epsilon: epsilon that is tested, at `delta`.
        delta: delta of the claim.

    **Guarantee**: an upper bound on that probability, whatever the log odds are, if they do not
    depend on coins but through the run: with w_i = (|log odds| - epsilon)_+, rounded, and W_i
    independent with P[W_i = 1] = 1 / (1 + exp(-epsilon)), for the largest weights, it is P[sum
    w_i W_i >= seen] + m delta
    (docs/theory/one-run.md).
    """
    weights = np.rint((np.abs(log_odds) - epsilon) / _UNIT).clip(0, _HEAVIEST).astype(np.int64)
    kept = np.argsort(-weights, kind="stable")[:_MOST]
    weights, right = weights[kept], (log_odds[kept] > 0) == included[kept]
    seen = int(weights[right].sum())
    accuracy = 1.0 / (1.0 + math.exp(-epsilon))
    masses = np.zeros(int(weights.sum()) + 1)
    masses[0], reached = 1.0, 0
    for weight in weights.tolist():
        moved = accuracy * masses[: reached + 1]
        masses[: reached + 1] *= 1 - accuracy
        masses[weight : reached + weight + 1] += moved
        reached += weight
    return min(float(masses[seen:].sum()) + _ROUNDING + len(log_odds) * delta, 1.0)


def weighted_lower_bound(
    log_odds: NDArray[np.float64], included: NDArray[np.bool_], delta: float, failure: float
) -> float:
    """Return the last epsilon on a grid up to which all are refuted, wrongly with `failure`."""
    found = 0.0
    for step in range(round(_LARGEST / _STEP) + 1):
        epsilon = step * _STEP
        if weighted_p_value(log_odds, included, epsilon, delta) >= failure:
            break
        found = epsilon
    return found
