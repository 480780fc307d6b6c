"""Releases of which only Renyi divergences are known, and sums in which they take part."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taut import _validate
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._pair import Pair, Vector
from taut.accounting._primitives import Primitive
from taut.accounting.renyi._sums import PROVEN_ORDER, at_real_orders, poisson_cumulants
from taut.errors import UnsoundConfiguration

__all__ = ["RenyiOnly"]


@dataclass(frozen=True)
class RenyiOnly(Primitive):
    """A release without a dominating pair: a theorem bounds its Renyi divergences alone."""

    @abstractmethod
    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return upper bounds on the Renyi divergences in direction ``half``.

        Args:
            half: the direction.
            orders: real orders above one, shape (m,).

        Returns:
            Divergences, infinite where nothing is proven, shape (m,).
        """

    def pair(self, half: Half) -> Pair:
        """Refuse: no pair is known to dominate the hockey stick."""
        raise UnsoundConfiguration(
            f"{self} is known by its Renyi divergences only, no pair dominates it; ask for "
            "epsilon, delta or rdp"
        )
