"""A release with noise for a bound that is released first: no refusal."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from taut._base import validate
from taut._base.floats import UP
from taut.accounting import Adjacency, PrivacyLoss, approximate
from taut.adaptive._propose.boundary import asked, number_of
from taut.adaptive._propose.classic.median_distance import checked_range
from taut.adaptive._propose.distance_test import checked_delta
from taut.adaptive._propose.frozen_fields import settle
from taut.adaptive._propose.outcome import Outcome
from taut.noise import Box, LaplaceNoise, RandomSource, laplace_with_scales

__all__ = ["BoundedRelease"]

_LEAST_PART = 2.0**-40  # of the range: the least bound; noise below it would help nobody
_MOST_SCALES = 2.0**40  # half of where releases are cut, which would make a bound too small
_LOSS_FACTOR = 1 + 1e-11  # covers what noise allows for rounding, twice


@dataclass(frozen=True)
class BoundedRelease:
    """A number with noise for a private bound on how far a record moves it: never refused.

    Args:
        value: function of the data: the number that is wanted.
        local_sensitivity: function of the data: how far one record can move the value from here.
        step: public bound on how far one record moves the local sensitivity.
        low: public lower bound on values; others are clipped.
        high: public upper bound on values.
        bound_epsilon: loss of the private bound.
        epsilon: loss of the noise on the value.
        delta: probability, at most, that the bound is too small; below 1/2.
        adjacency: relation in which all of this holds.

    The bound is the local sensitivity with Laplace noise of scale ``step`` / ``bound_epsilon``, and
    so much more that it is too small with probability ``delta`` only.

    **Guarantee**: (``bound_epsilon`` + ``epsilon``, ``delta``)-DP (Vadhan 2017, Section 3.4, with
    one tail of the noise; docs/theory/propose-test-release.md). Functions that raise, or return
    what is no number, count as ``low`` and as a local sensitivity of the whole range.

    Raises:
        ValueError: if a parameter is out of range.

    Example:
        >>> from taut.adaptive import BoundedRelease
        >>> square = BoundedRelease(
        ...     value=lambda parts: sum(parts) ** 2,  # of parts between 0 and 1
        ...     local_sensitivity=lambda parts: 2 * sum(parts) + 1,
        ...     step=2, low=0, high=1e8, bound_epsilon=0.5, epsilon=0.5, delta=1e-6,
        ...     adjacency="add_remove",
        ... )
        >>> outcome = square.release([0.5] * 4_000)
        >>> abs(outcome.value / 4e6 - 1) < 0.1, round(outcome.loss.epsilon(delta=1e-6), 6)
        (True, 1.0)
    """

    value: Callable[[Any], float]
    local_sensitivity: Callable[[Any], float]
    step: float
    low: float
    high: float
    bound_epsilon: float
    epsilon: float
    delta: float
    adjacency: Adjacency | str

    def __post_init__(self) -> None:
        """Check the parameters."""
        settle(
            self,
            step=validate.positive(step=self.step),
            bound_epsilon=validate.positive(bound_epsilon=self.bound_epsilon),
            epsilon=validate.positive(epsilon=self.epsilon),
            delta=checked_delta(self.delta),
            adjacency=Adjacency(self.adjacency),
        )
        low, high = checked_range(self.low, self.high)
        settle(self, low=low, high=high)
        for name in ("value", "local_sensitivity"):
            if not callable(getattr(self, name)):
                raise validate.WrongType(f"{name} must be a function of the data")
        if not self.high - self.low <= _MOST_SCALES * float(self._bound_noise.scales[0]):
            raise ValueError(
                "low and high must be less than 2^40 scales of the bound's noise apart; give a "
                "narrower range, or a larger step"
            )

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        total = (self.bound_epsilon + self.epsilon) * _LOSS_FACTOR
        return approximate(total, self.delta, adjacency=self.adjacency)

    @cached_property
    def _bound_noise(self) -> LaplaceNoise:
        scale = self.step / self.bound_epsilon
        return laplace_with_scales(Box([self.step], adjacency=self.adjacency), [scale])

    @cached_property
    def _margin(self) -> float:
        """What is added to the noisy local sensitivity: the tail, and half a step of the grid."""
        noise = self._bound_noise
        tail = -math.log(2 * self.delta) * float(noise.scales[0])
        return (max(tail, 0.0) + float(noise.grid[0])) * UP

    def release(self, data: Any, generator: RandomSource | None = None) -> Outcome[float]:
        """Return the value with noise.

        Args:
            data: dataset that both functions are asked about.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class.
        """
        width = self.high - self.low
        local = number_of(asked(self.local_sensitivity, data))
        near = width if local is None or local < 0 else min(local, width)
        found = float(self._bound_noise.release([near], generator)[0]) + self._margin
        bound = min(max(found, width * _LEAST_PART), width) * UP
        value = number_of(asked(self.value, data))
        inside = self.low if value is None else min(max(value, self.low), self.high)
        noise = laplace_with_scales(Box([bound], adjacency=self.adjacency), [bound / self.epsilon])
        noisy = float(noise.release([inside], generator)[0])
        return Outcome(True, float(min(max(noisy, self.low), self.high)), self.loss)
