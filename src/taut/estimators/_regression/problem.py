"""A regression as methods see it: public facts, and private rows in public units.

In these units features have an l2 norm of at most 1 and targets lie in [-1, 1], so that a method
needs no bounds of its own. Rows come in blocks, never as a copy of the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from taut._base import validate
from taut._base.arrays import Matrix
from taut.accounting import Adjacency

__all__ = ["Problem", "Setting"]

_LOOSE = 1 + 1e-9  # times what bounds of columns allow: a norm that is no closer says nothing more


@dataclass(frozen=True)
class Setting:
    """What everybody may know about a regression before anything is released.

    Args:
        features: number of columns.
        intercept: whether blocks have a column of ones behind the features.
        adjacency: neighbouring relation.
        records: number of records where it is public, under replace-one; None otherwise.
        penalties: weights of a ridge penalty that was asked for, one per feature and in these
            units; empty for none. The column of ones has none.
        public: public records as a block, see `Problem.blocks`; None for none.
        reach: bound on the size of every entry of features.
    """

    features: int
    intercept: bool
    adjacency: Adjacency
    records: int | None = None
    penalties: tuple[float, ...] = ()
    public: Matrix | None = field(default=None, repr=False, compare=False)
    reach: float = 1.0

    @property
    def has_norm(self) -> bool:
        """Whether the norm of features is bounded more closely than that of their entries."""
        return self.reach * math.sqrt(self.features) > _LOOSE

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.positive_integer(features=self.features)
        if (self.records is not None) != (self.adjacency is Adjacency.REPLACE):
            raise ValueError("records must be given under replace-one, and under it alone")

    @property
    def columns(self) -> int:
        """Number of coefficients, that of the column of ones included."""
        return self.features + self.intercept


@dataclass(frozen=True, eq=False)
class Problem:
    """Private rows of a regression, in public units.

    Args:
        setting: what is public about them.
        source: function that yields all rows, in blocks, each time it is called.
        rows: number of rows, private unless `setting` says it.
    """

    setting: Setting
    source: Callable[[], Iterator[Matrix]] = field(repr=False)
    rows: int = field(repr=False)

    def blocks(self) -> Iterator[Matrix]:
        """Yield private tables with columns: features, a one if there is an intercept, the target.

        Tables are new ones, for the caller to change, with columns contiguous in memory.

        **Guarantee**: what a record contributes depends on it alone: features of l2 norm at most 1
        up to rounding (methods clip again, or allow for it), targets in [-1, 1], and a row of
        zeros, the one included, for a record with NaN or infinity.
        """
        return self.source()
