"""Batches for correlated noise that are secret: which steps an example is in, a key decides."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Never, Self

import numpy as np

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss
from taut.errors import UnsoundConfiguration
from taut.matrix import (
    BallsInBins,
    CyclicAllocation,
    CyclicPoisson,
    Encoder,
    amplified_loss,
)
from taut.noise import RandomSource, default_generator
from taut.training._sampling.allocation import draw_steps, in_order_of_steps
from taut.training._sampling.sampling import (
    USUAL_DELTA,
    Indices,
    PoissonSampling,
    Sampling,
    checked_examples,
)

__all__ = [
    "BallsInBinsSampling",
    "Bits",
    "CyclicAllocationSampling",
    "CyclicPoissonSampling",
    "KeyedSampling",
]

Bits = Callable[[int], RandomSource]
"""From the number of a draw to its random bits, which are the same whenever they are asked for."""

_USUAL_GROUPS = 16  # as many as bands are kept of noise that is asked for by its name alone
_EPOCH_ERROR = 1e-9  # relative: what arithmetic does to the inverse of a rate


class KeyedSampling(Sampling):
    """Batches that follow from a key and the number of a step, and are a secret.

    The loss is that of a whole run with correlated noise, whose theorem is about one draw for all
    steps of an epoch or of the run: a run that goes on after a stop must go on with that draw.
    """

    @property
    @abstractmethod
    def most_bands(self) -> int:
        """Number of bands that noise should have, if it is asked for by name."""

    @abstractmethod
    def keyed_batches(self, bits: Bits, step: int, examples: int) -> Iterator[Indices]:
        """Yield the batches from a step on, without end; the same for the same bits."""

    def check_examples(self, planned: int, examples: int) -> None:
        """Accept any dataset: the loss depends on the number of steps alone."""

    def step_loss(self, noise_multiplier: float, examples: int) -> Never:
        raise UnsoundConfiguration(
            f"sampling={self.name!r} is for noise that is correlated over steps, such as "
            "noise='banded'; for independent noise sampling='allocation' costs less"
        )

    def keyed_shares(
        self, bits: Bits, step: int, examples: int, rank: int, world_size: int
    ) -> Iterator[Indices]:
        """Yield one process's part of the batches from a step on; all have the same bits."""
        for batch in self.keyed_batches(bits, step, checked_examples(examples)):
            yield batch[rank::world_size]

    def draw(self, examples: int, generator: RandomSource | None = None) -> Indices:
        """Return the first batch of a new run."""
        return next(self.batches(examples, generator))

    def batches(self, examples: int, generator: RandomSource | None = None) -> Iterator[Indices]:
        """Yield the batches of a run that nobody goes on with elsewhere, without end."""
        source = default_generator() if generator is None else generator
        return self.keyed_batches(lambda _: source, 0, checked_examples(examples))

    def _refuse_reach(self, encoder: Encoder, groups: int) -> None:
        if encoder.reach > groups:
            raise UnsoundConfiguration(
                f"sampling={self!r} keeps steps of an example groups={groups} apart, and noise "
                f"reaches over {encoder.reach} steps; use noise='banded', an encoder with at most "
                f"{groups} bands, or sampling='fixed_order'"
            )


