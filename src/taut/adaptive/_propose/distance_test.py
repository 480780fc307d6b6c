"""A test of how far the data are from violating a bound, with whole noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from taut._base import validate
from taut._base.floats import RELATIVE_ERROR, UP
from taut.accounting import Adjacency, PrivacyLoss, approximate
from taut.adaptive._propose.boundary import distance_of
from taut.adaptive._propose.frozen_fields import settle
from taut.adaptive._secret import Secret, reveal
from taut.noise import Box, RandomSource, default_generator, discrete_laplace_noise
from taut.noise.recording import Release, released

__all__ = ["DistanceTest", "checked_delta"]

_LEAST_EPSILON = 2.0**-50  # below, noise leaves 64 bits
_MOST_EPSILON = 500.0  # above, exp leaves the range of floats; no test needs it
_SURE_PASS = 40.0  # exponent: data at the cap are refused with probability exp(-40) or less
_LEAST_DELTA = 1e-290  # far within the range of floats, and of no use to anybody
_LEAST_FAILURE = 1e-300  # stated where the true probability leaves the range of floats
# Relative: a sum of losses needs a delta above the failures in it by more than rounding.
_BELOW_DELTA = 1 - 1e-11


@dataclass(frozen=True)
class DistanceTest:
    """Pass if the data are far enough from violating a bound, by a noisy count of records.

    Args:
        epsilon: loss of the test itself; it may be 2^-50 to 500.
        delta: probability, at most, with which data pass that violate the bound; below 1/2.
        adjacency: relation in which distances are counted. It must be that of all the rest.

    A distance is the number of records that must change before the bound is violated, 0 if it is
    violated now. It passes if distance plus discrete Laplace noise of scale 1 / ``epsilon`` is at
    least `threshold`, the least integer that keeps ``delta``. Thresholds of continuous noise,
    log(1 / (2 delta)) / epsilon, are a little higher.

    **Guarantee**: if distances of neighbours differ by at most one, the answer is epsilon-DP. If,
    besides, something is released only after a pass, and for data at distance 1 or more that by
    itself has a loss L, in both directions between the data and all neighbours, all together have
    at most the loss `loss` + L; exactly `loss` if L is zero (docs/theory/propose-test-release.md).

    Raises:
        ValueError: if ``epsilon`` or ``delta`` is out of range.

    Example:
        >>> from taut.adaptive import DistanceTest
        >>> test = DistanceTest(epsilon=0.5, delta=1e-6, adjacency="replace")
        >>> test.threshold, round(test.pass_probability(60), 6)
        (27, 1.0)
    """

    epsilon: float
    delta: float
    adjacency: Adjacency | str

    def __post_init__(self) -> None:
        """Check the parameters."""
        settle(self, epsilon=validate.positive(epsilon=self.epsilon))
        if not _LEAST_EPSILON <= self.epsilon <= _MOST_EPSILON:
            raise ValueError(
                f"epsilon must be between 2^-50 and {_MOST_EPSILON:g}, got epsilon={self.epsilon!r}"
            )
        settle(self, delta=checked_delta(self.delta), adjacency=Adjacency(self.adjacency))

    @cached_property
    def threshold(self) -> int:
        """The least noisy distance that passes."""
        least = (-math.log(self.delta) - math.log1p(math.exp(-self.epsilon))) / self.epsilon
        guess = max(math.floor(least), 1)
        # Rounding moves the quotient by less than one step, or by few if it is huge.
        while _tail(self.epsilon, guess) > self.delta * _BELOW_DELTA:
            guess += max(1, math.floor(guess * RELATIVE_ERROR))
        return guess

    @cached_property
    def failure(self) -> float:
        """Upper bound on the probability that data pass that violate the bound, below ``delta``."""
        return _tail(self.epsilon, self.threshold)

    @cached_property
    def cap(self) -> int:
        """A distance that passes nearly surely; larger ones count as this."""
        return self.threshold + math.ceil(_SURE_PASS / self.epsilon)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The tight loss of an exact answer behind the test, if distances are those to another."""
        # RR(epsilon), or failure: the larger of the two profiles is that of one failing RR.
        exponent = self.epsilon * self.threshold
        by = math.exp(-exponent) * (1 - RELATIVE_ERROR * (2 + exponent))  # rounded down
        epsilon = max(self.epsilon * UP + math.log1p(-by) / UP, 0.0)
        return approximate(min(epsilon, self.epsilon), self.failure, adjacency=self.adjacency)

    def pass_probability(self, distance: int) -> float:
        """Return how probably data at a distance pass: to plan with, for data that are made up.

        Args:
            distance: number of records, at least 0.
        """
        steps = validate.integer(distance=distance)
        gap = self.threshold - min(steps, self.cap)
        share = 1 / (1 + math.exp(-self.epsilon))
        if gap >= 0:
            return share * math.exp(-self.epsilon * gap)
        return 1 - share * math.exp(-self.epsilon * (1 - gap))

    def passes(self, distance: Secret[int], generator: RandomSource | None = None) -> bool:
        """Return whether data at a distance pass, with fresh noise: this may be published.

        Args:
            distance: number of records that must change before the bound is violated; what is no
                integer of at least 0 counts as 0, infinity as `cap`.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class. Every call costs it again.

        Raises:
            TypeError: if the distance is no `Secret`, which it should have been from the start.
        """
        if not isinstance(distance, Secret):
            raise validate.WrongType(
                "distance depends on the data and must be a Secret(...), got one of the type "
                f"{type(distance).__name__}"
            )
        steps = distance_of(reveal(distance), self.cap)
        source = default_generator() if generator is None else generator

        def draw() -> bool:
            noise = discrete_laplace_noise(1 / Fraction(self.epsilon), generator=source)
            return steps + int(noise[0]) >= self.threshold

        return released(draw, lambda: self._described(steps), source)

    def _described(self, steps: int) -> Release:
        """Return what a replay is told."""
        return Release(
            type(self).__name__,
            np.array([float(steps)]),
            Box([1.0], adjacency=self.adjacency),
            {"epsilon": self.epsilon, "threshold": self.threshold},
            loss=lambda: self.loss,
        )


def checked_delta(delta: float) -> float:
    """Return the probability of a wrong pass: data that violate a bound pass sometimes, seldom."""
    chance = validate.below_one(delta=delta)
    if not _LEAST_DELTA <= chance < 0.5:
        raise ValueError(f"delta must be above 1e-290 and below 1/2, got delta={delta!r}")
    return chance


def _tail(epsilon: float, threshold: int) -> float:
    """Return an upper bound on the probability that noise alone reaches the threshold."""
    exponent = epsilon * threshold
    mass = math.exp(-exponent) / (1 + math.exp(-epsilon))
    return max(mass * (1 + RELATIVE_ERROR * (2 + exponent)), _LEAST_FAILURE)
