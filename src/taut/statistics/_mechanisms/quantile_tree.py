"""Several quantiles at once: one after the other, or as a tree that splits the data.

In a tree the middle quantile is released first, and those below it look at the points below it
alone (Kaplan, Schnapp and Stemmer 2022). One record is in one node of every level, so that a
level costs what one quantile does. Errors are handed down, which the plan takes into account.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taut.accounting import Adjacency, PrivacyLoss, exponential
from taut.noise import RandomSource
from taut.statistics._mechanisms.fine_points import FineGrid
from taut.statistics._mechanisms.rank_choice import RankChoice
from taut.statistics._mechanisms.rank_weights import LEAST_RATE
from taut.statistics._mechanisms.sorted_points import Inside, Points

__all__ = ["QuantileTree", "quantile_tree"]

_MOST_DENOMINATOR = 1000  # of a share: a rank of 10^6 records is right to a few, far below noise
_FINE_DENOMINATOR = 1_000_000  # of a share within a node


@dataclass(frozen=True)
class _Node:
    """One quantile: its place, those it lies between, and where in its data it is wanted.

    Attributes:
        index: place among the shares.
        below: place of the released share that bounds it from below, -1 if none does.
        above: place of the one that bounds it from above, the number of shares if none does.
        share: the wanted share of the points between the two.
        level: how many were released before it.
    """

    index: int
    below: int
    above: int
    share: Fraction
    level: int


@dataclass(frozen=True)
class QuantileTree:
    """Quantiles of points on a grid by exponential mechanisms, with one epsilon for every level.

    Attributes:
        shares: shares of the records that lie below, increasing.
        epsilon: width of the range of log-likelihood ratios of one level.
        adjacency: neighbouring relation.
        is_tree: whether data are split; otherwise every level is one quantile of all of them.

    **Guarantee**: `loss`. For add/remove, a record is in one node of each level, where it moves
    b r - a n by at most max(a, b - a), so that the level is bounded range with ``epsilon`` over all
    it releases; replacing a record changes two nodes like that, or one by at most b. Weights
    are exact (docs/theory/quantiles.md).
    """

    shares: tuple[Fraction, ...]
    epsilon: float
    adjacency: Adjacency
    is_tree: bool

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of all quantiles together."""
        return self.levels * exponential(self.epsilon, adjacency=self.adjacency)

    @property
    def levels(self) -> int:
        """The number of releases that one record takes part in."""
        return 1 + max(node.level for node in self._nodes)

    @cached_property
    def rank_errors(self) -> tuple[float, ...]:
        """The standard deviation of every quantile's rank, in records, if values lie dense."""
        return tuple(math.sqrt(variance) for variance in self._variances)

    @property
    def least_rate(self) -> Fraction:
        """How fast weights fall where they fall slowest."""
        return min(self._rate(node) for node in self._nodes)

    @property
    def most_near(self) -> int:
        """The number of points that the draws of one stage look at, at most: it is public."""
        return max(self._most_near(stage) for stage in self._stages)

    def places(self, points: Points, grid: FineGrid, source: RandomSource) -> tuple[int, ...]:
        """Return one candidate of the grid for every share, in order.

        Args:
            points: points of the records.
            grid: the grid that they are on.
            source: where bits come from.
        """
        found = {-1: 0, len(self.shares): grid.places}
        for stage in self._stages:
            spans = [self._within(found, node, grid) for node in stage]
            ends = points.ranks([end for span in spans for end in span]).reshape(-1, 2).tolist()
            # Nothing lies between two that were released at one place.
            near = [
                (0, 0) if high <= low else self._choice(node).near(last - first)
                for node, (low, high), (first, last) in zip(stage, spans, ends, strict=True)
            ]
            ranks = [(a + end[0], b + end[0]) for (a, b), end in zip(near, ends, strict=True)]
            known = points.between(ranks, self._most_near(stage))
            for node, span, end, (rank, _), some in zip(
                stage, spans, ends, near, known, strict=True
            ):
                inside = Inside(end[1] - end[0], rank, some, _ranks_from(points, end[0]))
                found[node.index] = self._drawn(node, span, inside, source, grid)
        return tuple(sorted(found[i] for i in range(len(self.shares))))

    def _drawn(
        self,
        node: _Node,
        span: tuple[int, int],
        inside: Inside,
        source: RandomSource,
        grid: FineGrid,
    ) -> int:
        low, high = span
        if high <= low:
            return min(low, grid.places - 1)
        return self._choice(node).draw(inside, low, high - 1, source)

    @cached_property
    def _stages(self) -> list[list[_Node]]:
        """Nodes that depend on those of earlier stages alone: one level of a tree, or all."""
        if not self.is_tree:
            return [list(self._nodes)]
        levels = range(self.levels)
        return [[node for node in self._nodes if node.level == level] for level in levels]

    def _most_near(self, stage: Sequence[_Node]) -> int:
        return sum(self._choice(node).most_near for node in stage)

    @cached_property
    def _nodes(self) -> tuple[_Node, ...]:
        return _nodes_of(self.shares, is_tree=self.is_tree)

    @cached_property
    def _variances(self) -> list[float]:
        """Variances of ranks: their own, and what they inherit from those they lie between."""
        found = {-1: 0.0, len(self.shares): 0.0}
        for node in self._nodes:
            slope = float(self._rate(node)) * node.share.denominator
            own = 2 / slope**2
            if self.is_tree:
                share = float(node.share)
                own += (1 - share) ** 2 * found[node.below] + share**2 * found[node.above]
            found[node.index] = own
        return [found[i] for i in range(len(self.shares))]

    def _within(self, found: dict[int, int], node: _Node, grid: FineGrid) -> tuple[int, int]:
        return (found[node.below], found[node.above]) if self.is_tree else (0, grid.places)

    def _choice(self, node: _Node) -> RankChoice:
        loss = exponential(self.epsilon, adjacency=self.adjacency)
        change = 1.0 if self.adjacency is Adjacency.REPLACE else float(_largest_part(node.share))
        return RankChoice(node.share, self._rate(node), change, self.adjacency, loss)

    def _rate(self, node: _Node) -> Fraction:
        """Return by how much logarithms of weights fall per unit of b r - a n."""
        largest = _largest_part(node.share) * node.share.denominator
        width: int | Fraction = 2 * largest
        if self.adjacency is Adjacency.REPLACE:
            sees_all = node.level == 0 or not self.is_tree
            width = 2 * node.share.denominator if sees_all else 4 * largest
        return Fraction(self.epsilon) / width


