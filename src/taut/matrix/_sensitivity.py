"""Sensitivity: how far one example, in all steps that it takes part in, can move C x."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut.matrix._encoders.encoder import Encoder
from taut.matrix._encoders.toeplitz import Toeplitz, ToeplitzEncoder
from taut.matrix._participation import ONCE, FixedOrder, Participation, SingleParticipation
from taut.matrix._workloads import MOST_DENSE_STEPS, refuse_dense

__all__ = ["Sensitivity", "sensitivity"]

_ROUNDINGS = 64  # units, beyond one for every row: of products, roots and sums over participations


@dataclass(frozen=True)
class Sensitivity:
    """The largest l2-norm that contributions of norm at most one can reach after encoding.

    Attributes:
        value: certified upper bound, which divides sigma to give the noise multiplier.
        exact: whether some example reaches it, up to rounding.
    """

    value: float
    exact: bool


def sensitivity(encoder: Encoder, participation: Participation = ONCE) -> Sensitivity:
    """Return by how much one example can move C x under a rule of participation.

    Args:
        encoder: matrix that is applied to the inputs.
        participation: rule about the steps of one example.

    **Guarantee**: an upper bound for contributions in any directions and any dimension, that may
    depend on earlier outputs: with the inner products G of columns, the square is at most the sum
    of ``abs(G[i, j])`` over all pairs of steps that the example takes part in. Equal contributions
    reach it where no G is negative (Choquette-Choo, McMahan, Rush and Thakurta 2023). Under a
    minimum separation the worst steps are found exactly for Toeplitz matrices with coefficients
    that do not increase (Kalinin and Lampert 2024), and for matrices with at most as
    many bands as the separation; else two rounds of dynamic programming bound them.

    Raises:
        ValueError: if a bound needs a matrix that would be too large.

    Example:
        >>> from taut.matrix import MinimumSeparation, Workload, sensitivity, square_root
        >>> encoder = square_root(Workload(100), bands=10)
        >>> once, often = sensitivity(encoder), sensitivity(encoder, MinimumSeparation(10))
        >>> round(once.value, 3), round(often.value / once.value, 3), often.exact
        (1.338, 3.162, True)
    """
    validate.instance(Encoder, encoder=encoder)
    validate.instance(Participation, participation=participation)
    if isinstance(participation, SingleParticipation):
        square, exact = float(encoder.column_norms().max()) ** 2, True
    elif isinstance(participation, FixedOrder):
        square, exact = _fixed_order(encoder, participation)
    else:
        square, exact = _separated(encoder, participation)
    rounding = 1 + (encoder.rows + _ROUNDINGS) * float(np.finfo(np.float64).eps)
    return Sensitivity(math.sqrt(square) * rounding, exact)


def _fixed_order(encoder: Encoder, rule: FixedOrder) -> tuple[float, bool]:
    """Return the largest square over the steps of the first epoch, and whether it is reached."""
    steps, period = encoder.steps, rule.separation
    count = rule.most(steps)
    if encoder.reach <= period:  # columns of one example are orthogonal
        squares = _padded(encoder.column_norms() ** 2, count * period)
        return float(squares[: count * period].reshape(count, period).sum(axis=0).max()), True
    firsts = [0] if encoder.non_increasing else range(min(period, steps))
    worst = 0.0
    for first in firsts:
        at = np.arange(first, steps, period)[:count]
        worst = max(worst, float(np.abs(encoder.gram(at)).sum()))
    return worst, encoder.non_negative


def _separated(encoder: Encoder, rule: Participation) -> tuple[float, bool]:
    """Return the largest square over all admissible steps, or a bound, and whether it is exact."""
    steps = encoder.steps
    gap, count = rule.least_gap(steps), rule.most(steps)
    if encoder.non_increasing:
        return _equidistant(encoder, gap, count), True
    if encoder.reach <= gap:
        return float(_best_choice(encoder.column_norms() ** 2, gap, count)), True
    bounds = []
    if isinstance(encoder, Toeplitz):
        # Larger coefficients have larger sums of |G|, and these do not increase.
        envelope = np.maximum.accumulate(np.abs(encoder.coefficients)[::-1])[::-1]
        bounds.append(_equidistant(ToeplitzEncoder(steps, envelope.tolist()), gap, count))
    if steps <= MOST_DENSE_STEPS:
        bounds.append(_two_rounds(encoder.gram(np.arange(steps)), gap, count))
    if not bounds:
        refuse_dense(steps)
    return min(bounds), False


def _equidistant(encoder: Encoder, gap: int, count: int) -> float:
    """Return the square for the first step and every ``gap``-th one after it."""
    total = encoder.columns(np.arange(0, encoder.steps, gap)[:1])[:, 0]
    column = total.copy()
    for i in range(1, count):
        total[i * gap :] += column[: encoder.steps - i * gap]
    return float(total @ total)


def _best_choice(weights: Matrix, gap: int, count: int) -> Vector:
    """Return the largest sum of ``count`` weights, ``gap`` apart, along the last axis."""
    best = np.maximum.accumulate(weights, axis=-1)
    for _ in range(1, min(count, -(-weights.shape[-1] // gap))):
        before = np.zeros_like(weights)
        before[..., gap:] = best[..., :-gap]
        best = np.maximum.accumulate(weights + before, axis=-1)
    result: Vector = best[..., -1]
    return result


def _two_rounds(gram: Matrix, gap: int, count: int) -> float:
    """Return a bound on the sum of |G| over admissible steps.

    A step adds its own square and products with at most ``count - 1`` others, of which the largest
    admissible ones are taken, whatever other steps would take.
    """
    size = len(gram)
    if count == 1:
        return float(np.diagonal(gram).max())
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) >= gap
    others = _best_choice(np.where(apart, np.abs(gram), 0.0), gap, count - 1)
    return float(_best_choice(np.diagonal(gram) + others, gap, count))


def _padded(values: Vector, size: int) -> Vector:
    """Return at least ``size`` values, with zeros at the end."""
    return np.append(values, np.zeros(max(size - values.size, 0)))
