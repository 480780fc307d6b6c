"""What shares a budget: all sums together, each histogram, the quantiles of each column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import Adjacency
from taut.noise import Box, Histogram, L1Ball, NoiseMechanism, SensitivitySet, Source, recommend
from taut.statistics._mechanisms.quantile_tree import QuantileTree, quantile_tree
from taut.statistics._releases.coordinates import Coordinate
from taut.statistics._releases.descriptions import (
    CellCounts,
    LinearStatistic,
    Quantiles,
    Statistic,
)
from taut.statistics._releases.groups import GroupStatistic, GroupSums

__all__ = [
    "CountsPart",
    "Drawn",
    "GroupsPart",
    "NoisyPart",
    "Part",
    "QuantilesPart",
    "SumsPart",
    "checked_statistics",
    "parts_of",
]

Drawn: TypeAlias = NoiseMechanism | QuantileTree
"""What a part is released by."""


class Part(ABC):
    """Statistics that one mechanism releases.

    Attributes:
        adjacency: neighbouring relation.
    """

    adjacency: Adjacency

    @property
    @abstractmethod
    def label(self) -> str:
        """What it is called beside its share of the budget."""

    @abstractmethod
    def pure(self, epsilon: float) -> Drawn:
        """Return the best mechanism with a pure promise."""

    @abstractmethod
    def error(self, drawn: Drawn) -> float:
        """Return the weighted squared error of a mechanism, in records."""


class NoisyPart(Part):
    """A part to whose exact value noise is added."""

    @property
    @abstractmethod
    def sensitivity(self) -> SensitivitySet:
        """What one record changes."""

    @property
    @abstractmethod
    def weights(self) -> Vector:
        """How much the variance of the noise counts in every coordinate."""

    def pure(self, epsilon: float) -> Drawn:
        """Return the mechanism of least error of all that fit the set."""
        return recommend(self.sensitivity, epsilon, weights=self.weights).best.mechanism

    def error(self, drawn: Drawn) -> float:
        """Return the sum of weighted variances."""
        assert isinstance(drawn, NoiseMechanism)
        return self.error_of(drawn.coordinate_errors())

    def error_of(self, variances: Vector) -> float:
        """Return the sum of weighted variances."""
        return float(np.dot(variances, self.weights))


@dataclass(frozen=True)
class SumsPart(NoisyPart):
    """A count, sums and products: one vector, of which one record can change all at once.

    Attributes:
        statistics: statistics that are computed from it.
        adjacency: neighbouring relation.
    """

    statistics: tuple[LinearStatistic, ...]
    adjacency: Adjacency

    @property
    def label(self) -> str:
        """What it is called beside its share of the budget."""
        return ", ".join(one.name for one in self.statistics)

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """The coordinates, each once; the count is public for replace-one, and left out."""
        return tuple(self._weighted)

    @property
    def sensitivity(self) -> SensitivitySet:
        """The box of all that a record adds; a record at the ends of all ranges is its corner."""
        if self.coordinates == (Coordinate(),):
            return Histogram(1, source=Source.CLIPPED)  # for which there is whole noise
        box = Box([one.width for one in self.coordinates], source=Source.CLIPPED)
        return box.differences() if self.adjacency is Adjacency.REPLACE else box

    @property
    def weights(self) -> Vector:
        """What the statistics ask for, added up."""
        return np.array(list(self._weighted.values()))

    @cached_property
    def _weighted(self) -> dict[Coordinate, float]:
        found: dict[Coordinate, float] = {}
        for statistic in self.statistics:
            for coordinate, weight in statistic.terms():
                if coordinate.columns or self.adjacency is not Adjacency.REPLACE:
                    found[coordinate] = found.get(coordinate, 0.0) + statistic.weight * weight
        return found


@dataclass(frozen=True)
class CountsPart(NoisyPart):
    """A histogram: a record is counted in one cell.

    Attributes:
        statistic: what is counted.
        adjacency: neighbouring relation.
    """

    statistic: CellCounts
    adjacency: Adjacency

    @property
    def label(self) -> str:
        """What it is called beside its share of the budget."""
        return self.statistic.name

    @property
    def sensitivity(self) -> SensitivitySet:
        """The set of a histogram."""
        one = Histogram(int(np.prod(self.statistic.shape)), source=Source.CLIPPED)
        return one.differences() if self.adjacency is Adjacency.REPLACE else one

    @property
    def weights(self) -> Vector:
        """All cells alike, and together as much as any other statistic."""
        cells = int(np.prod(self.statistic.shape))
        return np.full(cells, self.statistic.weight / cells)


@dataclass(frozen=True)
class GroupsPart(NoisyPart):
    """Counts and sums of one column in all groups: a record is in one of them.

    Attributes:
        statistics: statistics that are computed from it, counts of the same cells among them.
        adjacency: neighbouring relation.
    """

    statistics: tuple[GroupStatistic | CellCounts, ...]
    adjacency: Adjacency

    @property
    def sums(self) -> GroupSums:
        """What is released: counts and sums."""
        (found,) = {one.sums for one in self.statistics if isinstance(one, GroupStatistic)}
        return found

    @property
    def label(self) -> str:
        """What it is called beside its share of the budget."""
        return ", ".join(one.name for one in self.statistics)

    @property
    def sensitivity(self) -> SensitivitySet:
        """The l1 ball of what one record adds to the two sums of its group."""
        one = L1Ball(2 * self.sums.groups, self.sums.size, source=Source.CLIPPED)
        return one.differences() if self.adjacency is Adjacency.REPLACE else one

    @property
    def weights(self) -> Vector:
        """All groups alike, and together as much as any other statistic."""
        own = sum(
            one.weight * (one.noise_weight if isinstance(one, GroupStatistic) else 1.0)
            for one in self.statistics
        )
        groups = self.sums.groups
        return np.full(2 * groups, own / (groups * self.sums.size**2))


@dataclass(frozen=True)
class QuantilesPart(Part):
    """Quantiles of one column.

    Attributes:
        statistic: what is wanted.
        adjacency: neighbouring relation.
    """

    statistic: Quantiles
    adjacency: Adjacency

    @property
    def label(self) -> str:
        """What it is called beside its share of the budget."""
        return self.statistic.name

    def pure(self, epsilon: float) -> Drawn:
        """Return quantiles whose epsilons add up to the budget."""
        return self._tree(epsilon, concentrated=False)

    def concentrated(self, epsilon: float) -> QuantileTree:
        """Return quantiles whose squared epsilons add up to that of the budget."""
        return self._tree(epsilon, concentrated=True)

    def error(self, drawn: Drawn) -> float:
        """Return the mean of squared rank errors."""
        assert isinstance(drawn, QuantileTree)
        return self.statistic.weight * float(np.mean(np.square(drawn.rank_errors)))

    def _tree(self, epsilon: float, *, concentrated: bool) -> QuantileTree:
        shares = self.statistic.fractions
        return quantile_tree(shares, epsilon, self.adjacency, concentrated=concentrated)


def checked_statistics(statistics: Sequence[Statistic]) -> tuple[Statistic, ...]:
    """Return the statistics of a release; one alone may stand for a list of one.

    Raises:
        TypeError: if there are none, or other things among them.
        ValueError: if two have the same name.
    """
    given = statistics if isinstance(statistics, Iterable) else (statistics,)
    wanted = tuple(given)
    if not wanted or not all(isinstance(one, Statistic) for one in wanted):
        raise validate.WrongType(
            "statistics must be a list of some, such as [Count(), Mean('age', (18, 90))], "
            f"got {validate.told(statistics)}; the table comes first"
        )
    names = [one.name for one in wanted]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"statistics must have different names, got {twice!r} twice; give name=")
    return wanted


def parts_of(statistics: Sequence[Statistic], adjacency: Adjacency) -> tuple[Part, ...]:
    """Return the parts of a release: all sums, each table of groups, each of the others."""
    linear = tuple(one for one in statistics if isinstance(one, LinearStatistic))
    sums = SumsPart(linear, adjacency)
    tables = _tables_of(statistics)
    taken = {id(one) for table in tables for one in table}
    parts: Iterable[Part] = (
        CountsPart(one, adjacency) if isinstance(one, CellCounts) else QuantilesPart(one, adjacency)
        for one in statistics
        if isinstance(one, CellCounts | Quantiles) and id(one) not in taken
    )
    groups = (GroupsPart(table, adjacency) for table in tables)
    return (*((sums,) if sums.coordinates else ()), *groups, *parts)


def _tables_of(statistics: Sequence[Statistic]) -> list[tuple[GroupStatistic | CellCounts, ...]]:
    """Return statistics of the same groups and column together; with the first, their counts."""
    found: dict[GroupSums, list[GroupStatistic | CellCounts]] = {}
    for one in statistics:
        if isinstance(one, GroupStatistic):
            found.setdefault(one.sums, []).append(one)
    for one in statistics:
        same = (sums for sums in found if isinstance(one, CellCounts) and sums.cells == one.columns)
        first = next(same, None)
        if first is not None and isinstance(one, CellCounts):
            found[first].append(one)
    return [tuple(table) for table in found.values()]
