"""Scales of least error for blocks with radii and a common cap: closed forms, and their check."""

from __future__ import annotations

import math

import numpy as np

from taut.noise._clipping import Vector
from taut.noise._sets import Outline

__all__ = [
    "checked_radius",
    "is_constant",
    "level_total",
    "level_worst",
    "levelled",
    "product",
    "weighted_sum",
    "whitened_radius",
]


def whitened_radius(outline: Outline, variances: Vector) -> float:
    """Return the largest length of a member after division by the standard deviations.

    The squared length is a sum of t_j / variance_j over squared block lengths t_j <= radius_j^2
    that sum to at most cap^2, largest where the least noisy blocks are filled first.
    """
    moved = outline.radii > 0
    if moved.all():
        squares, noise = outline.radii**2, variances
    else:
        squares, noise = outline.radii[moved] ** 2, variances[moved]
    if not float(noise.min()) > 0:
        return math.inf
    total, cap = float(squares.sum()), outline.cap**2
    if total <= cap * (1 + 1e-15):
        return math.sqrt(float((squares / noise).sum()))
    order = np.argsort(noise, kind="stable")
    filled = np.cumsum(squares[order])
    taken = np.diff(np.minimum(filled, cap), prepend=0.0)
    return math.sqrt(float((taken / noise[order]).sum()))


def checked_radius(outline: Outline, variances: Vector) -> float:
    """Return `whitened_radius`, or without sorting a bound on it that levelled scales attain.

    Below the cap, any tau >= 0 bounds the sum of t_j x_j, x = 1 / variance, by tau cap^2 plus the
    sum of radius_j^2 (x_j - tau)_+. Levelled blocks are those of the least x, which is tau.
    """
    if not float(variances.min()) > 0:
        return whitened_radius(outline, variances)
    least = 1 / float(variances.max())
    excess = 1 / variances
    excess -= least
    excess *= outline.radii
    bound = math.sqrt(least * outline.cap**2 + float(np.dot(excess, outline.radii)))
    return bound if bound <= 1 + 1e-9 else whitened_radius(outline, variances)


def level_total(outline: Outline, load: Vector, p: float) -> tuple[Vector, float]:
    """Return the scales of least sum of load * scale^p for whitened length 1, and that sum.

    With squared lengths t they are (t / load)^(1 / (p + 2)), times the root of the sum of
    t^(p / (p + 2)) load^(2 / (p + 2)); for p = 2 by square roots alone, which are much faster.
    """
    scales = levelled(outline, load)
    if p == 2:
        np.sqrt(scales, out=scales)
        even = np.broadcast_to(np.sqrt(load[0]), load.shape) if is_constant(load) else np.sqrt(load)
        total = weighted_sum(scales, even)
        scales /= even
        np.sqrt(scales, out=scales)
    else:
        total = weighted_sum(scales ** (p / (p + 2)), load ** (2 / (p + 2)))
        scales /= load
        scales **= 1 / (p + 2)
    scales *= math.sqrt(total)
    return scales, total ** (p / 2 + 1)


def product(one: Vector, other: Vector) -> Vector:
    """Return the product, without filling memory with the same number."""
    if is_constant(one) and is_constant(other):
        return np.broadcast_to(one[0] * other[0], one.shape)
    return one * other


def weighted_sum(values: Vector, weights: Vector) -> float:
    """Return the sum of values times weights."""
    if is_constant(weights):
        return float(values.sum()) * float(weights[0])
    return float(np.dot(values, weights))


def is_constant(vector: Vector) -> bool:
    """Say whether a vector is one number, repeated without memory."""
    return vector.strides == (0,)


def levelled(outline: Outline, load: Vector) -> Vector:
    """Return the squared lengths min(radius^2, level * load) that sum to the squared cap.

    The sum is concave in the level, so Newton's method climbs to it from the left, and ends once
    the set of blocks at their radius stays the same.
    """
    squares: Vector = outline.radii**2
    target = outline.cap**2
    if float(squares.sum()) <= target * (1 + 1e-12):
        return squares
    level, full = 0.0, -1
    free = squares > 0
    while (count := int(np.count_nonzero(free))) != full and count:
        full = count
        rest = target - float(squares.sum(where=~free))
        weight = count * load[0] if is_constant(load) else load.sum(where=free)
        level = max(level, rest / float(weight))
        free = squares > _times(level, load)
    return np.minimum(squares, _times(level, load))


def _times(level: float, load: Vector) -> Vector:
    return product(np.broadcast_to(np.float64(level), load.shape), load)


def level_worst(outline: Outline, costs: Vector) -> tuple[Vector, float]:
    """Return the scales with cost * scale^2 constant, and that constant."""
    radius = whitened_radius(outline, 1 / costs)
    scales = radius / np.sqrt(costs)
    return np.where(outline.radii > 0, scales, 0.0), radius**2
