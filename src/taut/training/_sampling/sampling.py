"""Sampling: which examples one step looks at, and what that choice is worth."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut._base.registry import Strategy
from taut.accounting import Adjacency, GaussianRun, PrivacyLoss, Sampler
from taut.errors import UnsoundConfiguration
from taut.matrix import Encoder
from taut.noise import RandomSource, default_generator
from taut.training._sampling.poisson_gaps import geometric_gaps

if TYPE_CHECKING:
    from taut.training._clipping.clipping import Clipping
    from taut.training._noise.step_noise import StepNoise

__all__ = [
    "USUAL_DELTA",
    "FixedSizeSampling",
    "Indices",
    "PoissonSampling",
    "Sampling",
    "checked_examples",
    "positive_rate",
]

Indices: TypeAlias = NDArray[np.int64]

USUAL_DELTA = 1e-6  # at which losses are sharp unless a plan says more; any is sound
_MOST_EXAMPLES = 1 << 46  # sums of a block of gaps stay within 64 bits
_BLOCK = 1 << 16
_DENSE = 1 / 8  # from here on a word per example costs less than a logarithm per member


def positive_rate(**argument: object) -> float:
    """Return the argument as a float in (0, 1]."""
    rate = validate.probability(**argument)
    if rate == 0:
        ((name, _),) = argument.items()
        raise ValueError(f"{name} must be greater than 0, got {name}=0: no step would see data")
    return rate


class Sampling(Strategy):
    """How a step chooses its examples: a strategy that plan, loader and accountant share.

    A sampling without its parameter stands for a kind; a plan fits it to a batch size.
    """

    adjacency: ClassVar[Adjacency]
    """The relation that the losses are about."""

    parameters: ClassVar[Mapping[str, Callable[..., float]]] = {}
    """What a plan sets where it is left out, each with its check, which returns plain numbers."""

    def __post_init__(self) -> None:
        for name, check in self.parameters.items():
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, check(**{name: value}))

    @property
    def is_fitted(self) -> bool:
        """Whether all parameters are set."""
        return all(getattr(self, name) is not None for name in self.parameters)

    @abstractmethod
    def fitted(self, examples: int, rate: float) -> Self:
        """Return the sampling with its parameter set, so that a step sees a share `rate` of all.

        Raises:
            ValueError: if there is no such sampling.
        """

    def rate_of(self, batch_size: float, examples: int) -> float:
        """Return the share of all examples that batches of this expected size are."""
        return batch_size / examples

    @property
    def epoch_steps(self) -> int:
        """The number of steps that one draw decides about; one if every step draws afresh."""
        return 1

    @abstractmethod
    def expected_batch_size(self, examples: int) -> float:
        """Return the mean number of examples in a batch."""

    def participation(self, examples: int) -> float:
        """Return the probability that an example is in a batch."""
        return self.expected_batch_size(examples) / examples

    @abstractmethod
    def check_examples(self, planned: int, examples: int) -> None:
        """Refuse a dataset of `examples` examples where the loss was computed for `planned`."""

    @abstractmethod
    def step_loss(self, noise_multiplier: float, examples: int) -> PrivacyLoss:
        """Return the loss of a noisy sum over one batch.

        `noise_multiplier` is the standard deviation of the noise over the largest norm of one
        example's contribution, both measured after whitening.
        """

    samples_apart: ClassVar[bool] = False
    """Whether parts of a dataset are sampled independently of each other."""
    may_change: ClassVar[bool] = False
    """Whether noise and batch size may change from step to step: losses of steps then add."""
    numbers_steps: ClassVar[bool] = False
    """Whether the number of a step says who is in its batch, so that none may be taken twice."""

    @abstractmethod
    def draw(self, examples: int, generator: RandomSource | None = None) -> Indices:
        """Return the examples of one batch: distinct places from 0 to `examples` - 1, sorted."""

    def loss(self, noise_multiplier: float, examples: int, steps: int) -> PrivacyLoss:
        """Return the loss of `steps` steps; here every step draws afresh, so losses add."""
        return steps * self.step_loss(noise_multiplier, examples)

    sharp_at_delta: ClassVar[bool] = False
    """Whether the loss of correlated noise is made for the delta of a plan, which must be given."""

    def correlated_loss(
        self, encoder: Encoder, sigma: float, delta: float = USUAL_DELTA
    ) -> PrivacyLoss:
        """Return the loss of a whole run whose noise an encoder correlates.

        Args:
            encoder: encoder of the noise.
            sigma: deviation of the independent noise on encoded gradients, over the clipping norm.
            delta: delta at which the bound is to be sharp, where it is not exact.

        Raises:
            UnsoundConfiguration: if there is no theorem for such batches.
        """
        raise UnsoundConfiguration(
            f"noise that is correlated over steps is accounted for a fixed order, not for "
            f"sampling={self!r}; use sampling='fixed_order', or one that keeps secret steps apart: "
            "'cyclic_allocation', 'cyclic_poisson' or 'balls_in_bins'; or independent noise"
        )

    # --- with a clipping; most samplings take any ----------------------------------------------

    def for_clipping(self, clipping: Clipping) -> Self:
        """Return the sampling with what its loss has to know about the clipping.

        Raises:
            UnsoundConfiguration: if the loss does not hold for such gradients.
        """
        return self

    def check_clipping(self, clipping: Clipping) -> None:
        """Refuse a clipping that the loss was not computed for."""

    def tuned(self, clipping: Clipping, steps: int, epsilon: float, delta: float) -> Self:
        """Return the sampling with what makes noise for a promise least; the loss is computed."""
        return self

    def noise(
        self, clipping: Clipping, names: Sequence[str], sizes: Sequence[int], multiplier: float
    ) -> StepNoise:
        """Return the noise of one step at a noise multiplier."""
        return clipping.noise(names, sizes, multiplier)

    def comparison(self, noise_multiplier: float, examples: int, steps: int, delta: float) -> str:
        """Return what another plan of the same cost would promise, if a reader should know."""
        return ""

    def batches(self, examples: int, generator: RandomSource | None = None) -> Iterator[Indices]:
        """Yield batches without end; here every one is drawn afresh."""
        while True:
            yield self.draw(examples, generator)

    def shares(
        self, examples: int, rank: int, world_size: int, generator: RandomSource | None = None
    ) -> Iterator[Indices]:
        """Yield what process `rank` of `world_size` looks at of every batch, without end.

        Shares of one batch are disjoint and together the batch. Where `samples_apart`, every
        process draws for its own examples, `rank` and every `world_size`-th after it, with a
        generator of its own: independent for every example, as if one process had drawn for all.
        Otherwise all processes draw the same batches, from generators that give all of them the
        same bits, and deal them out.
        """
        if not self.samples_apart:
            for batch in self.batches(examples, generator):
                yield batch[rank::world_size]
            return
        own = len(range(rank, checked_examples(examples), world_size))
        for batch in self.batches(own, generator):
            yield rank + world_size * batch

    def shares_from(
        self,
        step: int,
        examples: int,
        rank: int,
        world_size: int,
        generator: RandomSource | None = None,
    ) -> Iterator[Indices]:
        """Yield `shares` from a step on; where steps are drawn, one is like the other."""
        return self.shares(examples, rank, world_size, generator)


@dataclass(frozen=True)
class PoissonSampling(Sampling):
    """Every example takes part in every step independently, with probability `rate`.

    Args:
        rate: the probability, in (0, 1]; left out, a plan sets it.

    **Guarantee**: add/remove adjacency; `step_loss` is that of the sampled Gaussian (Zhu, Dong and
    Wang 2022, Theorem 11, corrected), if batches stay secret. `draw` takes the rate as the rational
    number that the float is, and draws exactly that distribution from the generator, at a cost
    that grows with the batch, not with the dataset. The number of examples is private: where that
    matters, fix `rate` in advance instead of computing it from that number.

    Example:
        >>> from taut.training import PoissonSampling
        >>> sampling = PoissonSampling(rate=0.25)
        >>> batch = sampling.draw(1_000)
        >>> bool((batch[1:] > batch[:-1]).all()), sampling.expected_batch_size(1_000)
        (True, 250.0)
    """

    name = Sampler.POISSON.value
    adjacency = Sampler.POISSON.usual_adjacency
    samples_apart = True
    may_change = True
    parameters = MappingProxyType({"rate": positive_rate})

    rate: float | None = None

    def fitted(self, examples: int, rate: float) -> Self:
        return replace(self, rate=rate)

    def expected_batch_size(self, examples: int) -> float:
        return self._rate * examples

    def check_examples(self, planned: int, examples: int) -> None:
        """Accept any dataset: the loss depends on the rate alone."""

    def step_loss(self, noise_multiplier: float, examples: int) -> PrivacyLoss:
        return GaussianRun(Sampler.POISSON, self._rate, 1, 1).loss(noise_multiplier)

    def draw(self, examples: int, generator: RandomSource | None = None) -> Indices:
        n = checked_examples(examples)
        source = default_generator() if generator is None else generator
        if self._rate == 1.0:
            return np.arange(n, dtype=np.int64)
        draw = _thresholded if self._rate > _DENSE else _spaced
        return draw(n, self._rate, source)

    @property
    def _rate(self) -> float:
        if self.rate is None:
            raise ValueError("rate must be set before batches are drawn: PoissonSampling(rate=...)")
        return self.rate


@dataclass(frozen=True)
class FixedSizeSampling(Sampling):
    """Every step looks at a subset of fixed size, uniform among all of that size.

    Args:
        batch_size: the size; left out, a plan sets it.

    **Guarantee**: replace-one adjacency, the number of examples is public. `step_loss` is for a
    sum in which replacing an example moves up to twice the clipping norm, amplified by advanced
    joint convexity (Balle, Barthe and Gaboardi 2018, Theorem 9), if batches stay secret. `draw` is
    exactly uniform.

    Example:
        >>> from taut.training import FixedSizeSampling
        >>> len(FixedSizeSampling(batch_size=64).draw(1_000))
        64
    """

    name = Sampler.FIXED_SIZE.value
    adjacency = Sampler.FIXED_SIZE.usual_adjacency
    may_change = True
    parameters = MappingProxyType({"batch_size": validate.positive_integer})

    batch_size: int | None = None

    def fitted(self, examples: int, rate: float) -> Self:
        size = round(rate * examples)
        if not math.isclose(size, rate * examples, rel_tol=1e-9):
            raise ValueError(
                "batch_size must be an integer for batches of fixed size, got rate * examples = "
                f"{rate * examples!r}; give batch_size instead of rate"
            )
        return replace(self, batch_size=size)

    def expected_batch_size(self, examples: int) -> float:
        return float(self._size(examples))

    def check_examples(self, planned: int, examples: int) -> None:
        if examples != planned:
            raise UnsoundConfiguration(
                f"the loss was computed for examples={planned}, the dataset has {examples}; "
                "batches of fixed size are accounted for one size of dataset: plan with that"
            )

    def step_loss(self, noise_multiplier: float, examples: int) -> PrivacyLoss:
        sizes = self._size(examples), examples
        rate = self._size(examples) / examples
        return GaussianRun(Sampler.FIXED_SIZE, rate, 1, 1, sizes).loss(noise_multiplier)

    def draw(self, examples: int, generator: RandomSource | None = None) -> Indices:
        n = checked_examples(examples)
        size = self._size(n)
        source = default_generator() if generator is None else generator
        if size <= n // 2:
            return _subset(n, size, source)
        inside = np.ones(n, dtype=np.bool_)
        inside[_subset(n, n - size, source)] = False
        return np.flatnonzero(inside)

    def _size(self, examples: int) -> int:
        if self.batch_size is None:
            raise ValueError(
                "batch_size must be set before batches are drawn: FixedSizeSampling(batch_size=...)"
            )
        if self.batch_size > examples:
            raise ValueError(
                f"batch_size must be at most examples={examples}, got batch_size={self.batch_size}"
            )
        return self.batch_size


def _spaced(examples: int, rate: float, source: RandomSource) -> Indices:
    """Return the members of a Poisson sample, from the gaps between them."""
    mean = rate * examples
    wanted = min(int(mean + 4 * math.sqrt(mean)) + 8, _BLOCK)
    blocks, last = [], -1
    while last < examples:
        places = last + np.cumsum(geometric_gaps(rate, examples, wanted, source) + 1)
        blocks.append(places)
        last = int(places[-1])
    places = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
    return places[: np.searchsorted(places, examples)]


def _thresholded(examples: int, rate: float, source: RandomSource) -> Indices:
    """Return the members of a Poisson sample, from one word for every example."""
    below = np.uint64(int(rate * 2.0**64))  # exact: such a rate is a multiple of 2^-64
    blocks = [
        start + np.flatnonzero(source.integers_u64(min(_BLOCK, examples - start)) < below)
        for start in range(0, examples, _BLOCK)
    ]
    return np.concatenate(blocks) if blocks else np.empty(0, dtype=np.int64)


def _subset(examples: int, size: int, source: RandomSource) -> Indices:
    """Return the first `size` distinct values of uniform draws: by symmetry a uniform subset."""
    drawn = np.empty(0, dtype=np.uint64)
    firsts = np.empty(0, dtype=np.int64)
    while firsts.size < size:
        missing = size - firsts.size
        more = source.uniform_below(examples, missing + missing // 2 + 8)
        drawn = np.concatenate([drawn, more])
        firsts = np.unique(drawn, return_index=True)[1]
    # Which values stay must not depend on the values: those drawn first.
    kept = np.partition(firsts, size - 1)[:size] if size else firsts[:0]
    return np.sort(drawn[kept].astype(np.int64))


def checked_examples(examples: int) -> int:
    """Return the number of examples, if draws from so many are exact."""
    n = validate.integer(examples=examples)
    if n > _MOST_EXAMPLES:
        raise ValueError(f"examples must be at most 2^46, got examples={examples!r}")
    return n
