"""The median, with noise for a proposed bound on how far a record moves it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import Adjacency, PrivacyLoss
from taut.adaptive._propose.classic.median_distance import (
    checked_range,
    clipped,
    moves_to_exceed,
    refuse_hopeless,
)
from taut.adaptive._propose.distance_test import DistanceTest
from taut.adaptive._propose.frozen_fields import settle
from taut.adaptive._propose.outcome import Outcome
from taut.adaptive._secret import Secret
from taut.errors import AdjacencyMismatch
from taut.noise import Box, LaplaceNoise, RandomSource, laplace_with_scales

__all__ = ["ProposedMedian", "lower_median", "median_noise", "need_replace"]


@dataclass(frozen=True)
class ProposedMedian:
    """The lower median, if a record moves it by no more than a proposed bound; else a refusal.

    Args:
        low: public lower bound on the data.
        high: public upper bound on the data.
        bound: proposed bound on how far one record moves the median. Zero asks for a median that
            no record moves, which is released exactly.
        test: what is spent to find out; for replace-one neighbours.
        epsilon: loss of the noise on the median, of scale ``bound`` / ``epsilon``; None for a bound
            of zero, which needs none.

    Data are clipped to the range, and NaN counts as ``low``. The number of records is public.

    **Guarantee**: `loss`, for replace-one neighbours: the `loss` of the test and that of Laplace
    noise (Dwork and Lei 2009; docs/theory/propose-test-release.md). It does not depend on the
    data, and a refusal costs it as well.

    Raises:
        ValueError: if ``low`` is not below ``high``, ``bound`` is negative, or ``epsilon`` does not
            fit it.
        AdjacencyMismatch: if the test is for another relation.

    Example:
        >>> import numpy as np
        >>> from taut.adaptive import DistanceTest, ProposedMedian
        >>> test = DistanceTest(epsilon=0.5, delta=1e-6, adjacency="replace")
        >>> median = ProposedMedian(low=0, high=1000, bound=0.1, test=test, epsilon=0.5)
        >>> ages = np.linspace(20, 60, 100_001)
        >>> outcome = median.release(ages)
        >>> outcome.released, abs(outcome.value - 40) < 10
        (True, True)
        >>> round(outcome.loss.epsilon(delta=1e-6), 3)
        1.0
    """

    low: float
    high: float
    bound: float
    test: DistanceTest
    epsilon: float | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        low, high = checked_range(self.low, self.high)
        settle(self, low=low, high=high)
        settle(self, bound=validate.non_negative(bound=self.bound))
        need_replace(self.test)
        if self.bound > 0:
            if self.epsilon is None:
                raise ValueError("epsilon must be given, of the noise for a bound above 0")
            settle(self, epsilon=validate.positive(epsilon=self.epsilon))
        elif self.epsilon is not None:
            raise ValueError(
                "epsilon must be left out for a bound of 0: an exact median has no noise"
            )
        self._noise  # noqa: B018  # what leaves the range of floats is refused here

    @cached_property
    def _noise(self) -> LaplaceNoise | None:
        return None if self.epsilon is None else median_noise(self.bound, self.epsilon)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release, refused or not."""
        return self.test.loss if self._noise is None else self.test.loss + self._noise.loss

    def distance(self, data: ArrayLike) -> Secret[int]:
        """Return how many records must be exchanged before one record moves the median further.

        Args:
            data: one number per record.
        """
        values = clipped(data, self.low, self.high)
        return Secret(moves_to_exceed(values, self.low, self.high, self.bound, self.test.cap))

    def release(self, data: ArrayLike, generator: RandomSource | None = None) -> Outcome[float]:
        """Return the median with noise, or a refusal.

        Args:
            data: one number per record.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class. Values leave rounded to a public grid.

        Raises:
            ValueError: if ``data`` is no vector, or if it is so short that even records that all
                agree would be refused more often than not.
        """
        values = clipped(data, self.low, self.high)
        refuse_hopeless(values.size, self.low, self.high, self.bound, self.test.threshold)
        if not self.test.passes(self.distance(values), generator):
            return Outcome(False, None, self.loss)
        middle = lower_median(values)
        if self._noise is None:
            return Outcome(True, middle, self.loss)
        noisy = float(self._noise.release([middle], generator)[0])
        return Outcome(True, float(min(max(noisy, self.low), self.high)), self.loss)


def lower_median(values: Vector) -> float:
    """Return the lower median: an order statistic, never a mean of two."""
    middle = (values.size + 1) // 2 - 1
    return float(np.partition(values, middle)[middle])


def median_noise(bound: float, epsilon: float) -> LaplaceNoise:
    """Return the noise for a median that a record moves by a bound."""
    # A difference that rounds to the bound is at most half a unit in the last place above it.
    width = math.nextafter(bound, math.inf)
    return laplace_with_scales(Box([width], adjacency=Adjacency.REPLACE), [width / epsilon])


def need_replace(test: DistanceTest) -> None:
    """Refuse a test for another relation than the one in which records are exchanged."""
    if not isinstance(test, DistanceTest):
        raise validate.WrongType(f"test must be a DistanceTest, got test={test!r}")
    if test.adjacency is not Adjacency.REPLACE:
        raise AdjacencyMismatch(
            f"test must be for adjacency='replace', got {str(test.adjacency)!r}: distances of the "
            "median count exchanged records"
        )
