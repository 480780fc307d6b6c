"""Binary trees: every node is the sum of the inputs below it, with noise of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut._base.validate import PositiveInteger
from taut.matrix._encoders.dense import DenseEncoder
from taut.matrix._encoders.encoder import Encoder, Indices, NoiseStream
from taut.matrix._encoders.streams import TreeStream
from taut.matrix._workloads import refuse_dense

__all__ = ["TreeEncoder"]

_DECODERS = ("plain", "online")


@dataclass(frozen=True)
class TreeEncoder(Encoder):
    """A forest of complete binary trees over the steps, the classic of continual release.

    A node is released when its last step has come; nodes that never complete are left out. A prefix
    is the sum of a node per binary digit.

    Attributes:
        steps: number of steps.
        levels: levels of each tree, so that it has 2^(levels - 1) leaves and a new one begins after
            as many steps; None for a single tree.
        decoder: "plain" takes nodes as they are (Dwork, Naor, Pitassi and Rothblum 2010; Chan, Shi
            and Song 2011), "online" takes weighted means of nodes and of the sums of their
            children, with the least variance that completed subtrees allow (Honaker 2015;
            Kairouz et al. 2021). For the estimate from *all* earlier nodes see `full_honaker`.

    Example:
        >>> from taut.matrix import TreeEncoder
        >>> TreeEncoder(4).matrix().tolist()[2]  # the sum of steps 0 and 1
        [1.0, 1.0, 0.0, 0.0]
    """

    steps: PositiveInteger
    levels: PositiveInteger | None = None
    decoder: str = "online"

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.fields(self)
        if self.decoder not in _DECODERS:
            raise ValueError(
                f"decoder must be 'plain' or 'online', got decoder={self.decoder!r}; for "
                "Honaker's full estimate call full_honaker()"
            )

    @property
    def height(self) -> int:
        """Levels of a tree, leaves included."""
        needed = (self.steps - 1).bit_length() + 1
        return needed if self.levels is None else min(self.levels, needed)

    @property
    def leaves(self) -> int:
        """Leaves of a tree."""
        return 1 << (self.height - 1)

    @cached_property
    def rows(self) -> int:
        """How many nodes are complete."""
        return sum(self.steps >> level for level in range(self.height))

    @property
    def reach(self) -> int:
        """The leaves of a tree: further apart, steps share no node."""
        return min(self.leaves, self.steps)

    @property
    def non_negative(self) -> bool:
        """Entries are zero and one."""
        return True

    def columns(self, at: Indices) -> Matrix:
        """Return which nodes are above a step, in the order of their release."""
        steps = np.asarray(at, dtype=np.int64)
        found = np.zeros((self.rows, steps.size))
        for level, _, last, complete in self._nodes(steps):
            # Released before: every node whose last leaf is not later, and of those that end with
            # this leaf the smaller ones.
            place = self._released_before(last) + level
            found[place[complete], np.flatnonzero(complete)] = 1.0
        return found

    def _nodes(self, steps: Indices) -> Iterator[tuple[int, Indices, Indices, NDArray[np.bool_]]]:
        """Yield by level the nodes above the steps, their last leaves and if they are complete."""
        for level in range(self.height):
            node: Indices = steps >> level
            last: Indices = ((node + 1) << level) - 1
            yield level, node, last, last < self.steps

    def _released_before(self, last: Indices) -> Indices:
        """Return how many nodes are complete before a step is."""
        counts: Indices = sum((last >> level for level in range(self.height)), np.zeros_like(last))
        return counts

    def gram(self, at: Indices) -> Matrix:
        """Return how many complete nodes two steps share."""
        steps = np.asarray(at, dtype=np.int64)
        shared = np.zeros((steps.size, steps.size))
        for _, node, _, complete in self._nodes(steps):
            shared += (node[:, None] == node[None, :]) & complete[:, None]
        return shared

    def column_norms(self) -> Vector:
        """Return roots of the numbers of complete nodes above every step."""
        above = np.zeros(self.steps)
        for *_, complete in self._nodes(np.arange(self.steps)):
            above += complete
        norms: Vector = np.sqrt(above)
        return norms

    def stream(self) -> NoiseStream:
        """Return sums over complete subtrees."""
        return TreeStream([share for share, _ in self._estimates()])

    def prefix_variances(self) -> Vector:
        """Return the variance of every decoded prefix sum, for noise of unit variance."""
        ends = np.arange(1, self.steps + 1)
        variances = [variance for _, variance in self._estimates()]
        total = (ends >> (self.height - 1)) * variances[-1]
        for level, variance in enumerate(variances[:-1]):
            total = total + ((ends >> level) & 1) * variance
        return np.asarray(total, dtype=np.float64)

    def _estimates(self) -> list[tuple[float, float]]:
        """Return, level by level, the weight of a node's own noise, and its estimate's variance."""
        found = [(1.0, 1.0)]
        for _ in range(1, self.height):
            children = 2 * found[-1][1]
            share = children / (1 + children) if self.decoder == "online" else 1.0
            found.append((share, share**2 + (1 - share) ** 2 * children))
        return found

    def full_honaker(self) -> DenseEncoder:
        """Return the lower-triangular encoder with the same inner products of columns.

        It is as private as the tree, since normal noise has no direction, and its errors are those
        of the least-squares estimate from all nodes that are complete at the end. Being
        lower-triangular it serves inputs that depend on earlier outputs, for which the
        least-squares estimate itself would have to know the future (docs/theory/correlated.md).

        Raises:
            ValueError: if the matrix would be too large.
        """
        refuse_dense(self.steps)
        return DenseEncoder.from_gram(self.gram(np.arange(self.steps)))
