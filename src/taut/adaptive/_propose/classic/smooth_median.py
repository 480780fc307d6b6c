"""The median with noise of its smooth sensitivity: the baseline of proposals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import Adjacency, PrivacyLoss, approximate
from taut.adaptive._propose.classic.median import lower_median
from taut.adaptive._propose.classic.median_distance import (
    around_median,
    checked_range,
    clipped,
    widest,
)
from taut.adaptive._propose.distance_test import checked_delta
from taut.adaptive._propose.frozen_fields import settle
from taut.adaptive._propose.outcome import Outcome
from taut.noise import Box, RandomSource, default_generator, discrete_laplace_noise
from taut.noise.recording import Release, released

__all__ = ["SmoothMedian"]

_STEPS = 1 << 20  # of the range, into which data are rounded: a step hides below any useful noise
_ROUNDED = 1e-12  # relative: of the smoothness itself
# Absolute: exponents up to log(_STEPS), two exponentials and two products, each rounded.
_WEIGHT_ERROR = 2.0**-47


@dataclass(frozen=True)
class SmoothMedian:
    """The lower median with noise in proportion to its smooth sensitivity: never refused.

    Args:
        low: public lower bound on the data.
        high: public upper bound on the data.
        epsilon: loss at ``delta``.
        delta: probability of a larger loss; below 1.

    Data are clipped, NaN counts as ``low``, and rounded to 2^20 steps of the range. The smooth
    sensitivity S is the largest A(k) exp(-b k), with A(k) the largest local sensitivity within k
    exchanges, at least one step; noise is discrete Laplace of scale 2 S / ``epsilon``.

    **Guarantee**: (``epsilon``, ``delta``)-DP for replace-one neighbours with
    b = log(1 + epsilon / (2 log(2 / delta))) (after Nissim, Raskhodnikova and Smith 2007;
    docs/theory/propose-test-release.md).

    Raises:
        ValueError: if a parameter is out of range.

    Example:
        >>> import numpy as np
        >>> from taut.adaptive import SmoothMedian
        >>> median = SmoothMedian(low=0, high=1000, epsilon=1.0, delta=1e-6)
        >>> abs(median.release(np.linspace(20, 60, 100_001)).value - 40) < 10
        True
    """

    low: float
    high: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        settle(self, epsilon=validate.positive(epsilon=self.epsilon))
        low, high = checked_range(self.low, self.high)
        settle(self, low=low, high=high)
        settle(self, delta=checked_delta(self.delta))
        if not 1e-4 <= self.epsilon <= 500:  # the search takes 1 / epsilon^2; exp within floats
            raise ValueError(f"epsilon must be between 1e-4 and 500, got {self.epsilon!r}")

    @cached_property
    def smoothness(self) -> float:
        """The b by which the logarithm of the smooth sensitivity moves with a record, at most."""
        exact = math.log1p(self.epsilon / (2 * math.log(2 / self.delta)))
        return exact * (1 - _ROUNDED) - _WEIGHT_ERROR

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        return approximate(self.epsilon, self.delta, adjacency=Adjacency.REPLACE)

    def release(self, data: ArrayLike, generator: RandomSource | None = None) -> Outcome[float]:
        """Return the median with noise.

        Args:
            data: one number per record.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class.
        """
        steps = self._whole(clipped(data, self.low, self.high))
        middle, smooth = int(lower_median(steps)), self._smooth_sensitivity(steps)
        source = default_generator() if generator is None else generator

        def draw() -> float:
            scale = 2 * Fraction(smooth) / Fraction(self.epsilon)
            noisy = middle + int(discrete_laplace_noise(scale, generator=source)[0])
            part = min(max(noisy, 0), _STEPS) / _STEPS
            return self.low + part * (self.high - self.low)

        value = released(draw, lambda: self._described(smooth), source)
        return Outcome(True, value, self.loss)

    def _whole(self, values: Vector) -> Vector:
        """Return data in steps of the range, whole numbers."""
        return np.rint((values - self.low) / (self.high - self.low) * _STEPS)

    def _smooth_sensitivity(self, steps: Vector) -> float:
        """Return the largest A(k) exp(-b k), at least one step."""
        width = min(math.ceil(math.log(_STEPS) / self.smoothness), steps.size) + 1
        near = around_median(steps, 0.0, float(_STEPS), width)
        largest = 1.0
        for k in range(width):
            weight = math.exp(-self.smoothness * k)
            if weight * _STEPS <= largest:
                break
            largest = max(largest, weight * widest(near, k))
        return largest

    def _described(self, smooth: float) -> Release:
        return Release(
            type(self).__name__,
            np.array([math.log(smooth) / self.smoothness]),
            Box([1.0], adjacency=Adjacency.REPLACE),
            {"epsilon": self.epsilon, "delta": self.delta},
            loss=lambda: self.loss,
        )
