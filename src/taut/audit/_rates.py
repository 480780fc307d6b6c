"""Rates from counts, with confidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

__all__ = ["rate_at_least", "rate_at_most"]


def rate_at_least(hits: ArrayLike, trials: int, failure: float) -> NDArray[np.float64]:
    """Return lower bounds on a probability, each wrong with probability at most `failure`.

    **Guarantee**: exact for independent trials (Clopper and Pearson 1934).
    """
    k = np.asarray(hits, dtype=np.float64)
    bound = betaincinv(np.maximum(k, 1.0), trials - k + 1.0, failure)
    return np.asarray(np.where(k > 0, bound, 0.0))


def rate_at_most(hits: ArrayLike, trials: int, failure: float) -> NDArray[np.float64]:
    """Return upper bounds on a probability, each wrong with probability at most `failure`."""
    return np.asarray(1.0 - rate_at_least(trials - np.asarray(hits), trials, failure))
