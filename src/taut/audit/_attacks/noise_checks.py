"""Noise checks: whether what is released where no example speaks is the noise that was claimed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc

from taut.audit._attacks.statistics import Runs

__all__ = ["NoiseCheck", "check_normal", "noise_checks"]

_TOLERATED = 5e-4  # of the deviation: engines may add a little noise to cover their rounding


@dataclass(frozen=True)
class NoiseCheck:
    """A two-sided test of one property of what is random.

    Attributes:
        name: what was tested: the "variance" of the noise, its independence "between steps" or
            "between runs", or the "draws in an epoch" of one example.
        ratio: the estimate over what was claimed; one if all is as claimed.
        p_value: the probability of a ratio as far off or farther, if all is as claimed.
    """

    name: str
    ratio: float
    p_value: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return asdict(self)


def noise_checks(runs: Runs) -> list[NoiseCheck]:
    """Test values that are claimed to be independent standard normal numbers.

    Sums of squares of the values, and of their sums over steps and over runs, then follow
    chi-squared distributions exactly. Noise that is reused makes the latter two too large, noise
    that is made to cancel makes them too small.

    Args:
        runs: runs of shape (runs, steps, coordinates), in units of the claimed deviation.
    """
    count, steps, _ = runs.shape
    return [
        check_normal("variance", runs),
        check_normal("between steps", runs.sum(1) / np.sqrt(steps)),
        check_normal("between runs", runs.sum(0) / np.sqrt(count)),
    ]


def check_normal(name: str, normal: NDArray[np.float64]) -> NoiseCheck:
    """Test the squares of values that are claimed to be independent standard normal numbers."""
    freedom = normal.size
    square = float(np.square(normal).sum())
    above = float(gammaincc(freedom / 2, square / (1 + _TOLERATED) ** 2 / 2))
    below = float(gammainc(freedom / 2, square / 2))
    return NoiseCheck(name, square / freedom, min(1.0, 2 * min(above, below)))
