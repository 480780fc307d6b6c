"""Releases of which only Renyi divergences are known: theorems without a dominating pair."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._adjacency import Half
from taut.accounting._pairs.pair import CUMULANT_ERROR, Pair, renyi_cumulants
from taut.accounting._pairs.profile import lower_hull
from taut.accounting._releases.release import Release, refuse_batches
from taut.errors import UnsoundConfiguration

__all__ = ["OneSided", "Renyi", "RenyiOnly", "divergences", "need_pairs", "refuse_renyi_only"]


@dataclass(frozen=True)
class RenyiOnly(Release):
    """A release without a dominating pair: a theorem bounds its Renyi divergences alone."""

    has_pair: ClassVar[bool] = False
    """Whether there is a pair after all, exact for one release but poor in sums."""

    @abstractmethod
    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return upper bounds on the Renyi divergences in direction ``half``.

        Args:
            half: the direction.
            orders: real orders above one, shape (m,).

        Returns:
            Divergences rounded up, infinite where nothing is proven, shape (m,).
        """

    def known_divergences(self, half: Half, orders: Vector) -> Vector:
        """Return what is known of the release."""
        return self.renyi(half, orders)

    @property
    def plain(self) -> Release | None:
        """A release with a pair that reveals more, so that its pair dominates this one."""
        return None

    def pair(self, half: Half) -> Pair:
        """Refuse: no pair is known to dominate the hockey stick."""
        raise UnsoundConfiguration(
            f"{self} is known by its Renyi divergences only: no pair of distributions is proven to "
            "dominate it. Ask for epsilon, delta or rdp, which need none"
        )


def refuse_renyi_only(release: Release, why: str) -> None:
    """Refuse a release without a pair where only pairs can be reasoned about."""
    if isinstance(release, RenyiOnly):
        raise UnsoundConfiguration(why)


def need_pairs(why: str, **releases: Release) -> None:
    """Refuse to sample releases without a pair, and those that draw batches themselves."""
    for name, release in releases.items():
        refuse_renyi_only(release, f"{name} is known by Renyi divergences only, and {why}")
        refuse_batches(release)


@dataclass(frozen=True)
class OneSided:
    """A release without a pair, in one direction: what a sum needs of it."""

    release: RenyiOnly
    half: Half

    def cumulants(self, tilts: Vector) -> Vector:
        """Return upper bounds on log E exp(tilt L) at ``tilts`` > 0."""
        with np.errstate(over="ignore"):
            return tilts * self.release.renyi(self.half, 1 + tilts) * (1 + 8 * RELATIVE_ERROR)

    def corners(self) -> Vector:
        """Return the tilts of the orders that were given."""
        return np.array(self.release.orders) - 1 if isinstance(self.release, Renyi) else np.empty(0)

    def dominating_pair(self) -> Pair | None:
        """Return the pair of the release itself, or of one that reveals more."""
        if self.release.has_pair:
            return self.release.pair(self.half)
        plain = self.release.plain
        return None if plain is None else plain.pair(self.half)


@dataclass(frozen=True)
class Renyi(RenyiOnly):
    """Any mechanism with known Renyi divergences at some orders.

    ``direction`` is the half that the divergences are about, or None if they hold for both.
    """

    kind = "rdp"
    orders: tuple[float, ...]
    divergences: tuple[float, ...]
    direction: str | None = None

    def check_fields(self) -> None:
        """Check the parameters."""
        if len(self.orders) != len(self.divergences) or not self.orders:
            raise ValueError("a Renyi curve needs as many divergences as orders, at least one")
        for order in self.orders:
            if not validate.finite(order=order) > 1:
                raise ValueError(f"orders must be greater than 1, got order={order!r}")
        if not (np.diff(self.orders) > 0).all():
            raise ValueError("orders must increase")
        for value in self.divergences:
            validate.non_negative(divergence=value)
        if self.direction not in (None, "add", "remove"):
            raise ValueError(f"direction must be 'add', 'remove' or None, got {self.direction!r}")

    @cached_property
    def _cumulants(self) -> tuple[Vector, Vector]:
        """Orders and cumulants at the corners of the convex hull; it starts at zero, order one."""
        orders = np.array([1.0, *self.orders])
        return lower_hull(orders, (orders - 1) * np.array([0.0, *self.divergences]))

    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return chords of the cumulants, which are convex in the order."""
        if self.direction not in (None, half):
            return np.full(orders.shape, math.inf)
        at, cumulants = self._cumulants
        return np.interp(orders, at, cumulants, right=math.inf) / (orders - 1)

    def __str__(self) -> str:
        """Return the number of orders only."""
        return f"rdp({len(self.orders)} orders up to {self.orders[-1]:g})"


def divergences(release: Release, half: Half, orders: Vector) -> Vector:
    """Return upper bounds on the Renyi divergences of any release, with a pair or without."""
    known = release.known_divergences(half, orders)
    if known is not None:
        return known
    cumulants = renyi_cumulants(release.pair(half), orders - 1)
    return np.maximum(cumulants / (orders - 1), 0.0) * (1 + CUMULANT_ERROR)
