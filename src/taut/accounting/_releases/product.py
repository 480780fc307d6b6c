"""Several releases from one sample, seen as one release: its pair is the product of theirs.

Amplification acts on the whole product, so the product is needed as a pair in its own right. It is
enclosed by two pairs on a lattice: one that dominates it (every loss split between the ends of its
cell), and one that post-processing makes of what is reached (outcomes merged node by node). Masses
are non-negative and are convolved term by term, so tails keep their relative accuracy at any depth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._engines.saddle_point import Cumulants
from taut.accounting._pairs.blurred import SmoothPair
from taut.accounting._pairs.discretisation import ALIGNMENT, Placement, place, upper_masses
from taut.accounting._pairs.finite import FinitePair, any_of
from taut.accounting._pairs.pair import Pair

__all__ = ["EnclosedPair", "product_pair"]

_PRODUCT_TAIL = 1e-80  # mass cut from every loss, and counted as infinite: below any delta in use
# In a deviation of the sum, for one copy. Splitting cells adds 1 / (6 96^2) = 2e-5 of the variance,
# for one copy as for n of them, with sqrt(n) times as many nodes.
_NODES_PER_DEVIATION = 96
_MOST_PRODUCT_NODES = 2**14  # of the sum: convolved term by term, they take seconds
_MOST_SINGLE_NODES = 2**15  # of one loss, likewise; a lattice is at most halved to meet its atoms
_MOST_PRODUCTS = 2**31  # of masses, for one sum term by term: half a second
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
    infinite = any_of([(pair.mass_inf + _PRODUCT_TAIL, n) for pair, n in terms])
    if infinite >= 1:
        return _betrayed(terms)
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
    from_above: bool = False
    """Whether masses may be raised, by no more than the noise of a transform, to save time."""

    def convolved(self, other: _Masses) -> Vector:
        """Return the masses of the sum: term by term, or by a transform with its noise added."""
        left, right = self.values, other.values
        if not self.from_above or left.size * right.size <= _MOST_PRODUCTS:
            return np.convolve(left, right)
        size = next_fast_len(left.size + right.size - 1, real=True)
        values = irfft(rfft(left, size) * rfft(right, size), size)[: left.size + right.size - 1]
        # Every coefficient of a transform is off by a few roundings for each of its passes.
        passes = 4 * math.log2(size) * RELATIVE_ERROR
        noise = passes * float(np.linalg.norm(left)) * float(np.linalg.norm(right))
        raised: Vector = np.maximum(values, 0.0) + noise
        return raised


def _placements(terms: Sequence[tuple[Pair, int]]) -> list[Placement]:
    """Return lattices of one common step, each through the atoms of its loss."""
    cumulants = Cumulants(terms, _PRODUCT_TAIL)
    count = sum(n for _, n in terms)
    spread = math.sqrt(max(cumulants.spread(0.0), 1e-300))
    single = [(high - low, n) for (low, high), n in ((_ends(pair), n) for pair, n in terms)]
    reach = math.fsum(n * width for width, n in single)
    step = max(
        spread / (_NODES_PER_DEVIATION * math.sqrt(count)),
        min(reach, 40 * spread) / _MOST_PRODUCT_NODES,
        max(width for width, _ in single) / _MOST_SINGLE_NODES,
    )
    found = [place(pair, step, _PRODUCT_TAIL) for pair, _ in terms]
    # A lattice through atoms that are closer than half a step would have too many nodes.
    common = min((at.step for at in found if at.step >= step / 2), default=step)
    return [Placement(common, at.offset) for at in found]


def _ends(pair: Pair) -> tuple[float, float]:
    """Return losses between which all P-mass lies but for the tail; P(L < -x) <= exp(-x)."""
    reach = pair.grid(_PRODUCT_TAIL, 2)
    return max(float(reach[0]), min(math.log(_PRODUCT_TAIL), float(reach[-1]))), float(reach[-1])


def _indices(pair: Pair, at: Placement) -> tuple[int, int]:
    """Return the first and the last node around a loss."""
    low, high = _ends(pair)
    first = math.floor((low - at.offset) / at.step - ALIGNMENT)
    return first, max(math.ceil((high - at.offset) / at.step + ALIGNMENT), first + 1)


def _above(pair: Pair, at: Placement) -> _Masses:
    """Return lattice masses that dominate; what lies above the grid is at most the tail."""
    first, last = _indices(pair, at)
    edges: Vector = at.offset + at.step * np.arange(float(first), last + 1)
    return _Masses(first, upper_masses(pair, edges, _PRODUCT_TAIL))


def _within(pair: Pair, at: Placement) -> tuple[_Masses, _Masses]:
    """Return P- and Q-masses of the outcomes whose loss is nearest to each node."""
    first, last = _indices(pair, at)
    edges: Vector = at.offset + at.step * (np.arange(float(first), last + 2) - 0.5)
    mass, q_mass, _, _ = pair.cells(edges)
    losses, masses, q_masses = pair.atoms(_PRODUCT_TAIL)
    cell = np.clip(np.searchsorted(edges, losses) - 1, 0, mass.size - 1)
    mass = mass + np.bincount(cell, masses, mass.size)
    q_mass = q_mass + np.bincount(cell, q_masses, mass.size)
    return _Masses(first, mass), _Masses(first, q_mass, from_above=True)


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
    values = left.convolved(right)
    beyond = np.cumsum(values[::-1])[::-1]
    last = int(np.searchsorted(-beyond, -_PRODUCT_TAIL))
    first = min(int(np.searchsorted(np.cumsum(values), _PRODUCT_TAIL)), values.size - 1)
    last = max(last, first + 1)
    kept = values[first:last].copy()
    kept[0] += values[:first].sum()
    lost = left.lost + right.lost + float(values[last:].sum())
    units = min(left.values.size, right.values.size) + _SUM_ROUNDINGS
    error = left.error + right.error + units * float(np.finfo(np.float64).eps)
    return replace(
        left, first=left.first + right.first + first, values=kept, lost=lost, error=error
    )


def _merged_pair(mass: _Masses, q_mass: _Masses, infinite: float, infinite_q: float) -> SmoothPair:
    """Return the pair of merged outcomes; P-mass is rounded down, and Q keeps its total."""
    first = max(mass.first, q_mass.first)
    last = min(mass.first + mass.values.size, q_mass.first + q_mass.values.size)
    last = max(last, first)  # no common node
    p = mass.values[first - mass.first : last - mass.first] * (1 - mass.error)
    q = q_mass.values[first - q_mass.first : last - q_mass.first]
    keep = (p > _LEAST_BAR) & (q > _LEAST_BAR)
    if not keep.any():
        return _told_apart(mass, q_mass, infinite)
    return SmoothPair(
        tuple(np.where(keep, p, 0.0).tolist()),
        tuple(np.where(keep, q, 0.0).tolist()),
        infinite,
        max(1 - float(q[keep].sum()), infinite_q, 0.0),
    )


def _told_apart(mass: _Masses, q_mass: _Masses, infinite: float) -> SmoothPair:
    """Return two outcomes that P and Q hardly share: whether the loss reaches P's lowest node.

    Q has no more above than was cut; P has what it has, for what was cut below is far less than
    its rounding error.
    """
    share = float(mass.values.sum()) * (1 - mass.error)
    if mass.first < q_mass.first + q_mass.values.size:  # they do share nodes: all becomes one
        return SmoothPair((share,), (1.0,), infinite)
    rare = 2 * (q_mass.lost + _PRODUCT_TAIL)
    # An empty bar in between keeps the two from being blurred into each other.
    return SmoothPair((rare, 0.0, share), (1 - rare, 0.0, rare), infinite)


def _betrayed(terms: Sequence[tuple[Pair, int]]) -> EnclosedPair:
    """Return the pair of a product whose loss is infinite but for rounding.

    Some release reaches at least what it betrays, with all other outcomes merged into one.
    """
    found = any_of([(pair.reached.mass_inf, n) for pair, n in terms])
    found = min(found * (1 - _MASS_ERROR), 1 - _MASS_ERROR)
    rest = 1 - found
    inside = FinitePair((math.log(rest),), (math.log(rest),), found)
    return EnclosedPair((), (), 1.0, 1.0, inside=inside)


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
