"""How often a comparison errs: noise on a query minus noise on its threshold."""

from __future__ import annotations

import math

from scipy.special import ndtr

from taut.adaptive._sparse_vector.scalar_noise import ScalarNoise

__all__ = ["best_offset", "false_above", "false_below"]

_HALVINGS = 60  # of an interval of some scales: to the last digits of a double
_EQUAL = 1e-6  # relative: scales that differ by less count as one, where a quotient has no digits


def false_above(threshold: ScalarNoise, query: ScalarNoise, distance: float) -> float:
    """Return P(query noise - threshold noise >= distance), for two noises of one kind."""
    if threshold.kind != query.kind:
        raise ValueError(
            "noise on threshold and queries must be of one kind for how often comparisons err, got "
            f"{threshold} and {query}"
        )
    b1, b2 = threshold.scale, query.scale
    if threshold.kind == query.kind == "gaussian":
        return float(ndtr(-distance / math.hypot(b1, b2)))
    if threshold.kind == query.kind == "exponential":
        if distance >= 0:
            return b2 / (b1 + b2) * math.exp(-distance / b2)
        return 1 - b1 / (b1 + b2) * math.exp(distance / b1)
    if distance < 0:
        return 1 - false_above(threshold, query, -distance)
    if abs(b1 - b2) <= _EQUAL * b2:
        larger = max(b1, b2)  # tails grow with either scale
        return 0.5 * (1 + 0.5 * distance / larger) * math.exp(-distance / larger)
    tails = b2**2 * math.exp(-distance / b2) - b1**2 * math.exp(-distance / b1)
    return 0.5 * tails / (b2**2 - b1**2)


def false_below(threshold: ScalarNoise, query: ScalarNoise, distance: float) -> float:
    """Return P(query noise - threshold noise < -distance)."""
    if threshold.kind == "exponential":
        return false_above(query, threshold, distance)
    return false_above(threshold, query, distance)


def best_offset(threshold: ScalarNoise, query: ScalarNoise, distance: float) -> float:
    """Return what to add to a threshold so that both errors at a distance from it are equal."""
    if threshold.kind != "exponential":
        return 0.0
    low, high = -distance - threshold.scale, distance + query.scale
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = false_above(threshold, query, distance + middle)
        if above > false_below(threshold, query, distance - middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2
