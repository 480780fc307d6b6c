"""A fixed order: every epoch goes through the examples in the same, public way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Self

import numpy as np

from taut.accounting import Adjacency, PrivacyLoss, gaussian
from taut.matrix import Encoder, FixedOrder, unamplified_loss
from taut.noise import RandomSource
from taut.training._sampling.epochs import EpochSampling
from taut.training._sampling.sampling import USUAL_DELTA, Indices, checked_examples

__all__ = ["FixedOrderSampling"]

_RATE_ERROR = 1e-9  # relative: what arithmetic does to the inverse of a rate


@dataclass(frozen=True)
class FixedOrderSampling(EpochSampling):
    """Step s of every epoch of b steps looks at the examples s, s + b, s + 2 b, ...

    Who is in which batch is public, and hides nothing: this is for noise that is correlated over
    steps, whose loss needs to know how far apart an example's steps are.

    Args:
        steps: the number of steps in an epoch, b; left out, a plan sets it.

    **Guarantee**: zero-out adjacency, where number and order of the examples are public. An
    example takes part once in every b steps, exactly b steps apart.

    Example:
        >>> from taut.training import FixedOrderSampling
        >>> FixedOrderSampling(steps=4).draw(10).tolist()
        [0, 4, 8]
    """

    name = "fixed_order"
    adjacency = Adjacency.ZERO_OUT
    numbers_steps = True

    @property
    def order(self) -> FixedOrder:
        """The rule of participation that it keeps to."""
        return FixedOrder(self._steps)

    def fitted(self, examples: int, rate: float) -> Self:
        steps = round(1 / rate)
        if not math.isclose(steps * rate, 1.0, rel_tol=_RATE_ERROR):
            raise ValueError(
                f"rate must be one over a whole number of steps for a fixed order, got {rate!r}; "
                "give batch_size instead"
            )
        return replace(self, steps=steps)

    def loss(self, noise_multiplier: float, examples: int, steps: int) -> PrivacyLoss:
        """Return the loss of independent noise: one release for every epoch that was begun."""
        epochs = -(-steps // self._steps)
        return epochs * gaussian(noise_multiplier, adjacency=self.adjacency)

    def correlated_loss(
        self, encoder: Encoder, sigma: float, delta: float = USUAL_DELTA
    ) -> PrivacyLoss:
        return unamplified_loss(encoder, self.order, sigma, adjacency=self.adjacency)

    def draw(self, examples: int, generator: RandomSource | None = None) -> Indices:
        """Return the first batch of an epoch."""
        return np.arange(0, checked_examples(examples), self._steps, dtype=np.int64)

    def shares_from(
        self,
        step: int,
        examples: int,
        rank: int,
        world_size: int,
        generator: RandomSource | None = None,
    ) -> Iterator[Indices]:
        """Yield this process's part of the batches from a step on, without end."""
        n = checked_examples(examples)
        for number in count(step):
            batch = np.arange(number % self._steps, n, self._steps, dtype=np.int64)
            yield batch[rank::world_size]

    def shares(
        self, examples: int, rank: int, world_size: int, generator: RandomSource | None = None
    ) -> Iterator[Indices]:
        """Yield this process's part of the batches from the first step on, without end."""
        return self.shares_from(0, examples, rank, world_size, generator)

    def batches(self, examples: int, generator: RandomSource | None = None) -> Iterator[Indices]:
        """Yield the batches from the first step on, without end."""
        return self.shares_from(0, examples, 0, 1, generator)
