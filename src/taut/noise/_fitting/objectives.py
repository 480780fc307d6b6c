"""What can be made small, and how much every coordinate or block weighs in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.products import Product
from taut.noise._sets.sets import Outline, SensitivitySet, checked_vector

__all__ = [
    "OBJECTIVES",
    "block_weights",
    "checked_power",
    "coordinate_weights",
    "relative_weights",
    "weighed_outline",
]

OBJECTIVES = ("total", "worst", "relative")
"""What can be made small."""
_LARGEST_POWER = 200.0  # moments of a normal number beyond leave the range of floats


def checked_power(objective: str, power: float) -> float:
    """Return the power, if it goes with the objective."""
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {OBJECTIVES}, got objective={objective!r}")
    p = validate.positive(power=power)
    if p > _LARGEST_POWER:
        raise ValueError(
            f"power must be at most {_LARGEST_POWER:g}, got power={power!r}; for the largest error "
            "of a coordinate use objective='worst'"
        )
    if p != 2 and objective != "total":
        raise ValueError(f"power belongs to objective='total', got {objective!r} and power={p!r}")
    return p


def coordinate_weights(weights: ArrayLike | None, dimension: int) -> Vector:
    """Return one positive weight per coordinate; ones, repeated without memory, if none is given.

    Raises:
        ValueError: for another number of them, and for weights that are not positive.
    """
    if weights is None:
        return np.broadcast_to(np.float64(1.0), (dimension,))
    given = checked_vector(real_numbers(weights, "weights"), "weights", allow_zero=False)
    if given.size != dimension:
        raise ValueError(f"weights must hold {dimension} numbers, got {given.size}")
    return given


def block_weights(sensitivity: SensitivitySet, weights: ArrayLike, blocks: int) -> Vector | None:
    """Return one weight per block of an outline, or None if there is one per coordinate instead.

    Raises:
        ValueError: for any other number of weights.
    """
    given = checked_vector(real_numbers(weights, "weights"), "weights", allow_zero=False)
    if given.size == blocks:
        return given
    if given.size == sensitivity.dimension:
        return None
    has_blocks = isinstance(sensitivity, Blocks | Product)
    per_block = f", or {blocks}, one per block" if has_blocks else ""
    raise ValueError(
        f"weights must hold {sensitivity.dimension} numbers, one per coordinate{per_block}, "
        f"got {given.size}"
    )


def relative_weights(costs: Vector, lengths: Vector) -> Vector:
    """Return the costs over squared lengths; parts that no record can change keep theirs."""
    squares = np.square(lengths)
    squares[squares == 0] = 1.0
    return np.divide(costs, squares, out=squares)


def weighed_outline(
    sensitivity: SensitivitySet,
    outline_of: Callable[[bool], Outline],
    objective: str,
    weights: ArrayLike | None,
) -> tuple[Outline, Vector]:
    """Return the outline, and the weight of one direction of every block in the objective.

    Args:
        sensitivity: the set.
        outline_of: returns its outline; True asks for directions that are treated differently.
        objective: what is made small.
        weights: one per block or coordinate. Noise is alike in all directions of a block, so that
            those of its coordinates are averaged.
    """
    outline = outline_of(False)
    costs = np.broadcast_to(np.float64(1.0), outline.radii.shape)
    if weights is not None:
        per_block = block_weights(sensitivity, weights, outline.radii.size)
        if per_block is None:
            outline = outline_of(True)
            per_block = coordinate_weights(weights, sensitivity.dimension)
            if outline.radii.size < sensitivity.dimension:
                starts = np.concatenate([[0], np.cumsum(outline.ranks)[:-1]]).astype(np.int64)
                per_block = np.add.reduceat(per_block, starts) / outline.ranks
        costs = per_block
    if objective == "relative":
        costs = relative_weights(costs, outline.radii)
    return outline, costs
