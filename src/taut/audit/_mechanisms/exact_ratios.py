"""Epsilon from below where likelihood ratios are exact: delta is the mean of a bounded number."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["epsilon_of_ratios"]

_HALVINGS = 50  # of the interval of epsilon, to the last digits
_BOLDEST = 0.9  # of the largest stake: with all of it, one number that is 0 would end the game
_MOST_STAKED = 1e6  # where delta is 0 and any stake is fair
_LARGEST = 1e6  # of a log ratio: what one side alone can release has an infinite one
_LOST = 1e-9  # of a log ratio, and absolute: a thousand times what computing one loses


def epsilon_of_ratios(
    pilot: NDArray[np.float64], judges: NDArray[np.float64], delta: float, failure: float
) -> float:
    """Return a lower bound on epsilon at `delta`, for one order of the neighbours.

    Args:
        pilot: exact log ratios L = log(p / q) of releases that p is the density of.
        judges: more of them, independent of those, which the bound rests on.
        delta: probability delta.
        failure: probability with which the bound may be wrong.

    **Guarantee**: delta(e) is the mean of X(e) = (1 - exp(e - L))_+, which is in [0, 1] and falls
    with e. A gambler who stakes a fixed share s on X(e) > delta, at fair odds, holds
    prod(1 + s (X - delta)) in the end, of mean at most 1 if delta(e) <= delta; he holds
    1 / `failure` with probability at most `failure` (Markov). The stake is fixed by the pilot and
    the same for all e: wealth falls with e, so that the largest e where it suffices exceeds the
    true epsilon with probability at most `failure` (Waudby-Smith and Ramdas 2024).
    """
    if not len(pilot) or not len(judges):
        return 0.0
    stake, needed = _stake(_safe(pilot), len(judges), delta, failure), -math.log(failure)
    played = np.sort(_safe(judges))

    def is_proven(epsilon: float) -> bool:
        above = played[np.searchsorted(played, epsilon, side="right") :]
        won = float(np.log1p(stake * (_excess(above, epsilon) - delta)).sum())
        return won + (len(played) - len(above)) * math.log1p(-stake * delta) >= needed

    return _largest(is_proven, float(played[-1]))


def _safe(ratios: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ratios that are finite and rather too small; below zero all count the same."""
    finite = np.clip(ratios, -_LARGEST, _LARGEST)
    return np.asarray(finite - _LOST * (1 + np.abs(finite)))


def _excess(ratios: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    return np.asarray(-np.expm1(np.minimum(epsilon - ratios, 0.0)))


def _stake(pilot: NDArray[np.float64], judges: int, delta: float, failure: float) -> float:
    """Return the stake that grows fastest where the bound is expected to be.

    For s (X - delta) small the logarithm of the wealth is s gap - s^2 m2 / 2 a number, m2 the
    second moment of X - delta; it reaches the need with the smallest gap at this stake.
    """
    near = _largest(lambda e: float(_excess(pilot, e).mean()) > delta, float(pilot.max()))
    second = float(np.square(_excess(pilot, near) - delta).mean())
    most = _BOLDEST / delta if delta else _MOST_STAKED
    if not second > 0:
        return min(most, _MOST_STAKED)
    return min(math.sqrt(-2 * math.log(failure) / (judges * second)), most, _MOST_STAKED)


def _largest(holds: Callable[[float], bool], high: float) -> float:
    """Return the largest number up to `high` that a falling condition holds for; 0 without."""
    if not high > 0 or not holds(0.0):
        return 0.0
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
