"""Means with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from taut._base import validate

__all__ = ["Interval", "mean_interval"]


@dataclass(frozen=True)
class Interval:
    """A mean and how far it may be off.

    Attributes:
        mean: of the values.
        low: the lower end,
        high: and the upper end of the interval; without end for one value.
        count: how many values there were.
        confidence: with which the interval holds the true mean, for values that are normal and
            independent (Student 1908).
    """

    mean: float
    low: float
    high: float
    count: int
    confidence: float

    def __str__(self) -> str:
        if not math.isfinite(self.high - self.low):
            return f"{self.mean:.4f}"
        return f"{self.mean:.4f} ± {(self.high - self.low) / 2:.4f}"

    def to_dict(self) -> dict[str, Any]:
        """Return numbers for JSON; ends that are infinite as None."""
        values = asdict(self).items()
        return {name: value if math.isfinite(value) else None for name, value in values}


def mean_interval(values: Sequence[float], confidence: float) -> Interval:
    """Return the mean of values with Student's interval."""
    level = validate.positive(confidence=validate.below_one(confidence=confidence))
    table = np.asarray(values, dtype=np.float64)
    mean, count = float(table.mean()), len(table)
    if count < 2 or not np.isfinite(table).all():
        return Interval(mean, -math.inf, math.inf, count, level)
    reach = float(stdtrit(count - 1, (1 + level) / 2) * table.std(ddof=1) / math.sqrt(count))
    return Interval(mean, mean - reach, mean + reach, count, level)
