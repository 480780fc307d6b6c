"""Sampled releases: a primitive around another, with the sampler's theorem checked."""

from __future__ import annotations

from dataclasses import dataclass

from taut import _validate
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._finite import binary_pair
from taut.accounting._pair import Pair
from taut.accounting._primitives import Primitive
from taut.accounting._sampling import ReplaceSampledPair, SampledPair
from taut.errors import UnsoundConfiguration

__all__ = ["FixedSize", "Poisson"]


@dataclass(frozen=True)
class Poisson(Primitive):
    """``base`` on a sample that contains each record independently with probability ``rate``."""

    kind = "poisson"
    base: Primitive
    rate: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        _validate.probability(rate=self.rate)
        if not isinstance(self.base, Primitive):
            raise ValueError(f"base must be a release, got base={self.base!r}")
        if isinstance(self.base, FixedSize):
            raise UnsoundConfiguration(
                "poisson of fixed_size has no theorem: the population of the batch is random then. "
                "Use one sampler, poisson(rate) or fixed_size(batch_size, population)"
            )

    def pair(self, half: Half) -> Pair:
        """Return the amplified half."""
        if self.rate == 0:
            return binary_pair(0.0)
        base = self.base.pair(half)
        return base if self.rate == 1 else SampledPair(base, self.rate, half)

    def check(self, adjacency: Adjacency) -> None:
        """Poisson sampling amplifies add/remove and zero-out."""
        self.base.check(adjacency)
        if adjacency is Adjacency.REPLACE:
            raise UnsoundConfiguration(
                "poisson(rate) amplifies add/remove and zero-out losses; this one is for "
                "adjacency='replace'. Declare the release with adjacency='add_remove', or sample "
                "batches of fixed size and use fixed_size(batch_size, population)"
            )

    def __str__(self) -> str:
        """Return the call chain."""
        return f"{self.base}.poisson(rate={self.rate:g})"


@dataclass(frozen=True)
class FixedSize(Primitive):
    """``base`` on a uniformly random subset of ``batch_size`` out of ``population`` records.

    ``base`` is a replace-one loss: exchanging a sampled record changes a clipped sum by up to
    twice the clipping norm. Under add/remove the larger dataset has ``population`` records.
    """

    kind = "fixed_size"
    base: Primitive
    batch_size: int
    population: int

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not isinstance(self.base, Primitive):
            raise ValueError(f"base must be a release, got base={self.base!r}")
        if isinstance(self.base, FixedSize | Poisson):
            raise UnsoundConfiguration(
                "fixed_size of a sampled release: a uniform subset of a uniform subset is one "
                "uniform subset; use one sampler, with the inner batch and the outer population"
            )
        _validate.positive_integer(batch_size=self.batch_size)
        _validate.positive_integer(population=self.population)
        if self.batch_size > self.population:
            raise ValueError(
                f"batch_size must not exceed population, got batch_size={self.batch_size}, "
                f"population={self.population}"
            )

    @property
    def rate(self) -> float:
        """The fraction of records in the sample."""
        return self.batch_size / self.population

    def pair(self, half: Half) -> Pair:
        """Return the amplified half."""
        base = self.base.pair(Half.REPLACE)
        if self.rate == 1:
            return base
        if half is Half.REPLACE:
            return ReplaceSampledPair(base, self.rate)
        return SampledPair(base, self.rate, half)

    def check(self, adjacency: Adjacency) -> None:
        """The base must have a replace-one pair; the result serves every relation but zero-out."""
        self.base.check(Adjacency.REPLACE)
        if adjacency is Adjacency.ZERO_OUT:
            raise UnsoundConfiguration(
                "fixed_size has no theorem of its own for adjacency='zero_out'; "
                "adjacency='replace' is valid for it"
            )
        if self.batch_size == self.population and adjacency is not Adjacency.REPLACE:
            raise ValueError(
                f"batch_size must be smaller than population under add/remove, got "
                f"batch_size={self.batch_size}, population={self.population}"
            )

    def __str__(self) -> str:
        """Return the call chain."""
        return f"{self.base}.fixed_size({self.batch_size}, {self.population})"
