"""Evidence against noise that is not what was claimed, run by run."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["RepetitionEvidence", "SizeEvidence"]

_TOLERATED = 5e-4  # of the deviation: engines may add a little noise to cover their rounding
_LESS = (0.1, 0.25, 0.5, 0.7, 0.85, 0.95)
_MORE = (1.05, 1.2, 1.5, 2.0, 4.0)
"""Deviations that are bet on, as multiples of the claimed one."""
_REMAINS = (1e-4, 0.1, 0.5)
"""Variances that are left of noise that mostly repeats that of the run before."""
_LIKELY_SIZES = np.linspace(1.0, 1.0 + _TOLERATED, 5)


class SizeEvidence:
    """Evidence that values claimed to be standard normal have another deviation.

    Args:
        name: what is tested.

    **Guarantee**: for values that are normal given the past, with one deviation between the claimed
    one and a little more, the mean over all alternatives of the likelihood ratios is a
    supermartingale: a ratio for less noise falls with every square, and one for more is made
    against the largest deviation that is tolerated.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.squares = 0.0
        self._alternatives = np.array([*_LESS, *_MORE])
        claimed = np.where(self._alternatives < 1, 1.0, 1 + _TOLERATED)
        self._logs = np.log(claimed / self._alternatives)
        self._factors = (1 / claimed**2 - 1 / self._alternatives**2) / 2

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence so far."""
        logs = self.count * self._logs + self.squares * self._factors
        return float(np.logaddexp.reduce(logs) - math.log(len(logs)))

    @property
    def ratio(self) -> float:
        """The mean square, over what was claimed."""
        return self.squares / self.count if self.count else 1.0

    def update(self, values: NDArray[np.float64]) -> None:
        """Take in values that are claimed to be standard normal, whatever came before."""
        self.count += values.size
        self.squares += float(np.square(values).sum())


class RepetitionEvidence:
    """Evidence that noise repeats that of the run before, in part or exactly.

    **Guarantee**: for values that are normal given the past, with mean zero and one deviation
    between the claimed one and a little more, the evidence is a supermartingale: the alternative is
    normal around the run before, and each ratio is divided by its largest mean.
    """

    name = "between runs"

    def __init__(self) -> None:
        self._before: NDArray[np.float64] | None = None
        self._logs = np.zeros(len(_REMAINS))
        self._products = self._squares = 0.0

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence so far."""
        return float(np.logaddexp.reduce(self._logs) - math.log(len(self._logs)))

    @property
    def ratio(self) -> float:
        """One and the correlation of successive runs: the square of their sum over the expected."""
        return 1.0 + self._products / self._squares if self._squares else 1.0

    def update(self, values: NDArray[np.float64]) -> None:
        """Take in the values of the next run, of the shape that all have."""
        before, self._before = self._before, values
        if before is None:
            return
        self._products += float((before * values).sum())
        self._squares += float(np.square(values).sum())
        for place, left in enumerate(_REMAINS):
            mean = math.sqrt(1 - left) * before
            ratio = np.square(values) - np.square(values - mean) / left - math.log(left)
            self._logs[place] += float(ratio.sum()) / 2 - _most(mean, left)


def _most(mean: NDArray[np.float64], left: float) -> float:
    """Return the logarithm of the ratio's largest mean over deviations that are tolerated."""
    sharp = 1 / left - 1 + 1 / np.square(_LIKELY_SIZES)
    square = float(np.square(mean).sum())
    means = square / (2 * left**2 * sharp) - square / (2 * left)
    means -= mean.size / 2 * np.log(left * np.square(_LIKELY_SIZES) * sharp)
    return max(float(means.max()), 0.0)
