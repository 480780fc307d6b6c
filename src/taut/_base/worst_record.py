"""The record that is hardest to hide under two clipping bounds."""

from __future__ import annotations

import math
from typing import NamedTuple

from taut._base.floats import RELATIVE_ERROR

__all__ = ["OPERATIONS_FACTOR", "Vertex", "l2_norm", "vertex"]

OPERATIONS_FACTOR = 1 + 4 * RELATIVE_ERROR
"""Factor that covers sixty-four roundings by half a unit, more than any formula here has."""

# Of the clipping bound: without a dimension, smaller bounds on coordinates count as this one. That
# enlarges the vertex, so it is sound, and limits the number of its coordinates to a float.
_FINEST_SHARE = 1e-9


class Vertex(NamedTuple):
    """The record that fills coordinates as far as its clipping allows.

    Attributes:
        full: how many coordinates are at the largest magnitude.
        large: magnitude of the large entries.
        rest: the magnitude of one more coordinate, possibly 0.
    """

    full: int
    large: float
    rest: float


def vertex(clip: float, clip_inf: float, dimension: int | None, p: float) -> Vertex:
    """Return the vertex of ||s||_p <= clip, ||s||_inf <= clip_inf in R^dimension, rounded up.

    Rounding the number of full coordinates down without the remainder would be unsound
    (docs/errata.md); the remainder makes the vertex exact for every quotient of the two bounds.
    """
    # Without a dimension, bounds on coordinates that are smaller still count as this one.
    large = min(clip, clip_inf if dimension is not None else max(clip_inf, _FINEST_SHARE * clip))
    if clip_inf >= clip or dimension == 1:
        return Vertex(1, large, 0.0)
    quotient = clip / large
    if dimension is not None and p * math.log(quotient) >= math.log(dimension):
        return Vertex(dimension, large, 0.0)
    budget = quotient**p * (1 + RELATIVE_ERROR * (2 + p * math.log(quotient)))
    full = math.floor(budget)
    if dimension is not None and full >= dimension:
        return Vertex(dimension, large, 0.0)
    return Vertex(full, large, min(large * (budget - full) ** (1 / p) * OPERATIONS_FACTOR, large))


def l2_norm(at: Vertex, clip: float) -> float:
    """Return the l2-norm of a vertex, rounded up; for p <= 2 it is at most the l_p-bound."""
    return min(math.hypot(math.sqrt(at.full) * at.large, at.rest) * OPERATIONS_FACTOR, clip)