def quantile_tree(
    shares: Sequence[Fraction], epsilon: float, adjacency: Adjacency, *, concentrated: bool
) -> QuantileTree:
    """Return the better of a tree and of one quantile after the other, by their rank errors.

    Args:
        shares: shares of the records that lie below, increasing.
        epsilon: budget of all levels together.
        adjacency: neighbouring relation.
        concentrated: whether squares of epsilons add up to that of the budget, as they do for small
            ones at a delta; otherwise epsilons do.

    Raises:
        ValueError: if the budget is too small for anything but noise.
    """
    found = []
    for is_tree in (False, True):
        levels = 1 + max(node.level for node in _nodes_of(tuple(shares), is_tree=is_tree))
        each = epsilon / (math.sqrt(levels) if concentrated else levels)
        found.append(QuantileTree(tuple(shares), each, adjacency, is_tree))
    drawn = [tree for tree in found if tree.least_rate >= LEAST_RATE]
    if not drawn:  # refused here, before anybody pays
        raise ValueError(
            f"epsilon must be larger for quantiles, got a share of {epsilon:.3g} for {len(shares)} "
            "of them: all values would be as likely; take a larger epsilon or weight"
        )
    return min(drawn, key=lambda tree: sum(error**2 for error in tree.rank_errors))


def _ranks_from(points: Points, first: int) -> Callable[[Sequence[int]], NDArray[np.int64]]:
    """Return the function that counts the points below places, but for those before one."""
    return lambda places: points.ranks(places) - first


def _nodes_of(shares: tuple[Fraction, ...], *, is_tree: bool) -> tuple[_Node, ...]:
    """Return the nodes, parents first."""
    if not is_tree:
        return tuple(_Node(i, -1, len(shares), share, i) for i, share in enumerate(shares))
    nodes: list[_Node] = []
    level = 0
    spans = [(-1, len(shares))]
    ends = [Fraction(0), *shares, Fraction(1)]
    while spans:
        below = [span for span in spans if span[1] - span[0] > 1]
        spans = []
        for low, high in below:
            middle = (low + high) // 2
            bottom, width = ends[low + 1], ends[high + 1] - ends[low + 1]
            share = ((ends[middle + 1] - bottom) / width).limit_denominator(_FINE_DENOMINATOR)
            nodes.append(_Node(middle, low, high, share, level))
            spans += [(low, middle), (middle, high)]
        level += 1
    return tuple(nodes)


def _largest_part(share: Fraction) -> Fraction:
    """Return by how much of a record one that is added moves r - share n at most."""
    return max(share, 1 - share)
