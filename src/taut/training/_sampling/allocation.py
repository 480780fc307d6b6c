"""Random allocation: every example takes part in one step of every epoch, drawn uniformly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taut.accounting import GaussianRun, PrivacyLoss, Sampler
from taut.noise import RandomSource, default_generator
from taut.training._sampling.epochs import EpochSampling
from taut.training._sampling.sampling import Indices, checked_examples

__all__ = ["RandomAllocation", "draw_steps", "in_order_of_steps"]

_BLOCK = 1 << 16  # draws at a time: words of 64 bits are far wider than the steps they name
_MOST_STEPS = 1 << 32  # of an epoch: steps are kept in at most four bytes an example


@dataclass(frozen=True)
class RandomAllocation(EpochSampling):
    """Every example takes part in exactly one step of every epoch, which it draws uniformly.

    Batch sizes vary as under Poisson sampling with rate 1 / `steps`, but an epoch uses every
    example once, and mostly costs less; `Plan(sampling="best")` takes the cheaper of the two.

    Args:
        steps: the number of steps in an epoch; left out, a plan sets it.

    **Guarantee**: add/remove adjacency; `loss` is exact for whole epochs and for one that was
    stopped in the middle (docs/theory/allocation.md, after Feldman and Shenfeld 2025), if draws
    stay secret and sums are divided by a constant. An epoch is drawn when it begins, example by
    example and exactly uniformly, and kept in this process alone, in at most four bytes an example
    (eight from 2^32 examples on). A run that goes on after a stop, or in another process, begins a
    new epoch: the ledger then counts what was taken of the old one as a part of an epoch, and the
    rest as new epochs.

    Example:
        >>> from taut.training import RandomAllocation
        >>> sampling = RandomAllocation(steps=4)
        >>> batches = sampling.batches(1_000)
        >>> epoch = [next(batches) for _ in range(4)]
        >>> sum(len(batch) for batch in epoch), len(set().union(*map(set, epoch)))
        (1000, 1000)
    """

    name = Sampler.ALLOCATION.value
    adjacency = Sampler.ALLOCATION.usual_adjacency
    samples_apart = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and self.steps > _MOST_STEPS:
            raise ValueError(f"steps must be at most 2^32, got steps={self.steps!r}")

    @property
    def epoch_steps(self) -> int:
        return self._steps

    def fitted(self, examples: int, rate: float) -> Self:
        run = GaussianRun.of(Sampler.ALLOCATION, steps=1, rate=rate)
        return replace(self, steps=run.epoch_steps)

    def loss(self, noise_multiplier: float, examples: int, steps: int) -> PrivacyLoss:
        """Return the loss of `steps` steps, the last epoch of which may be a part."""
        run = GaussianRun.of(Sampler.ALLOCATION, steps=steps, rate=1 / self.epoch_steps)
        return run.loss(noise_multiplier)

    def draw(self, examples: int, generator: RandomSource | None = None) -> Indices:
        """Return the first batch of a new epoch."""
        return next(self.batches(examples, generator))

    def batches(self, examples: int, generator: RandomSource | None = None) -> Iterator[Indices]:
        """Yield the batches of one epoch after the other, without end."""
        n = checked_examples(examples)
        source = default_generator() if generator is None else generator
        while True:
            drawn = draw_steps(n, self.epoch_steps, source)
            order, ends = in_order_of_steps(drawn, self.epoch_steps)
            for place in range(self.epoch_steps):
                yield order[ends[place] : ends[place + 1]].astype(np.int64)


def draw_steps(examples: int, steps: int, source: RandomSource) -> NDArray[np.unsignedinteger]:
    """Return a step for every example, drawn exactly uniformly, shape (examples,)."""
    drawn = np.empty(examples, dtype=np.min_scalar_type(steps - 1))
    for start in range(0, examples, _BLOCK):
        size = min(_BLOCK, examples - start)
        drawn[start : start + size] = source.uniform_below(steps, size)
    return drawn


def in_order_of_steps(
    drawn: NDArray[np.integer], steps: int
) -> tuple[NDArray[np.unsignedinteger], Indices]:
    """Return the examples in the order of their steps, and where every step begins and ends."""
    examples = drawn.size
    # Stable, so that the examples of a step keep their order.
    order = np.argsort(drawn, kind="stable").astype(np.min_scalar_type(max(examples - 1, 0)))
    ends = np.concatenate([[0], np.cumsum(np.bincount(drawn, minlength=steps))])
    return order, ends
