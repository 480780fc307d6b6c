"""The likelihood ratio of one release under Q, and of a sum of independent copies of it.

A profile is the expectation of a convex function of the ratio r = dP/dQ under Q, in either
direction. Sums of independent ratios keep the order that such expectations define, so that one
spread and one merged law bound both directions (docs/theory/allocation.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._engines.convex_order import mass_error, places
from taut.accounting._engines.dyadic import (
    BULK_SHARE,
    Dyadic,
    MergedRatios,
    Scale,
    SpreadRatios,
    power,
)
from taut.accounting._pairs.discretisation import BeyondLattice
from taut.accounting._pairs.pair import Pair

__all__ = ["Ratios", "ratio_sums"]

RATIO_TAIL = 2e-60
"""P- and Q-mass cut from one release, and counted as infinite loss: below any delta in use."""
_GRID_TAIL = 1e-60  # the part of it beyond the grid; the rest has room for masses too faint
# Of either sign, up to which nodes and their Q-masses are floats with all their digits. Masses
# below 1e-290 are dropped, fewer than 1e7 of them: P-mass of less than exp(460) 1e-283, or 1e-83.
_LARGEST_LOG_RATIO = 460.0
_FAR_SPREAD = 0.5  # standard deviation of the mean beyond which nodes around zero are the finer
_FOOT_NODES = 16  # between zero and the least ratio: what lies there has the mass of the tail
_MISSING_SHARE = 1e-6  # of all P-mass: spread laws have none missing, but for rounding
_WORST_LABEL = 1e-9  # relative error of a ratio beyond which an outcome is dropped (lower side)
_LEAST_CELL = 1e-250  # of a cell that is kept for lower bounds; ratios of masses stay floats


class Ratios(NamedTuple):
    """The sum of independent likelihood ratios under Q.

    Attributes:
        values: increasing sums, not negative, shape (n,).
        masses: Q-mass of each, shape (n,).
        mass_error: bound on the relative error of the masses.
        label_error: bound on the error of a value, relative to it plus the centre.
        centre: centre of the nodes: the number of ratios, or zero.
    """

    values: Vector
    masses: Vector
    mass_error: float
    label_error: float
    centre: float


def ratio_sums(pair: Pair, count: int, half: int) -> tuple[Ratios, Ratios]:
    """Return the sum of ``count`` ratios, spread and merged, on levels of ``half`` nodes.

    The merged law is that of a pair that is reached. P-mass of infinite loss, and up to
    ``RATIO_TAIL`` of either mass that was cut, are for the caller to add.

    Raises:
        BeyondLattice: ratios, or their inverses, are too large for floats to hold their masses.
    """
    centre = _centre(pair, count)
    if centre == 0:
        half //= 2  # losses are spread over units then, and nodes are a hundredth of one apart
    upper, _ = _single(pair, SpreadRatios(fine_centre=centre == 0), centre, half)
    spread = power(upper, count, 0.0)
    values, rows = spread.nodes()
    values, masses = _not_negative(values, rows[0])
    mean = float(values @ masses)
    if not count * (1 - pair.mass_inf) * (1 - _MISSING_SHARE) < mean < math.inf:
        raise BeyondLattice("nodes do not hold the ratios")
    lower, label_error = _single(pair.reached, MergedRatios(fine_centre=centre == 0), centre, half)
    merged = power(lower, count, 0.0)
    below, rows = merged.nodes()
    # What is relative to a node's distance is relative to the value plus the centre.
    label_error += 4 * merged.error + 64 * RELATIVE_ERROR
    return (
        Ratios(values, masses, spread.error, 8 * RELATIVE_ERROR, spread.centre),
        Ratios(below + rows[1] / rows[0], rows[0], merged.error, label_error, merged.centre),
    )


def _centre(pair: Pair, count: int) -> float:
    """Return where the nodes of one ratio are finest: at one, or at zero if the sum is far spread.

    Nodes around zero have the same relative distance everywhere, so that small ratios, the losses
    of addition, are told apart; nodes around one follow a mean that is all but constant.
    """
    losses, log_weights = pair.quadrature(0.0)
    square = float(np.exp(np.minimum(log_weights + losses, 690.0)).sum())
    return 0.0 if square - 1 > _FAR_SPREAD**2 * count else 1.0


def _single(pair: Pair, scale: Scale, centre: float, half: int) -> tuple[Dyadic, float]:
    """Return one ratio on nodes around ``centre``, and the relative error of its values."""
    reach = pair.grid(_GRID_TAIL, 2)
    # The ends of a grid are rounded; a lattice that reaches a little further is as good.
    top = float(reach[-1]) * (1 + 1e-9) + 1e-9
    foot = min(float(reach[0]) * (1 + 1e-9) - 1e-9, -math.log(2))  # likewise
    if max(top, -foot if centre == 0 else 0.0) > _LARGEST_LOG_RATIO:
        raise BeyondLattice(f"losses up to {max(top, -foot):.3g}")
    highest = math.exp(top)
    if centre == 0:
        bottom = math.frexp(math.exp(foot) / _FOOT_NODES)[1] - 1
    else:
        losses, log_weights = pair.quadrature(0.0)
        apart = np.abs(np.exp(log_weights) - np.exp(log_weights - losses)).sum()
        deviation = min(max(float(apart) + pair.mass_minus_inf, 2.0**-30), 2.0)
        bottom = math.frexp(deviation / (BULK_SHARE * half))[1] - 1
    # By exponents: the quotient of the largest and the least ratio may be beyond floats.
    levels = max(math.frexp(max(highest, 2.0) / half)[1] - bottom, 0)
    level, place = places(half, levels)
    nodes = centre + np.ldexp(place.astype(float), bottom + level)
    # Zero is a node: its distance from one is a power of two.
    first = int(np.searchsorted(nodes, 0.0))
    last = max(int(np.searchsorted(nodes, highest)), first + 1)
    kept = slice(first, last + 1)
    if scale.rows == 1:
        rows, error = _spread(pair, nodes[kept], centre), 0.0
    else:
        rows, error = _merged(pair, nodes[kept], centre)
    values = np.zeros((levels + 1, scale.rows, 2 * half + 1))
    values[level[kept], :, place[kept] + half] = rows.T
    held = {bottom + e: values[e] for e in range(levels + 1)}
    return Dyadic(scale, half, centre, held, 0.0, 0.0), error


class _Cells(NamedTuple):
    """Q-mass between nodes, its surplus E (r - node) over the lower one, and errors of both."""

    mass: Vector
    surplus: Vector
    mass_error: Vector
    surplus_error: Vector


def _cells(pair: Pair, nodes: Vector, centre: float) -> _Cells:
    """Return the ratio between consecutive ``nodes``, the first of which is zero."""
    with np.errstate(divide="ignore"):
        # The differences are exact where they are used, so near one edges are relatively so.
        edges = np.where(nodes < 0.5, np.log(nodes), np.log1p(np.maximum(nodes - 1, -0.5)))
    edges[0] = min(float(pair.grid(_GRID_TAIL, 2)[0]), float(edges[1])) - 1.0
    p_mass, mass, surplus, error = pair.cells(edges)
    surplus = surplus.copy()
    surplus[0] = p_mass[0]  # over zero, not over the lowest loss of the grid
    off = mass_error(mass) if pair.continuous else np.zeros_like(mass)
    # An edge is the logarithm of a node up to rounding.
    error = error + 2 * RELATIVE_ERROR * np.abs(edges[:-1]) * (p_mass + nodes[:-1] * mass)
    if pair.continuous:
        error[0] += mass_error(p_mass)[0]
    losses, _, atoms = pair.atoms(_GRID_TAIL)
    if losses.size:
        cell = np.clip(np.searchsorted(edges, losses, side="right") - 1, 0, mass.size - 1)
        # Distances from the centre: that is what errors are relative to.
        ratio = np.expm1(losses) if centre else np.exp(losses)
        node = nodes[cell] - centre
        above = np.maximum(ratio - node, 0.0)
        slack = RELATIVE_ERROR * (np.abs(ratio) * (1 + np.abs(losses)) + np.abs(node))
        slack += np.exp(losses) * pair.loss_error + 8 * RELATIVE_ERROR * above
        mass = mass + np.bincount(cell, atoms, mass.size)
        surplus = surplus + np.bincount(cell, above * atoms, mass.size)
        off = off + np.bincount(cell, RELATIVE_ERROR * (8 + np.abs(losses)) * atoms, mass.size)
        error = error + np.bincount(cell, slack * atoms, mass.size)
    return _Cells(mass, surplus, off, error)


def _spread(pair: Pair, nodes: Vector, centre: float) -> Vector:
    """Return Q-masses on ``nodes`` for every cell split between its ends.

    Errors are added at both ends: every profile is the mean of a function that is not negative.
    """
    mass, surplus, off, error = _cells(pair, nodes, centre)
    width = np.diff(nodes)
    slack = error / width + off + RELATIVE_ERROR * mass
    raised = np.minimum(surplus / width, mass)
    result = np.zeros((1, nodes.size))
    result[0, 1:] += raised + slack
    result[0, :-1] += mass - raised + slack
    # Outcomes that P never has; and Q-mass of what lies beyond the grid, at most the tail each.
    result[0, 0] += pair.mass_minus_inf + 2 * _GRID_TAIL
    return result


def _merged(pair: Pair, nodes: Vector, centre: float) -> tuple[Vector, float]:
    """Return Q-masses of the cells and E (r - node), and the relative error of the ratios."""
    mass, surplus, off, error = _cells(pair, nodes, centre)
    least = np.maximum(mass - off, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.minimum(surplus / mass, np.diff(nodes))
        doubt = (error + off * np.diff(nodes)) / (mass * (centre + nodes[:-1] + mean))
    kept = (least > _LEAST_CELL) & (doubt < _WORST_LABEL)
    result = np.zeros((2, nodes.size))
    result[0, :-1] = np.where(kept, least, 0.0)
    result[1, :-1] = np.where(kept, least * mean, 0.0)
    if pair.mass_minus_inf:
        result[0, 0] += pair.mass_minus_inf
    return result, float(np.max(doubt, where=kept, initial=0.0))


def _not_negative(values: Vector, masses: Vector) -> tuple[Vector, Vector]:
    """Return a law on values that are not negative, still above the truth in convex order.

    Nodes of a coarse level need not include zero. Mass below goes to zero, and as much of the
    lowest positive nodes follows as keeps the mean.
    """
    negative = values < 0
    if not negative.any():
        return values, masses
    owed = -float(values[negative] @ masses[negative])
    at_zero = float(masses[negative].sum())
    values, masses = values[~negative], masses[~negative].copy()
    for i in range(values.size):
        if values[i] == 0:
            continue
        moved = min(owed / values[i], masses[i])
        masses[i] -= moved
        at_zero += moved
        owed -= moved * values[i]
        if owed <= 0:
            break
    return np.append(0.0, values), np.append(at_zero, masses)
