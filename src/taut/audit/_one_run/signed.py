"""Guesses about canaries with signs: in with one sign, out, or in with the other one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from taut.audit._one_run.weighted import heavy_tail

__all__ = ["signed_p_value"]

_OUT, _IN = 0.5, 0.25  # probabilities of coins: a canary is out, and in with either sign
_LEAST = 1e-300  # of a ratio, so that it has a logarithm: weights end long before


def signed_p_value(
    by_sign: NDArray[np.float64],
    included: NDArray[np.bool_],
    signs: NDArray[np.int64],
    epsilon: float,
    delta: float,
) -> float:
    """Return the probability of so heavy right guesses or more, if a run is (epsilon, delta)-DP.

    Args:
        by_sign: estimated log likelihood ratios, to being out, of being in with the signs +1 and
            -1, from the run alone, shape (m, 2).
        included: whether a canary was in, by a fair coin,
        signs: signs with which they were or would have been in, by other fair coins.
        epsilon: epsilon that is tested, at `delta`.
        delta: delta of the claim.

    **Guarantee**: an upper bound on that probability, whatever the ratios are, if they do not
    depend on coins but through the run. Given run and earlier coins, the three cases, ordered from
    the sign that is guessed to the other one, are below independent ones of probabilities
    proportional to 1/4, exp(-epsilon)/2, exp(-2 epsilon)/4 in the stochastic order, but for
    what delta allows, and weights keep the order (docs/theory/one-run.md).
    """
    likeliest, unlikeliest = by_sign.max(1), by_sign.min(1)
    guessed = np.where(by_sign[:, 0] > by_sign[:, 1], 1, -1)
    outcomes = np.where(included, 1 - guessed * signs, 1)
    allowed = _allowed(epsilon)
    weights = _weights(likeliest, unlikeliest, allowed)
    # The tie of both signs is broken by chance of the name alone: no guess, and no weight.
    weights[likeliest == unlikeliest] = 0.0
    failing = len(by_sign) * delta * _failures(epsilon, allowed)
    return heavy_tail(weights, allowed, outcomes, failing)


def _allowed(epsilon: float) -> NDArray[np.float64]:
    """Return the most extreme probabilities of the three cases, given the run."""
    cases = np.array([_IN, _OUT * math.exp(-epsilon), _IN * math.exp(-2 * epsilon)])
    return np.asarray(cases / cases.sum())


def _failures(epsilon: float, allowed: NDArray[np.float64]) -> float:
    """Return how much probability delta moves for one canary, as a multiple of it."""
    first = _IN + _IN**2 / (_OUT + _IN * math.exp(-epsilon))
    last = _IN + _OUT + _IN * math.exp(epsilon)
    return float(2 * ((1 - allowed[0]) * first + allowed[2] * last))


def _weights(
    likeliest: NDArray[np.float64], unlikeliest: NDArray[np.float64], allowed: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return log likelihood ratios of the cases to those allowed, pooled until they decrease."""
    logs = np.stack([likeliest, np.zeros_like(likeliest), unlikeliest], axis=1)
    logs += np.log([_IN, _OUT, _IN])
    believed = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
    single = believed / allowed
    upper = believed[:, :2].sum(1) / allowed[:2].sum()
    lower = believed[:, 1:].sum(1) / allowed[1:].sum()
    # Isotonic regression of three values, by its formula of minima of maxima of means.
    first = np.maximum(np.maximum(single[:, 0], upper), 1.0)
    middle = np.minimum(np.maximum(upper, 1.0), np.maximum(single[:, 1], lower))
    last = np.minimum(np.minimum(single[:, 2], lower), 1.0)
    ratios = np.log(np.stack([first, middle, last], axis=1).clip(_LEAST))
    return np.asarray(ratios - ratios[:, 2:])
