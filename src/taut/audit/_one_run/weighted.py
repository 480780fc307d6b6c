"""Guesses of one run by how sure they are: every canary counts by its log odds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["grid_lower_bound", "heavy_tail", "weighs_guesses", "weighted_p_value"]

_UNIT = 0.1  # of log odds: weights are whole multiples, so that their sums are few
_HEAVIEST = 60  # multiples: a guess of odds exp(10) beyond those that are tested is as good as sure
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
    w_i W_i >= seen] + m delta / (1 + exp(epsilon)) (docs/theory/one-run.md).
    """
    accuracy = 1.0 / (1.0 + math.exp(-epsilon))
    excess = (np.abs(log_odds) - epsilon).clip(0)
    right = (log_odds > 0) == included
    weights = np.stack([excess, np.zeros_like(excess)], axis=1)
    failing = len(log_odds) * delta * (1 - accuracy)
    return heavy_tail(weights, np.array([accuracy, 1 - accuracy]), 1 - right, failing)


def heavy_tail(
    weights: NDArray[np.float64],
    chances: NDArray[np.float64],
    outcomes: NDArray[np.int64],
    failing: float,
) -> float:
    """Return the probability of so heavy outcomes or more, and what fails besides, at most one.

    Args:
        weights: what the outcomes of every canary weigh, shape (m, k), the first the heaviest and
            the last nothing; rounded, and those of the surest alone are looked at.
        chances: probabilities of the k outcomes, the same for all canaries.
        outcomes: places of the outcomes that canaries have, among the k.
        failing: probability that is added.
    """
    whole = np.rint(weights / _UNIT).clip(0, _HEAVIEST).astype(np.int64)
    kept = np.argsort(-whole[:, 0], kind="stable")[:_MOST]
    whole = whole[kept]
    seen = int(whole[np.arange(len(kept)), outcomes[kept]].sum())
    masses, reached = np.ones(1), 0
    for row in whole[whole[:, 0] > 0].tolist():
        grown = np.zeros(reached + row[0] + 1)
        for weight, chance in zip(row, chances.tolist(), strict=True):
            grown[weight : weight + reached + 1] += chance * masses
        masses, reached = grown, reached + row[0]
    return min(float(masses[seen:].sum()) + _ROUNDING + failing, 1.0)


def grid_lower_bound(p_value: Callable[[float], float], failure: float) -> float:
    """Return the last epsilon on a grid up to which all are refuted, wrongly with `failure`."""
    found = 0.0
    for step in range(round(_LARGEST / _STEP) + 1):
        epsilon = step * _STEP
        if p_value(epsilon) >= failure:
            break
        found = epsilon
    return found