@dataclass(frozen=True)
class CyclicPoissonSampling(KeyedSampling):
    """Step s looks at group s modulo `groups`, and draws each of its examples independently.

    Example i is in group i modulo `groups`, which is public.

    Args:
        groups: the number of groups, at least as many as the noise has bands; left out, a plan
            sets it.
        rate: probability with which examples of the group take part; left out, a plan sets it.

    **Guarantee**: zero-out adjacency; `correlated_loss` is exactly that of sampled Gaussians, one
    for every turn of an example's group (Choquette-Choo, Ganesh, Steinke and Thakurta 2024), if
    batches stay secret. Any rate is drawn exactly.

    Example:
        >>> from taut.training import CyclicPoissonSampling
        >>> batches = CyclicPoissonSampling(groups=4, rate=0.5).batches(1_000)
        >>> sorted({int(place) % 4 for place in next(batches)})
        [0]
    """

    name = "cyclic_poisson"
    adjacency = Adjacency.ZERO_OUT

    groups: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        _set_positive(self, "groups")
        if self.rate is not None:
            PoissonSampling(rate=self.rate)

    @property
    def is_fitted(self) -> bool:
        return self.groups is not None and self.rate is not None

    @property
    def most_bands(self) -> int:
        return self._sampler.groups

    def fitted(self, examples: int, rate: float) -> Self:
        most = max(math.floor(1 / rate * (1 + _EPOCH_ERROR)), 1)
        groups = min(_USUAL_GROUPS, most) if self.groups is None else self.groups
        if groups > most:
            raise ValueError(
                f"groups must be at most 1 / rate = {most}, got groups={groups}: a step cannot "
                "look at more examples than its group has"
            )
        return replace(self, groups=groups, rate=min(groups * rate, 1.0))

    def expected_batch_size(self, examples: int) -> float:
        return self._sampler.rate * examples / self._sampler.groups

    def correlated_loss(
        self, encoder: Encoder, sigma: float, delta: float = USUAL_DELTA
    ) -> PrivacyLoss:
        self._refuse_reach(encoder, self._sampler.groups)
        return amplified_loss(encoder, self._sampler, sigma, adjacency=self.adjacency)

    def keyed_batches(self, bits: Bits, step: int, examples: int) -> Iterator[Indices]:
        groups, inner = self._sampler.groups, PoissonSampling(rate=self._sampler.rate)
        for number in count(step):
            members = np.arange(number % groups, examples, groups, dtype=np.int64)
            yield members[inner.draw(members.size, bits(number))]

    @property
    def _sampler(self) -> CyclicPoisson:
        if self.groups is None or self.rate is None:
            raise ValueError("groups and rate must be set before batches are drawn")
        return CyclicPoisson(self.groups, self.rate)


@dataclass(frozen=True)
class _Epochs(KeyedSampling):
    """Epochs of so many whole steps, in which every example takes part once."""

    steps: int | None = None

    def __post_init__(self) -> None:
        _set_positive(self, "steps")

    @property
    def is_fitted(self) -> bool:
        return self.steps is not None

    def rate_of(self, batch_size: float, examples: int) -> float:
        """Return the rate of an epoch of whole steps, whose batches are no smaller on average."""
        return 1 / max(math.floor(examples / batch_size * (1 + 1e-12)), 1)

    def expected_batch_size(self, examples: int) -> float:
        return examples / self._steps

    def fitted(self, examples: int, rate: float) -> Self:
        return replace(self, steps=self._steps_of(rate))

    def _steps_of(self, rate: float) -> int:
        steps = round(1 / rate)
        if not math.isclose(steps * rate, 1.0, rel_tol=_EPOCH_ERROR):
            raise ValueError(
                f"rate must be one over a whole number of steps for sampling={self.name!r}, got "
                f"{rate!r}; give batch_size instead"
            )
        return steps

    @property
    def _steps(self) -> int:
        if self.steps is None:
            raise ValueError("steps must be set before batches are drawn")
        return self.steps


