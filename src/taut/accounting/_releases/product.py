"""Several releases from one sample, seen as one release: its pair is the product of theirs.

Amplification acts on the whole product, so the product is needed as a pair in its own right. It is
enclosed by two pairs, from doubling in convex order: one that dominates it (every loss split
between the nodes beside it), and one that post-processing makes of what is reached (outcomes
merged node by node). Masses are non-negative and nothing cancels, so that tails keep their relative
accuracy at any depth, and the time grows with the logarithm of the counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taut._base.floats import RELATIVE_ERROR
from taut.accounting._adjacency import Half
from taut.accounting._engines.convex_order import ConvexOrder, OrderedSum
from taut.accounting._engines.half_sum import HalfSum
from taut.accounting._pairs.blurred import SmoothPair
from taut.accounting._pairs.discretisation import BeyondLattice
from taut.accounting._pairs.finite import FinitePair, any_of
from taut.accounting._pairs.pair import Pair

__all__ = ["EnclosedPair", "product_pair"]

_PRODUCT_TAIL = 1e-80  # mass cut from every loss, and counted as infinite: below any delta in use
# N of the nodes |i| <= N of a level. Neighbours are 2/N of their distance from the mean apart, and
# the gap of epsilon is some 20/N^2 of it: 2e-5, below a tolerance of 1e-3 also where a rare sample
# turns a gap of epsilon = 20 inside into as large a relative gap outside.
_PRODUCT_NODES = 1024
_LEAST_BAR = 1e-250  # P- or Q-mass of an outcome that is kept for lower bounds; ratios stay floats
_MASS_ERROR = 8 * RELATIVE_ERROR  # relative, of a mass of one copy: some evaluations and their sum


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
    # Directions differ in their pairs, which are given; the name of this one is of no account.
    order = ConvexOrder(HalfSum(Half.REMOVE, tuple(terms)), _PRODUCT_TAIL)
    try:
        whole = order.compose(_PRODUCT_NODES)
    except BeyondLattice:
        return _betrayed(terms)
    return _dominating_pair(whole, _merged_pair(whole, terms))


def _dominating_pair(whole: OrderedSum, inside: Pair) -> EnclosedPair:
    """Return the pair of the spread losses; masses are rounded up, and Q is filled up to one."""
    losses, masses = whole.spread
    slack = whole.upper.error + RELATIVE_ERROR
    losses = losses + whole.label_error * (np.abs(losses) + abs(whole.upper.centre))
    log_masses = np.log(masses) + slack
    absent = 1 - float(np.exp(log_masses - losses).sum())
    return EnclosedPair(
        tuple(losses.tolist()),
        tuple(log_masses.tolist()),
        min((whole.mass_inf.upper + whole.upper.lost) * (1 + RELATIVE_ERROR), 1.0),
        max(absent, 0.0) + slack,
        inside=inside,
    )


def _merged_pair(whole: OrderedSum, terms: Sequence[tuple[Pair, int]]) -> SmoothPair:
    """Return the pair of merged outcomes: P-mass is rounded down, Q-mass up, to a total of one."""
    nodes, masses, moments = whole.merged
    slack = whole.lower.error + RELATIVE_ERROR
    label = whole.label_error * (np.abs(nodes) + abs(whole.lower.centre))
    p = masses * (1 - slack)
    q = np.exp(np.minimum(np.log(moments) - nodes + label + slack, 1.0))
    q = np.maximum(q, _LEAST_BAR)
    keep = (p > _LEAST_BAR) & (q <= 1)
    absent = any_of([(pair.reached.mass_minus_inf, n) for pair, n in terms])
    return SmoothPair(
        tuple(p[keep].tolist()),
        tuple(q[keep].tolist()),
        whole.mass_inf.lower * (1 - RELATIVE_ERROR),
        max(1 - float(q[keep].sum()), absent, 0.0),
    )


def _betrayed(terms: Sequence[tuple[Pair, int]]) -> EnclosedPair:
    """Return the pair of a product whose loss is infinite but for rounding.

    Some release reaches at least what it betrays, with all other outcomes merged into one.
    """
    found = any_of([(pair.reached.mass_inf, n) for pair, n in terms])
    found = min(found * (1 - _MASS_ERROR), 1 - _MASS_ERROR)
    rest = 1 - found
    inside = FinitePair((math.log(rest),), (math.log(rest),), found)
    return EnclosedPair((), (), 1.0, 1.0, inside=inside)
