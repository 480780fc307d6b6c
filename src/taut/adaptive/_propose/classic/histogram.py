"""Counts of values that were not listed before: those that enough records have."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from taut._base.arrays import Vector
from taut.accounting import Adjacency, PrivacyLoss
from taut.adaptive._propose.classic.stability import counted, lead_of
from taut.adaptive._propose.distance_test import DistanceTest
from taut.adaptive._propose.outcome import Outcome
from taut.noise import L1Ball, RandomSource, default_generator, discrete_laplace_noise
from taut.noise.recording import Release, released

__all__ = ["StableHistogram"]

_BUCKETS = 64  # of what a replay compares: values differ from run to run, and their number too


@dataclass(frozen=True)
class StableHistogram:
    """Noisy counts of all values that enough records have, whatever these values are.

    Args:
        test: what is spent on one value: its ``delta`` is the probability that a value is shown
            which one record alone has. For add/remove or replace-one neighbours; a record that is
            replaced changes two counts, so that the loss is twice that of the test.

    Every count gets discrete Laplace noise of scale 1 / ``test.epsilon``; noisy counts of at least
    1 + ``test.threshold`` are shown, in the order of their size. Nothing is ever refused.

    **Guarantee**: `loss`, for the adjacency of the test, if every record has one value (Vadhan
    2017, Section 3.3; docs/theory/propose-test-release.md).

    Example:
        >>> from taut.adaptive import DistanceTest, StableHistogram
        >>> counts = StableHistogram(DistanceTest(epsilon=1.0, delta=1e-6, adjacency="add_remove"))
        >>> outcome = counts.release(["tea"] * 500 + ["coffee"] * 300 + ["my name"])
        >>> sorted(outcome.value)
        ['coffee', 'tea']
    """

    test: DistanceTest

    def __post_init__(self) -> None:
        """Check the relation."""
        lead_of(self.test)

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        return lead_of(self.test) * self.test.loss

    def release(
        self, data: Iterable[Hashable], generator: RandomSource | None = None
    ) -> Outcome[dict[Any, int]]:
        """Return noisy counts by value.

        Args:
            data: one value per record.
            generator: source of the noise, by default the secure generator.

        **Guarantee**: that of the class.
        """
        found = counted(data)
        source = default_generator() if generator is None else generator

        def draw() -> dict[Any, int]:
            scale = 1 / Fraction(self.test.epsilon)
            noise = discrete_laplace_noise(scale, size=len(found), generator=source)
            noisy = [
                (value, count + int(x))
                for ((*_, value), count), x in zip(found.items(), noise, strict=True)
            ]
            shown = [pair for pair in noisy if pair[1] > self.test.threshold]
            # The order of records must not be seen in the order of values. Of equal ones, such as
            # 1 and True, the first is kept: a choice by noisy counts alone.
            counts: dict[Any, int] = {}
            for value, count in sorted(shown, key=lambda pair: (-pair[1], repr(pair[0]))):
                counts.setdefault(value, count)
            return counts

        return Outcome(True, released(draw, lambda: self._described(found), source), self.loss)

    def _described(self, found: Counter[tuple[type, str, Any]]) -> Release:
        radius = float(lead_of(self.test))
        return Release(
            type(self).__name__,
            _sketch(found),
            L1Ball(_BUCKETS, radius, adjacency=Adjacency(self.test.adjacency)),
            {"epsilon": self.test.epsilon, "threshold": self.test.threshold},
            loss=lambda: self.loss,
        )


def _sketch(found: Counter[tuple[type, str, Any]]) -> Vector:
    """Return counts by bucket, of a fixed number: one record moves it by one."""
    sketch = np.zeros(_BUCKETS)
    for (*_, value), count in found.items():
        digest = hashlib.sha256(repr(value).encode()).digest()
        sketch[digest[0] % _BUCKETS] += count
    return sketch
