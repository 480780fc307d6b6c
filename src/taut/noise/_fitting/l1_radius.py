"""How long a set is to Laplace noise: the largest sum of entries over scales."""

from __future__ import annotations

import math

import numpy as np

from taut._base.arrays import Vector
from taut.noise._fitting.water_filling import largest_ratio_bound, whitened_radius
from taut.noise._sets.finite import FiniteSet, Polytope
from taut.noise._sets.products import Product, parts_of
from taut.noise._sets.sets import Outline, SensitivitySet

__all__ = ["l1_radius", "rooted"]


def rooted(outline: Outline) -> Outline:
    """Return the outline whose squares are these lengths.

    The largest sum of t_j / scale_j over l1 lengths t is the squared whitened length of the rooted
    outline for variances equal to the scales, so that one theory levels both.
    """
    return Outline(
        outline.ranks, np.sqrt(outline.radii), math.sqrt(outline.cap), exact=outline.exact
    )


def l1_radius(sensitivity: SensitivitySet, scales: Vector, enough: float = 0.0) -> float:
    """Return the largest sum of |s_i| / scale_i over the set, or an upper bound on it.

    Args:
        sensitivity: the set.
        scales: one per coordinate; infinite privacy loss where one is zero and the set is not.
        enough: any bound below this will do, and spares sorting.
    """
    if isinstance(sensitivity, FiniteSet | Polytope):
        return float(_ratios(np.abs(sensitivity.vectors), scales).sum(axis=1).max())
    if isinstance(sensitivity, Product):
        return math.fsum(l1_radius(part, scales[at]) for part, at in parts_of(sensitivity))
    outline = sensitivity.l1_outline()
    if outline.radii.size == scales.size:
        bound = largest_ratio_bound(outline, scales)
        if bound <= enough:
            return bound
        return whitened_radius(rooted(outline), np.sqrt(scales)) ** 2
    by_axis = sensitivity.l1_outline(by_axis=True)
    starts = np.concatenate([[0], np.cumsum(outline.ranks)[:-1]]).astype(np.int64)
    least = np.minimum.reduceat(scales, starts)  # exact for scales that are constant in blocks
    bound = whitened_radius(rooted(outline), np.sqrt(least)) ** 2
    if by_axis.radii.size == scales.size:
        bound = min(bound, whitened_radius(rooted(by_axis), np.sqrt(scales)) ** 2)
    return bound


def _ratios(lengths: Vector, scales: Vector) -> Vector:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(lengths > 0, lengths / scales, 0.0)
