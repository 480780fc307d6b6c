"""Sampled releases of which only Renyi divergences are known."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Vector
from taut._base.validate import Probability
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._releases.release import (
    FixedSizeSample,
    PoissonSample,
    Release,
    Several,
    refuse_batches,
)
from taut.accounting._releases.renyi_only import RenyiOnly, divergences
from taut.accounting.renyi._baselines import fixed_size
from taut.accounting.renyi._curves import Curve
from taut.accounting.renyi._poisson import poisson
from taut.accounting.renyi._sums import LARGEST_TABULATED
from taut.errors import UnsoundConfiguration

__all__ = ["FixedSizeRenyi", "JointRenyi", "PoissonRenyi"]

_HALVES = (Half.ADD, Half.REMOVE)


@dataclass(frozen=True)
class JointRenyi(Several, RenyiOnly):
    """Several releases that look at one sample, at least one of them without a pair."""

    kind = "joint_rdp"
    releases: tuple[Release, ...]
    counts: tuple[int, ...]

    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return the sum of the divergences (Mironov 2017, Proposition 1)."""
        total = np.zeros(orders.shape)
        for release, count in zip(self.releases, self.counts, strict=True):
            total = total + count * divergences(release, half, orders)
        return total


class _Sampled(RenyiOnly):
    """What both samplers share: their base, and a table that ends at some order."""

    base: RenyiOnly

    def check_fields(self) -> None:
        """Check the parameters."""
        super().check_fields()
        if not isinstance(self.base, RenyiOnly):
            raise ValueError(f"base must be known by Renyi divergences, got base={self.base!r}")
        refuse_batches(self.base)

    @property
    @abstractmethod
    def _curve(self) -> Curve:
        """The sampled divergences, at orders up to the end of the table."""

    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return the bound, which is the same for all directions, and infinite beyond the table."""
        known = orders <= LARGEST_TABULATED
        value = np.full(orders.shape, math.inf)
        if known.any():
            value[known] = self._curve(orders[known])
        return value


@dataclass(frozen=True)
class PoissonRenyi(_Sampled, PoissonSample):
    """``base``, known by its Renyi divergences, on a Poisson sample of the records.

    The binomial sum of Zhu and Wang (2019) bounds every mechanism whose divergences are known in
    both directions (docs/theory/renyi.md), at integer orders; chords serve the others.
    """

    kind = "poisson_rdp"
    no_exchange = (
        "poisson(rate) of Renyi divergences amplifies add/remove and zero-out losses; for "
        "replace-one use fixed_size(batch_size, population)"
    )
    base: RenyiOnly
    rate: Probability

    @property
    def _curve(self) -> Curve:
        return poisson(self._both, self.rate)

    def sampled(self, rate: float) -> PoissonRenyi:
        """Sampling twice multiplies the rates."""
        return PoissonRenyi(self.base, rate * self.rate)

    def _both(self, orders: Vector) -> Vector:
        """Return the larger of the divergences of the base in its two directions."""
        found: Vector = np.max([self.base.renyi(half, orders) for half in _HALVES], axis=0)
        return found

    def check(self, adjacency: Adjacency) -> None:
        """Only add/remove and zero-out, with both directions of the base known."""
        self.base.check(adjacency)
        super().check(adjacency)
        if adjacency in (Adjacency.ADD, Adjacency.REMOVE):
            raise UnsoundConfiguration(
                "poisson(rate) needs the Renyi divergences of both directions, also to bound one; "
                "make the loss with adjacency='add_remove' from divergences that cover both"
            )


@dataclass(frozen=True)
class FixedSizeRenyi(_Sampled, FixedSizeSample):
    """``base``, known by its Renyi divergences, on a uniformly random subset of the records.

    Both are about replace-one (Wang, Balle and Kasiviswanathan 2019, Theorem 9).
    """

    kind = "fixed_size_rdp"
    base: RenyiOnly
    batch_size: int
    population: int

    @property
    def _curve(self) -> Curve:
        return fixed_size(self._exchanged, self.batch_size / self.population)

    def _exchanged(self, orders: Vector) -> Vector:
        return self.base.renyi(Half.REPLACE, orders)

    def check(self, adjacency: Adjacency) -> None:
        """The theorem is about replace-one, which covers zero-out."""
        self.base.check(Adjacency.REPLACE)
        if adjacency not in (Adjacency.REPLACE, Adjacency.ZERO_OUT):
            raise UnsoundConfiguration(
                "fixed_size of Renyi divergences is for replace-one; use "
                "fixed_size(batch_size, population, adjacency='replace')"
            )
