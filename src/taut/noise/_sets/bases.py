"""Sets whose bounds may hold along the axes of a basis instead of the coordinates."""

from __future__ import annotations

import math

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency
from taut.noise._exact_sums import COEFFICIENT_ERROR, coefficients, combined
from taut.noise._sets.sets import SensitivitySet, Source

__all__ = ["SetInBasis", "gauges_of", "in_basis", "out_of_basis"]

# Relative to the longest vector: what is narrower is lost in a change of basis.
_NARROWEST_IN_BASIS = 1e-12
_SHORTER = 1 - 2.0**-45  # coefficients of clipped rows: rounding then seldom takes rows out


class SetInBasis(SensitivitySet):
    """What sets with a basis share: how far rounding may take rows, and bounds that are zero."""

    basis: Matrix | None
    allow_zero: bool

    def _start(self, adjacency: Adjacency | str, source: Source | str, *, allow_zero: bool) -> None:
        self._begin(adjacency, source)
        self._set("allow_zero", bool(allow_zero))

    @property
    def rounding(self) -> float:
        """Nothing, or in a basis what products with the axes are off."""
        if self.basis is None:
            return 0.0
        return 4 * math.sqrt(self.dimension) * self.dimension * COEFFICIENT_ERROR * self.max_l2

    @property
    def _negligible(self) -> float:
        """What a change of basis may leave where a bound is zero, which is not released."""
        return 0.0 if self.basis is None else _NARROWEST_IN_BASIS * self.max_l2

    def _refuse_thin(self, bounds: Vector, name: str) -> None:
        """Raise for bounds that are lost in the rounding of a change of basis."""
        thin = (bounds > 0) & (bounds < self._negligible)
        if thin.any():
            bad = int(np.argmax(thin))
            raise ValueError(
                f"{name} must be zero or at least {_NARROWEST_IN_BASIS:g} of the longest vector "
                f"in a basis, got {name}[{bad}]={float(bounds[bad])!r}; widen it, or drop the "
                "direction with zero and allow_zero=True"
            )


def gauges_of(lengths: Matrix, bounds: Vector, rounding: float) -> Matrix:
    """Return lengths over bounds, of shape (rows, bounds).

    Where a bound is zero, nothing more than `rounding` is inside.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = lengths / np.where(bounds > 0, bounds, rounding)
    return np.where(lengths > 0, ratios, 0.0)


def out_of_basis(inside: Matrix, basis: Matrix) -> Matrix:
    """Return rows from coefficients, shorter by so little that rounding seldom takes them out."""
    return combined(inside * _SHORTER, basis)


def in_basis(rows: Matrix, basis: Matrix | None) -> Matrix:
    """Return the coefficients of the rows, every row as if it were alone."""
    return rows if basis is None else coefficients(rows, basis)
