"""A pair that dominates a release, beside one that the release reaches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut.accounting._pairs.pair import Atoms, Cells, DerivedPair, Pair, Quadrature

__all__ = ["BracketedPair"]


@dataclass(frozen=True)
class BracketedPair(DerivedPair):
    """All that ``base`` is, for upper bounds; lower bounds are those of ``inside``.

    A Gaussian ``base`` does not merge with others: in the merged pair ``inside`` would be lost.
    """

    inside: Pair
    tight = False

    @property
    def attained(self) -> Pair:
        """The pair for lower bounds."""
        return self.inside

    @property
    def mass_inf(self) -> float:  # type: ignore[override]
        """Inherited from the base."""
        return self.base.mass_inf

    @property
    def mass_minus_inf(self) -> float:  # type: ignore[override]
        """Inherited from the base."""
        return self.base.mass_minus_inf

    @property
    def closed_form(self) -> bool:  # type: ignore[override]
        """Inherited from the base."""
        return self.base.closed_form

    @property
    def profile_error(self) -> float:  # type: ignore[override]
        """Inherited from the base."""
        return self.base.profile_error

    @property
    def loss_error(self) -> float:  # type: ignore[override]
        """Inherited from the base."""
        return self.base.loss_error

    @property
    def max_loss(self) -> float:
        """Inherited from the base."""
        return self.base.max_loss

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
