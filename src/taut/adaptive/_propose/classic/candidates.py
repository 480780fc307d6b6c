"""Which bound to propose: the first of several candidates that passes, at one price."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import Adjacency, PrivacyLoss, approximate, pure
from taut.adaptive._propose.classic.median import lower_median, median_noise
from taut.adaptive._propose.classic.median_distance import (
    checked_range,
    clipped,
    moves_to_exceed,
    refuse_hopeless,
)
from taut.adaptive._propose.distance_test import checked_delta
from taut.adaptive._propose.frozen_fields import settle
from taut.adaptive._propose.outcome import Outcome
from taut.noise import LInfBall, RandomSource, default_generator, discrete_laplace_noise
from taut.noise.recording import Release, released

__all__ = ["SearchedMedian"]

# Of epsilon, for the noise of the threshold: nearly 1 / (1 + 2^(2/3)), which makes the noise of a
# comparison least (Lyu, Su and Li 2017). Any share is sound.
_THRESHOLD_SHARE = Fraction(193, 500)
_TAIL_FACTOR = 1 + 1e-9  # relative: the tail is a difference of terms up to 20 times as large
_SURE_PASS = 60.0  # exponent: where distances are cut, two noises reach with exp(-18) or less
_MOST_STEPS = 1 << 62  # thresholds fit into 64 bits


@dataclass(frozen=True)
class SearchedMedian:
    """The lower median, with noise for the first of several bounds that the data pass.

    Args:
        low: public lower bound on the data.
        high: public upper bound on the data.
        bounds: candidates above 0, in increasing order; chosen without looking at the data.
        test_epsilon: loss of the search, however many candidates there are.
        epsilon: loss of the noise, of scale bound / ``epsilon``.
        delta: probability, at most, that a bound passes which the data violate; below 1/2.

    Distances to all candidates are compared with one noisy threshold, smallest bound first, until
    one passes: the sparse vector technique with whole noise (Dwork and Lei 2009 test candidates one
    by one, at a price that grows with their number). More candidates raise the threshold by the
    logarithm of their number, and cost nothing else.

    **Guarantee**: (``test_epsilon`` + ``epsilon``, ``delta``)-DP for replace-one neighbours
    (docs/theory/propose-test-release.md). Which bound passed may be published.

    Raises:
        ValueError: if a parameter is out of range, or bounds do not increase.

    Example:
        >>> import numpy as np
        >>> from taut.adaptive import SearchedMedian
        >>> median = SearchedMedian(
        ...     low=0, high=1000, bounds=(0.01, 0.1, 1, 10, 100), test_epsilon=0.5, epsilon=0.5,
        ...     delta=1e-6,
        ... )
        >>> outcome = median.release(np.linspace(20, 60, 100_001))
        >>> outcome.released, abs(outcome.value - 40) < 10
        (True, True)
    """

    low: float
    high: float
    bounds: Sequence[float]
    test_epsilon: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        settle(
            self,
            test_epsilon=validate.positive(test_epsilon=self.test_epsilon),
            epsilon=validate.positive(epsilon=self.epsilon),
            delta=checked_delta(self.delta),
        )
        low, high = checked_range(self.low, self.high)
        settle(self, low=low, high=high)
        bounds = tuple(validate.positive(bound=bound) for bound in self.bounds)
        if not bounds or any(a >= b for a, b in pairwise(bounds)):
            raise ValueError(f"bounds must increase, and be at least one, got {bounds!r}")
        settle(self, bounds=bounds)
        if not 2.0**-40 <= self.test_epsilon <= 500:  # noise in 64 bits; exp within floats
            raise ValueError(
                f"test_epsilon must be between 2^-40 and 500, got {self.test_epsilon!r}"
            )

    @cached_property
    def threshold(self) -> int:
        """The least noisy distance that passes, before its own noise."""
        limit = self.delta / len(self.bounds)
        # The tail falls with the threshold, so that a search by halves finds the first.
        return bisect_left(range(_MOST_STEPS), -limit, lo=1, key=lambda at: -self._tail(at))

    @cached_property
    def failure(self) -> float:
        """Upper bound on the probability that a bound passes which the data violate."""
        return len(self.bounds) * self._tail(self.threshold)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release, refused or not."""
        total = self.test_epsilon + self.epsilon
        return approximate(total * (1 + 1e-11), self.failure, adjacency=Adjacency.REPLACE)

    def release(self, data: ArrayLike, generator: RandomSource | None = None) -> Outcome[float]:
        """Return the median with noise for the first bound that passes, or a refusal.

        Args:
            data: one number per record.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class.

        Raises:
            ValueError: if ``data`` is no vector, or so short that no data would pass.
        """
        values = clipped(data, self.low, self.high)
        refuse_hopeless(values.size, self.low, self.high, self.bounds[-1], self.threshold)
        chosen = self._first(values, generator)
        if chosen is None:
            return Outcome(False, None, self.loss)
        noise = median_noise(self.bounds[chosen], self.epsilon)
        noisy = float(noise.release([lower_median(values)], generator)[0])
        return Outcome(True, float(min(max(noisy, self.low), self.high)), self.loss)

    def _first(self, values: Vector, generator: RandomSource | None) -> int | None:
        cap = self.threshold + math.ceil(_SURE_PASS / self.test_epsilon)
        distances = [
            moves_to_exceed(values, self.low, self.high, bound, cap) for bound in self.bounds
        ]
        source = default_generator() if generator is None else generator
        threshold_scale, query_scale = self._scales

        def draw() -> int | None:
            moved = discrete_laplace_noise(threshold_scale, generator=source)
            level = self.threshold + int(moved[0])
            for i, distance in enumerate(distances):
                noise = discrete_laplace_noise(query_scale, generator=source)
                if distance + int(noise[0]) >= level:
                    return i
            return None

        return released(draw, lambda: self._described(distances), source)

    def _described(self, distances: list[int]) -> Release:
        return Release(
            type(self).__name__,
            np.array(distances, dtype=np.float64),
            LInfBall(len(distances), 1.0, adjacency=Adjacency.REPLACE),
            {"test_epsilon": self.test_epsilon, "threshold": self.threshold},
            loss=lambda: pure(self.test_epsilon, adjacency=Adjacency.REPLACE),
        )

    @cached_property
    def _scales(self) -> tuple[Fraction, Fraction]:
        """Scales of the noise on the threshold, and on distances, which may move against it."""
        spent = Fraction(self.test_epsilon)
        return 1 / (_THRESHOLD_SHARE * spent), 2 / ((1 - _THRESHOLD_SHARE) * spent)

    def _tail(self, threshold: int) -> float:
        """Return the probability that the difference of both noises reaches a threshold >= 1."""
        rates = [1 / float(scale) for scale in self._scales]
        a, b = (math.exp(-rate) for rate in rates)
        a_tail, b_tail = (math.exp(-rate * threshold) / -math.expm1(-rate) for rate in rates)
        both = a * b / -math.expm1(-sum(rates))
        between = (a * a_tail - b * b_tail) / (-a * math.expm1(rates[0] - rates[1]))
        share = math.tanh(rates[0] / 2) * math.tanh(rates[1] / 2)
        return max(share * (both * (a_tail + b_tail) + between) * _TAIL_FACTOR, 1e-300)
