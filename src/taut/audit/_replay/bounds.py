"""Declared sensitivities of programs that have no sensitivity set: a norm, and a number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency
from taut.noise import SensitivitySet
from taut.noise.recording import Bound, Release

__all__ = ["NormBound", "as_bound", "excess"]

_GAUGE_ERROR = 1e-9  # relative, of a norm in doubles: far above its rounding, far below a mistake


@dataclass(frozen=True)
class NormBound:
    """All vectors of at most a length in a norm; the length may be zero.

    Attributes:
        radius: the length.
        norm: exponent of the norm, from 1 to infinity.
    """

    radius: float
    norm: float = 2.0

    def gauges(self, rows: Matrix) -> Vector:
        """Return the length of every row over the radius."""
        lengths: Vector = np.linalg.norm(rows, ord=self.norm, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(lengths > 0, lengths / self.radius, 0.0)

    def __str__(self) -> str:
        name = "inf" if self.norm == math.inf else f"{self.norm:g}"
        return f"{self.radius:g} in l{name}"


def as_bound(sensitivity: object, norm: float) -> Bound:
    """Return a set as it is, and a number as a bound in a norm."""
    if isinstance(sensitivity, SensitivitySet | NormBound):
        return sensitivity
    return NormBound(validate.non_negative(sensitivity=sensitivity), norm)


def excess(release: Release, other: Release, adjacency: Adjacency) -> float:
    """Return how far two values lie apart, in units of what the release declares.

    Args:
        release: release of the first run.
        other: the same release of the second run.
        adjacency: relation of the data; a set of contributions is doubled for an exchange.

    Returns:
        Zero if nothing moved; at most 1 if the declaration holds, rounding left aside.
    """
    moved = other.value - release.value
    if not np.isfinite(moved).all():
        return math.inf
    if not moved.any():
        return 0.0
    # Entries may be off by the rounding of what was summed: what is left is what certainly moved.
    unsure = release.rounding * np.maximum(np.abs(release.value), np.abs(other.value))
    surely = np.sign(moved) * np.maximum(np.abs(moved) - unsure, 0.0)
    bound = release.sensitivity
    if (
        adjacency is Adjacency.REPLACE
        and isinstance(bound, SensitivitySet)
        and bound.adjacency is not Adjacency.REPLACE
    ):
        bound = bound.differences()
    with np.errstate(all="ignore"):
        found = bound.gauges(np.stack([moved, surely]))
    least = float(np.where(np.isnan(found), np.inf, found).min())
    return least / (1 + _GAUGE_ERROR + release.slack)
