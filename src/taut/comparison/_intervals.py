"""Means with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from taut._base import validate

__all__ = ["Interval", "difference_interval", "mean_interval", "one_example"]


@dataclass(frozen=True)
class Interval:
    """A mean and how far it may be off.

    Attributes:
        mean: mean of the values.
        low: the lower end,
        high: the upper end of the interval; without end for one value.
        count: how many values there were.
        confidence: confidence level with which the interval holds the true mean, for values that
            are normal and independent (Student 1908).
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


def mean_interval(
    values: Sequence[float], confidence: float, *, deviation: float = 0.0, reach: float = 0.0
) -> Interval:
    """Return the mean of values with Student's interval.

    Args:
        values: independent and normal.
        confidence: confidence level of the interval.
        deviation: standard deviation of one value, at least: values that agree by chance are no
            evidence.
        reach: least reach of the interval to both sides, at least.
    """
    level = validate.positive(confidence=validate.below_one(confidence=confidence))
    table = np.asarray(values, dtype=np.float64)
    mean, count = float(table.mean()), len(table)
    if count < 2 or not np.isfinite(table).all():
        return Interval(mean, -math.inf, math.inf, count, level)
    spread = max(float(table.std(ddof=1)), deviation)
    half = max(float(stdtrit(count - 1, (1 + level) / 2)) * spread / math.sqrt(count), reach)
    return Interval(mean, mean - half, mean + half, count, level)


def difference_interval(
    values: Sequence[float], base: Sequence[float], confidence: float, examples: int | None
) -> Interval:
    """Return the mean difference on equal seeds, never finer than the examples resolve it.

    Args:
        values: values of one arm, by seed.
        base: values of the other, by seed.
        confidence: confidence level of the interval.
        examples: number of examples that accuracies are counted on; None for numbers that are not
            counts.

    Two models whose accuracies differ by k of n examples disagree on k examples at least, and the
    number of those varies as a binomial one: by sqrt(k (1 - k/n)) at least, and by no less than
    one example. The deviation of a difference is taken for that where seeds happen to agree better,
    and no interval reaches less far than one example.
    """
    if not all(map(math.isfinite, [*values, *base])):
        return Interval(math.nan, -math.inf, math.inf, len(values), confidence)
    found = [a - b for a, b in zip(values, base, strict=True)]
    if examples is None:
        return mean_interval(found, confidence)
    share = abs(sum(found) / len(found))
    deviation = math.sqrt(max(share * (1 - share) * examples, 1.0)) / examples
    return mean_interval(found, confidence, deviation=deviation, reach=one_example(examples))


def one_example(examples: int) -> float:
    """Return what one of so many examples counts, and what rounding may add in differences."""
    return (1 + 1e-9) / examples  # differences of numbers below one are within 1e-15 of theirs
