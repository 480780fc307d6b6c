"""Certified discretisation: a finite loss that is never below, and one that is never above.

Replacing a loss by one on given edges keeps a one-sided bound on every composed profile, because
delta(e) = E_P (1 - exp(e - sum L_i))_+ is, in each u_i = exp(-L_i), convex and decreasing:

* *upper*: split each cell between its two edges so that mass and E u stay what they were
  (connect the dots: Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022);
* *lower*: merge mass from both sides of an edge so that the merged loss is not below the edge,
  then lower it to the edge (derivation in docs/theory/lattice.md).

Both are second-order accurate in the width of the cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._pairs.pair import Pair

__all__ = [
    "ALIGNMENT",
    "BeyondLattice",
    "Bracket",
    "Lattice",
    "Placement",
    "Widths",
    "atoms_lattice",
    "discretise",
    "lowest_node",
    "place",
    "round_cells",
    "upper_masses",
]

# The place of the lowest node decides how much rounding down wastes; every place is sound.
_BOTTOM_ITERATIONS = 3  # of Aitken's extrapolation, for a sequence that converges geometrically
_BOTTOM_ACCURACY = 5e-3  # in steps: the waste is flat at its minimum
_BOTTOM_CELLS = np.arange(25.0)  # the lowest, by which places are compared; further up they agree
_BALANCE_SWEEPS = 4  # towards equality at every edge; what they leave is repaired, so any is sound
_EVEN_CELLS = 16_384  # of equal width; only more are worth the waste where widths change
_MOST_CELLS = 2**21  # some 16 megabytes for each of a dozen vectors
ALIGNMENT = 1e-10
"""An atom this close to a node, in steps, is taken to sit on it; the error is accounted for."""


class BeyondLattice(Exception):
    """A sum needs more nodes than memory should hold, or leaves the range of floats."""


@dataclass(frozen=True)
class Lattice:
    """Loss masses on some nodes of a lattice: offset + index * step.

    Attributes:
        step: distance of neighbouring nodes.
        offset: loss of the node with index zero.
        index: increasing integers, the nodes that carry mass, shape (n,).
        masses: P-mass of each, shape (n,).
        mass_inf: P-mass at infinite loss.
        misplaced: bound on the share of exponentially tilted mass that sits on a wrong node; not
            zero only for sums that were composed before.
        label_error: bound on the error of a node's loss inherited from such a sum.
        scale_error: bound on the relative error of all masses inherited from such a sum.
    """

    step: float
    offset: float
    index: NDArray[np.int64]
    masses: Vector
    mass_inf: float
    misplaced: float = 0.0
    label_error: float = 0.0
    scale_error: float = 0.0

    @cached_property
    def losses(self) -> Vector:
        """Loss of every node, shape (n,)."""
        return self.offset + self.step * self.index.astype(np.float64)

    @cached_property
    def log_masses(self) -> Vector:
        """Logarithm of the masses, shape (n,)."""
        with np.errstate(divide="ignore"):
            return np.log(self.masses)

    def log_mgf(self, tilt: float) -> float:
        """Return log E_P[exp(tilt L); L finite]."""
        exponent = self.log_masses + tilt * self.losses
        peak = float(exponent.max())
        return peak + math.log(float(np.exp(exponent - peak).sum()))


class Bracket(NamedTuple):
    """One loss discretised to both sides."""

    lower: Lattice
    upper: Lattice


class Placement(NamedTuple):
    """Where the nodes are: offset + i * step for integers i."""

    step: float
    offset: float


class Widths(NamedTuple):
    """How wide cells may be between consecutive losses.

    Attributes:
        losses: increasing, shape (n,).
        factor: the width in steps, at least one, shape (n - 1,).
        widest: the largest width, in units of loss.
    """

    losses: Vector
    factor: Vector
    widest: float


def discretise(
    pair: Pair, placement: Placement, tail: float, widths: Widths | None = None
) -> Bracket:
    """Return the loss of ``pair`` on a lattice, rounded to either side.

    Args:
        pair: the loss.
        placement: the nodes.
        tail: P-mass that may be cut at either end. Above, it counts as infinite loss in the upper
            lattice; below, it is dropped from the lower one.
        widths: where cells may span several steps; one step everywhere by default.
    """
    index = _nodes(pair.grid(tail, 2), placement, widths)
    edges = placement.offset + placement.step * index.astype(np.float64)
    parts = _parts(pair, edges, tail)
    lower = _lower(parts)
    bottom = int(np.argmax(lower > 0))  # empty nodes below would hide that nothing lies there
    return Bracket(
        Lattice(*placement, index[bottom:], lower[bottom:], pair.mass_inf),
        Lattice(*placement, index, _upper(parts, tail), pair.mass_inf + tail),
    )


def _nodes(reach: Vector, placement: Placement, widths: Widths | None) -> NDArray[np.int64]:
    """Return the indices of the nodes that bound the cells over all of ``reach``."""
    step, offset = placement
    first = math.floor((reach[0] - offset) / step - ALIGNMENT)
    last = max(math.ceil((reach[-1] - offset) / step + ALIGNMENT), first + 1)
    if widths is None or last - first < _EVEN_CELLS:
        if last - first > _MOST_CELLS:
            raise BeyondLattice(f"{last - first} cells")
        return np.arange(first, last + 1)
    # Runs of equal width: neighbours of different width waste mass when rounded down.
    widest = max(math.floor(math.log2(max(widths.widest / step, 1.0))), 0)
    power = np.minimum(np.log2(widths.factor).astype(int), widest)
    turns = np.append(np.flatnonzero(np.diff(power)) + 1, power.size)
    runs, start = [], first
    for turn in turns.tolist():
        stride = 2 ** int(power[turn - 1])
        stop = last if turn == power.size else math.floor((widths.losses[turn] - offset) / step)
        whole = max((stop - start) // stride, 0) * stride
        if whole // stride > _MOST_CELLS:
            raise BeyondLattice(f"{whole // stride} cells")
        runs.append(np.arange(start, start + whole, stride))
        start += whole
    return np.concatenate([*runs, np.unique([start, last])])


def round_cells(
    step: float, mass: Vector, raised: Vector, on_edge: Vector, *, upper: bool
) -> Vector:
    """Return masses on equispaced edges for cells whose connect-the-dots split is known.

    Args:
        step: width of every cell.
        mass: mass strictly inside of each cell, shape (n - 1,).
        raised: the part of it that goes to the upper edge, shape (n - 1,).
        on_edge: mass exactly on the edges, shape (n,).
        upper: whether to bound the loss from above (else from below).
    """
    parts = _Parts(np.full(mass.size, step), mass, raised, RELATIVE_ERROR * mass, on_edge)
    return _upper(parts, 0.0) if upper else _lower(parts)


def place(pair: Pair, step: float, tail: float, *, sharp: bool = True) -> Placement:
    """Return a lattice of at most ``step`` on which ``pair`` loses little when rounded down.

    Heavy atoms should be nodes. At the bottom of the support there is nothing left to merge with,
    so the lowest node goes where the lowest mass averages out (unless ``sharp`` is off).
    """
    losses, masses, _ = pair.atoms(tail)
    through = atoms_lattice(pair, tail)
    if through is not None and (math.isinf(step) or through.step > step / 2):
        return Placement(through.step / max(math.ceil(through.step / step), 1), through.offset)
    if not sharp:
        return Placement(step, float(losses[0]) if losses.size else 0.0)
    if losses.size == 0 or losses.size > 3:
        return Placement(step, lowest_node(pair, step, tail))
    heavy = np.argsort(-masses)
    bottom = losses[heavy[0]] <= pair.grid(tail, 2)[0] + ALIGNMENT * step
    offset = lowest_node(pair, step, tail) if bottom else float(losses[heavy[0]])
    if losses.size > 1:
        distance = abs(float(losses[heavy[1]]) - offset)
        step = distance / math.ceil(distance / step)
    return Placement(step, offset)


def atoms_lattice(pair: Pair, tail: float) -> Placement | None:
    """Return the lattice that represents ``pair`` exactly: equispaced atoms and nothing else."""
    losses = pair.atoms(tail).losses
    if pair.continuous or losses.size == 0:
        return None
    if losses.size == 1:
        return Placement(1.0, float(losses[0]))
    gaps = np.diff(losses)
    if np.ptp(gaps) > ALIGNMENT * gaps.min():
        return None
    return Placement(float(losses[-1] - losses[0]) / gaps.size, float(losses[-1]))


def lowest_node(pair: Pair, step: float, tail: float) -> float:
    """Return a node at which all that rounding down leaves there averages out.

    That is everything below, and the part of the cell above that is not merged upwards: what the
    merging would leave, or half of it; the better of the two guesses is taken.
    """
    bottom = float(pair.grid(tail, 2)[0])
    guesses = [_balanced(pair, step, tail, bottom, stays) for stays in (None, 0.5)]
    return min(guesses, key=lambda node: _waste(pair, step, tail, bottom, node))


def _balanced(pair: Pair, step: float, tail: float, bottom: float, stays: float | None) -> float:
    """Return the node where everything below and a share of the cell above average out."""
    node = bottom + step
    for _ in range(_BOTTOM_ITERATIONS):
        once = _average_at(pair, step, tail, bottom, node, stays)
        twice = _average_at(pair, step, tail, bottom, once, stays)
        bend = twice - 2 * once + node
        if abs(twice - once) < _BOTTOM_ACCURACY * step or bend == 0:
            return twice
        # Aitken's extrapolation of a sequence that converges geometrically.
        node = min(max(node - (once - node) ** 2 / bend, bottom), bottom + 8 * step)
    return node


def _average_at(
    pair: Pair, step: float, tail: float, bottom: float, node: float, stays: float | None
) -> float:
    """Return the loss at which the mass that stays at ``node`` averages out."""
    edges = np.append(min(bottom, node) - step, node + step * _BOTTOM_CELLS[:8])
    parts = _parts(pair, edges, tail)
    if stays is None:
        stays = 1 - float(_lift(parts.mass - parts.raised, parts.raised, parts.width)[1])
    # E exp(node - L) of a cell, from its split between the edges.
    decay = np.exp(np.minimum(node - edges, 700.0))
    u = (parts.mass - parts.raised) * decay[:-1] + parts.raised * decay[1:]
    p = float(parts.on_edge[0] + parts.mass[0] + parts.on_edge[1] + stays * parts.mass[1])
    q = float(parts.on_edge[0] * decay[0] + parts.on_edge[1] * decay[1] + u[0] + stays * u[1])
    if not (p > 0 and q > 0):
        return node
    return max(node + math.log(p / q), bottom)


def _waste(pair: Pair, step: float, tail: float, bottom: float, node: float) -> float:
    """Return by how much the lowest cells differ, in mean loss, rounded up and rounded down."""
    first = math.floor((bottom - node) / step - ALIGNMENT)
    edges = node + step * (first + _BOTTOM_CELLS)
    parts = _parts(pair, edges, tail)
    return float(((_upper(parts, 0.0) - _lower(parts)) * (edges - bottom)).sum())


def upper_masses(pair: Pair, edges: Vector, tail: float) -> Vector:
    """Return P-masses on any increasing ``edges`` (shape (n,)) that bound the loss from above.

    What lies below the first edge is raised to it; what lies above the last one, at most ``tail``,
    is for the caller to count as infinite loss.
    """
    return _upper(_parts(pair, edges, tail), tail)


class _Parts(NamedTuple):
    """The mass between the edges (cells, shape (n-1,)) and exactly on them (shape (n,))."""

    width: Vector
    mass: Vector
    raised: Vector
    slack: Vector
    on_edge: Vector


def _parts(pair: Pair, edges: Vector, tail: float) -> _Parts:
    """Return the connect-the-dots split of every cell; ``raised`` goes to the upper edge."""
    width = np.diff(edges)
    mass, _, surplus, error = pair.cells(edges)
    spread = -np.expm1(-width)
    raised, slack = surplus / spread, error / spread
    on_edge = np.zeros(edges.size)
    losses, masses, _ = pair.atoms(tail)
    if losses.size:
        cell = np.clip(np.searchsorted(edges, losses, side="right") - 1, 0, width.size - 1)
        nearest = cell + (losses - edges[cell] > 0.5 * width[cell])
        aligned = np.abs(losses - edges[nearest]) < ALIGNMENT * width[cell]
        on_edge = on_edge + np.bincount(nearest[aligned], masses[aligned], edges.size)
        inside, share = cell[~aligned], masses[~aligned]
        lift = np.expm1(edges[inside] - losses[~aligned]) / np.expm1(-width[inside])
        mass = mass + np.bincount(inside, share, width.size)
        raised = raised + np.bincount(inside, share * np.clip(lift, 0.0, 1.0), width.size)
        # In a wide cell the part that stays below is smaller than the rounding of the whole.
        slack = slack + RELATIVE_ERROR * np.bincount(inside, share, width.size)
    return _Parts(width, mass, raised, slack, on_edge)


def _upper(parts: _Parts, tail: float) -> Vector:
    """Split every cell between its edges; rounding errors go up."""
    raised = np.minimum(parts.raised + parts.slack, parts.mass)
    masses = parts.on_edge.copy()
    masses[1:] += raised
    masses[:-1] += parts.mass - raised
    masses[0] += tail
    return masses


def _lower(parts: _Parts) -> Vector:
    """Merge cells across their common edge; rounding errors go down."""
    raised = np.clip(parts.raised - parts.slack, 0.0, parts.mass)
    lifted = parts.mass * _lift(parts.mass - raised, raised, parts.width)
    masses = parts.on_edge.copy()
    masses[1:] += lifted
    masses[:-1] += parts.mass - lifted
    return masses


def _lift(lower: Vector, raised: Vector, width: Vector) -> Vector:
    """Return the fraction of every cell that is merged towards its upper edge.

    ``lower`` and ``raised`` are a cell's connect-the-dots parts. A fraction f_i of cell i lacks
    f_i expm1(width_i) lower_i to average out at the upper edge; cell i + 1 offers
    (1 - f_{i+1}) (1 - exp(-width_{i+1})) raised_{i+1}. Any f for which no edge lacks more than it
    is offered is sound; near-equality everywhere makes the bound tight.
    """
    lack = np.expm1(np.minimum(width, 700.0)) * lower
    offer = np.append(-np.expm1(-width[1:]) * raised[1:], 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(lack > 0, offer / lack, math.inf)
        weight: Vector = np.where(lack > 0, 1 / (1 + ratio), 0.0)
        fraction: Vector = 1 - weight
        for _ in range(_BALANCE_SWEEPS):
            # Removes the smooth part of what edges still lack or leave unused.
            wanted = np.where(lack > 0, ratio * (1 - np.append(fraction[1:], 1.0)), 1.0)
            fraction = np.clip(fraction + (wanted - fraction) * weight, 0.0, 1.0)
        # One simultaneous pass repairs every violation: lowering a fraction never causes another.
        fraction = np.minimum(fraction, _room_above(fraction, ratio))
        for parity in (0, 1):
            # Then cells of one parity take up the slack that their fixed neighbours leave.
            most = np.minimum(_room_above(fraction, ratio), _room_below(fraction, ratio))
            mine = slice(parity, None, 2)
            fraction[mine] = np.maximum(fraction[mine], most[mine])
    return fraction


def _room_above(fraction: Vector, ratio: Vector) -> Vector:
    """Return how much of each cell the cell above can balance, at most one."""
    free = 1 - np.append(fraction[1:], 1.0)
    return np.where(np.isinf(ratio), 1.0, np.minimum(np.where(free > 0, ratio * free, 0.0), 1.0))


def _room_below(fraction: Vector, ratio: Vector) -> Vector:
    """Return how much of each cell may leave without breaking the balance of the cell below."""
    used: Vector = np.where(fraction[:-1] > 0, fraction[:-1] / ratio[:-1], 0.0)
    return np.append(1.0, np.maximum(1 - used, 0.0))
