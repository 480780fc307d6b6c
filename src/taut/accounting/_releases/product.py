"""Several releases from one sample, seen as one release: its pair is the product of theirs.

Amplification acts on the whole product, so the product is needed as a pair in its own right. It is
enclosed by two pairs on a lattice: one that dominates it (every loss split between the ends of its
cell), and one that post-processing makes of what is reached (outcomes merged node by node). Masses
are non-negative and are convolved term by term, so tails keep their relative accuracy at any depth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._engines.saddle_point import Cumulants
from taut.accounting._pairs.blurred import SmoothPair
from taut.accounting._pairs.discretisation import Lattice, Placement, discretise, place
from taut.accounting._pairs.finite import FinitePair, any_of
from taut.accounting._pairs.pair import Pair

__all__ = ["EnclosedPair", "product_pair"]

_PRODUCT_TAIL = 1e-80  # mass cut from every loss, and counted as infinite: below any delta in use
# In a deviation of the sum, for one copy. Splitting cells adds 1 / (6 96^2) = 2e-5 of the variance,
# for one copy as for n of them, with sqrt(n) times as many nodes.
_NODES_PER_DEVIATION = 96
_MOST_PRODUCT_NODES = 2**14  # of the sum: convolved term by term, they take seconds
_LEAST_BAR = 1e-250  # P- or Q-mass of an outcome that is kept for lower bounds; ratios stay floats
_MASS_ERROR = 8 * RELATIVE_ERROR  # relative, of a mass of one copy: some evaluations and their sum
_SUM_ROUNDINGS = 16  # units, beyond one for each term: to add cut ends pairwise, and for logarithms


@dataclass(frozen=True)
class EnclosedPair(FinitePair):
    """A finite pair that dominates a release, with a pair that such a release reaches."""

    inside: Pair | None = None
    tight = False

    @property
    def attained(self) -> Pair:
        """The pair for lower bounds."""
        assert self.inside is not None  # always given; a default is what inheritance demands
        return self.inside


def product_pair(terms: Sequence[tuple[Pair, int]]) -> EnclosedPair:
    """Return the pair of ``count`` independent copies of every pair of ``terms``.

    **Guarantee**: the result dominates the product at every threshold, for this direction, and so
    does any sampled version of it, because amplification is monotone in the profile (Zhu, Dong and
    Wang 2022, Theorem 11).
    """
    placements = _placements(terms)
    step = placements[0].step
    top = [_above(pair, at) for (pair, _), at in zip(terms, placements, strict=True)]
    reached = [pair.reached for pair, _ in terms]
    merged = [_within(pair, at) for pair, at in zip(reached, placements, strict=True)]
    counts = [count for _, count in terms]
    offset = math.fsum(n * at.offset for n, at in zip(counts, placements, strict=True))
    upper = _total([_repeated(part, n) for part, n in zip(top, counts, strict=True)])
    masses, masses_q = (
        _total([_repeated(part[i], n) for part, n in zip(merged, counts, strict=True)])
        for i in (0, 1)
    )
    infinite = any_of([(pair.mass_inf + _PRODUCT_TAIL, n) for pair, n in terms])
    betrayed, absent = (
        any_of(list(zip(column, counts, strict=True)))
        for column in (
            [pair.mass_inf for pair in reached],
            [pair.mass_minus_inf for pair in reached],
        )
    )
    losses: Vector = offset + step * (upper.first + np.arange(float(upper.values.size)))
    inside = _merged_pair(masses, masses_q, betrayed, absent)
    return _dominating_pair(losses, upper, infinite, inside)


@dataclass(frozen=True)
class _Masses:
    """Non-negative masses at consecutive lattice indices, and what was cut off above.

    ``error`` bounds the relative rounding error of every mass. A sum of n terms, none negative, is
    off by n units in the last place at most, beyond what its factors are off by; so copies add up.
    """

    first: int
    values: Vector
    lost: float = 0.0
    error: float = _MASS_ERROR


def _placements(terms: Sequence[tuple[Pair, int]]) -> list[Placement]:
    """Return lattices of one common step, each through the atoms of its loss."""
    cumulants = Cumulants(terms, _PRODUCT_TAIL)
    count = sum(n for _, n in terms)
    spread = math.sqrt(max(cumulants.spread(0.0), 1e-300))
    reach = math.fsum(n * float(np.ptp(pair.grid(_PRODUCT_TAIL, 2))) for pair, n in terms)
    step = max(
        spread / (_NODES_PER_DEVIATION * math.sqrt(count)),
        min(reach, 40 * spread) / _MOST_PRODUCT_NODES,
    )
    found = [place(pair, step, _PRODUCT_TAIL) for pair, _ in terms]
    common = min(at.step for at in found)
    return [Placement(common, at.offset) for at in found]


def _above(pair: Pair, at: Placement) -> _Masses:
    """Return lattice masses that dominate; what lies above the grid is at most the tail."""
    lattice: Lattice = discretise(pair, at, _PRODUCT_TAIL).upper
    first, last = int(lattice.index[0]), int(lattice.index[-1])
    values = np.zeros(last - first + 1)
    values[lattice.index - first] = lattice.masses
    return _Masses(first, values)


def _within(pair: Pair, at: Placement) -> tuple[_Masses, _Masses]:
    """Return P- and Q-masses of the outcomes whose loss is nearest to each node."""
    reach = pair.grid(_PRODUCT_TAIL, 2)
    first = math.floor((float(reach[0]) - at.offset) / at.step)
    last = math.ceil((float(reach[-1]) - at.offset) / at.step)
    edges: Vector = at.offset + at.step * (np.arange(float(first), last + 2) - 0.5)
    mass, q_mass, _, _ = pair.cells(edges)
    losses, masses, q_masses = pair.atoms(_PRODUCT_TAIL)
    cell = np.clip(np.searchsorted(edges, losses) - 1, 0, mass.size - 1)
    mass = mass + np.bincount(cell, masses, mass.size)
    q_mass = q_mass + np.bincount(cell, q_masses, mass.size)
    return _Masses(first, mass), _Masses(first, q_mass)


def _repeated(part: _Masses, count: int) -> _Masses:
    """Return the sum of ``count`` copies, by squaring."""
    result: _Masses | None = None
    while True:
        if count & 1:
            result = part if result is None else _sum(result, part)
        count >>= 1
        if not count:
            break
        part = _sum(part, part)
    assert result is not None  # counts are positive
    return result


def _total(parts: Sequence[_Masses]) -> _Masses:
    result = parts[0]
    for part in parts[1:]:
        result = _sum(result, part)
    return result


def _sum(left: _Masses, right: _Masses) -> _Masses:
    """Return the convolution without its negligible ends; the upper one counts as lost."""
    values = np.convolve(left.values, right.values)
    beyond = np.cumsum(values[::-1])[::-1]
    last = int(np.searchsorted(-beyond, -_PRODUCT_TAIL))
    first = int(np.searchsorted(np.cumsum(values), _PRODUCT_TAIL))
    last = max(last, first + 1)
    kept = values[first:last].copy()
    kept[0] += values[:first].sum()
    lost = left.lost + right.lost + float(values[last:].sum())
    units = min(left.values.size, right.values.size) + _SUM_ROUNDINGS
    error = left.error + right.error + units * float(np.finfo(np.float64).eps)
    return _Masses(left.first + right.first + first, kept, lost, error)


def _merged_pair(mass: _Masses, q_mass: _Masses, infinite: float, infinite_q: float) -> SmoothPair:
    """Return the pair of merged outcomes; P-mass is rounded down, and Q keeps its total."""
    first = max(mass.first, q_mass.first)
    last = min(mass.first + mass.values.size, q_mass.first + q_mass.values.size)
    p = mass.values[first - mass.first : last - mass.first] * (1 - mass.error)
    q = q_mass.values[first - q_mass.first : last - q_mass.first]
    keep = (p > _LEAST_BAR) & (q > _LEAST_BAR)
    return SmoothPair(
        tuple(np.where(keep, p, 0.0).tolist()),
        tuple(np.where(keep, q, 0.0).tolist()),
        infinite,
        max(1 - float(q[keep].sum()), infinite_q, 0.0),
    )


def _dominating_pair(losses: Vector, mass: _Masses, infinite: float, inside: Pair) -> EnclosedPair:
    """Return the pair of the raised losses; masses are rounded up, and Q is filled up to one."""
    keep = mass.values > 0
    log_masses = np.log(mass.values[keep]) + mass.error
    absent = 1 - float(np.exp(log_masses - losses[keep]).sum())
    return EnclosedPair(
        tuple(losses[keep].tolist()),
        tuple(log_masses.tolist()),
        infinite + mass.lost,
        max(absent, 0.0) + mass.error,
        inside=inside,
    )
