"""Draw check: whether the canary is in as many batches of an epoch as its sampling says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from taut.audit._attacks.statistics import Runs, StepValues

__all__ = ["normal_draws"]

_LEAST = 1e-300  # of a tail: a normal number of 37 deviations refutes any claim, and stays finite


def normal_draws(
    runs: Runs, *, shift: StepValues, rate: StepValues, is_allocated: bool
) -> NDArray[np.float64]:
    """Return sums over epochs of what the canary alone has released, made standard normal.

    A sum over an epoch is normal noise and as many shifts as batches had the canary: exactly one
    if it is allocated to a step, a binomial number if every step draws afresh. Its distribution
    function then is known, and makes a standard normal number of it.

    Args:
        runs: observations of shape (runs, steps, coordinates), in units of the claimed deviation,
            on a dataset in which only the canary has a gradient, in the first coordinate.
        shift: the length of a clipped gradient, in units of the noise's deviation; one number, or
            one for every step.
        rate: the probability that the canary is in a batch, likewise.
        is_allocated: whether the claim is that it is in exactly one batch of every 1 / rate.
    """
    steps = runs.shape[1]
    pairs = np.broadcast_to(np.stack(np.broadcast_arrays(shift, rate), -1), (steps, 2))
    # Only steps that are alike can be added up.
    ends = [*(np.flatnonzero((pairs[1:] != pairs[:-1]).any(1)) + 1).tolist(), steps]
    normal, begin = [], 0
    for end in ends:
        moved, chance = (float(value) for value in pairs[begin])
        normal += _of_stretch(runs[:, begin:end, 0], moved, chance, is_allocated)
        begin = end
    return np.concatenate(normal)


def _of_stretch(
    runs: NDArray[np.float64], shift: float, rate: float, is_allocated: bool
) -> list[NDArray[np.float64]]:
    """Return sums over the epochs of steps that are alike, made standard normal."""
    steps, period = runs.shape[1], max(round(1 / rate), 1)
    return [
        _normal_of(
            runs[:, first : first + period].sum(1),
            min(period, steps - first),
            shift,
            rate,
            is_allocated,
        )
        for first in range(0, steps, period)
    ]


def _normal_of(
    sums: NDArray[np.float64], steps: int, shift: float, rate: float, is_allocated: bool
) -> NDArray[np.float64]:
    """Return sums over some steps, made standard normal by their claimed distribution."""
    if is_allocated:
        weights = np.array([max(1 - steps * rate, 0.0), min(steps * rate, 1.0)])
    else:
        weights = binom.pmf(np.arange(steps + 1), steps, rate)
    standard = (sums[:, None] - shift * np.arange(len(weights))) / np.sqrt(steps)
    below, above = ndtr(standard) @ weights, ndtr(-standard) @ weights
    # The smaller tail, so that no digit of it is lost.
    tails = ndtri(np.maximum(np.minimum(below, above), _LEAST))
    return np.asarray(np.where(below < above, tails, -tails))
