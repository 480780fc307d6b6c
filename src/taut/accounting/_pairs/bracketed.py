"""A pair that dominates a release, beside one that the release reaches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut.accounting._pairs.pair import Atoms, Cells, DerivedPair, Pair, Quadrature, taken_from

__all__ = ["BracketedPair"]


@dataclass(frozen=True)
class BracketedPair(DerivedPair):
    """All that ``base`` is, for upper bounds; lower bounds are those of ``inside``.

    A Gaussian ``base`` does not merge with others: in the merged pair ``inside`` would be lost.
    """

    inside: Pair
    tight = False
    attained = taken_from("inside")
    mass_inf = taken_from("base.mass_inf")
    mass_minus_inf = taken_from("base.mass_minus_inf")
    closed_form = taken_from("base.closed_form")
    profile_error = taken_from("base.profile_error")
    loss_error = taken_from("base.loss_error")
    max_loss = taken_from("base.max_loss")

    def profile(self, epsilon: Vector) -> Vector:
        """Return that of the base."""
        return self.base.profile(epsilon)

    def grid(self, tail: float, size: int) -> Vector:
        """Return that of the base."""
        return self.base.grid(tail, size)

    def atoms(self, tail: float) -> Atoms:
        """Return those of the base."""
        return self.base.atoms(tail)

    def cells(self, edges: Vector) -> Cells:
        """Return those of the base."""
        return self.base.cells(edges)

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return that of the base."""
        return self.base.quadrature(tilt, frequency)

    def log_mgf(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return that of the base."""
        return self.base.log_mgf(z)