@dataclass(frozen=True)
class BallsInBinsSampling(_Epochs):
    """Every example draws one step of an epoch, once, and takes part in it in all epochs.

    Args:
        steps: the number of steps in an epoch; left out, a plan sets it.

    **Guarantee**: add/remove adjacency; `correlated_loss` bounds the mixture over bins
    (`taut.matrix.BallsInBins`), if the draw stays secret and is the same throughout the run.

    Example:
        >>> from taut.training import BallsInBinsSampling
        >>> batches = BallsInBinsSampling(steps=4).batches(1_000)
        >>> first, *_ = epoch = [next(batches) for _ in range(4)]
        >>> sum(map(len, epoch)), bool((next(batches) == first).all())
        (1000, True)
    """

    name = "balls_in_bins"
    adjacency = Adjacency.ADD_REMOVE
    sharp_at_delta = True

    @property
    def most_bands(self) -> int:
        return min(_USUAL_GROUPS, self._steps)

    def correlated_loss(
        self, encoder: Encoder, sigma: float, delta: float = USUAL_DELTA
    ) -> PrivacyLoss:
        bins = BallsInBins(self._steps)
        return amplified_loss(encoder, bins, sigma, delta=delta, adjacency=self.adjacency)

    def keyed_batches(self, bits: Bits, step: int, examples: int) -> Iterator[Indices]:
        order, ends = in_order_of_steps(draw_steps(examples, self._steps, bits(0)), self._steps)
        for number in count(step):
            place = number % self._steps
            yield order[ends[place] : ends[place + 1]].astype(np.int64)


@dataclass(frozen=True)
class CyclicAllocationSampling(_Epochs):
    """Every example draws one of the steps of its group, anew in every epoch.

    Example i is in group i modulo `groups`, which is public, and so is step s of an epoch.

    Args:
        steps: the number of steps in an epoch, a multiple of `groups`; left out, a plan sets it.
        groups: the number of groups, at least as many as the noise has bands; left out, a plan
            sets it.

    **Guarantee**: zero-out adjacency; `correlated_loss` is that of random allocation of every
    epoch's steps (`taut.matrix.CyclicAllocation`), if draws stay secret and an epoch that was begun
    goes on with its own.

    Example:
        >>> from taut.training import CyclicAllocationSampling
        >>> batches = CyclicAllocationSampling(steps=8, groups=4).batches(1_000)
        >>> epoch = [next(batches) for _ in range(8)]
        >>> sum(map(len, epoch)), sorted({int(place) % 4 for place in epoch[5]})
        (1000, [1])
    """

    name = "cyclic_allocation"
    adjacency = Adjacency.ZERO_OUT

    groups: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_positive(self, "groups")
        if self.steps is not None and self.groups is not None and self.steps % self.groups:
            raise ValueError(
                f"groups must divide the steps of an epoch, got groups={self.groups} and "
                f"steps={self.steps}"
            )

    @property
    def is_fitted(self) -> bool:
        return self.steps is not None and self.groups is not None

    @property
    def most_bands(self) -> int:
        return self._sampler.groups

    def fitted(self, examples: int, rate: float) -> Self:
        steps, groups = self._steps_of(rate), self.groups
        if groups is None:
            groups = max(g for g in range(1, min(_USUAL_GROUPS, steps) + 1) if steps % g == 0)
        return replace(self, steps=steps, groups=groups)

    def correlated_loss(
        self, encoder: Encoder, sigma: float, delta: float = USUAL_DELTA
    ) -> PrivacyLoss:
        self._refuse_reach(encoder, self._sampler.groups)
        return amplified_loss(encoder, self._sampler, sigma, adjacency=self.adjacency)

    def keyed_batches(self, bits: Bits, step: int, examples: int) -> Iterator[Indices]:
        groups, slots = self._sampler.groups, self._sampler.slots
        first = step // self._steps
        for epoch in count(first):
            slot = draw_steps(examples, slots, bits(epoch)).astype(np.int64)
            steps = slot * groups + np.arange(examples) % groups
            order, ends = in_order_of_steps(steps, self._steps)
            for place in range(step % self._steps if epoch == first else 0, self._steps):
                yield order[ends[place] : ends[place + 1]].astype(np.int64)

    @property
    def _sampler(self) -> CyclicAllocation:
        if self.groups is None:
            raise ValueError("groups must be set before batches are drawn")
        return CyclicAllocation(self.groups, self._steps // self.groups)


def _set_positive(sampling: Sampling, name: str) -> None:
    """Check a field that may be left open."""
    value = getattr(sampling, name)
    if value is not None:
        object.__setattr__(sampling, name, validate.positive_integer(**{name: value}))
