"""One call that releases several statistics of a table, with one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import Adjacency, Ledger, Promise, charge
from taut.errors import AdjacencyMismatch
from taut.noise import NoiseMechanism, RandomSource, default_generator
from taut.statistics._mechanisms.quantile_tree import QuantileTree
from taut.statistics._mechanisms.sorted_points import Points, SortedPoints
from taut.statistics._releases.coordinates import exact_sums, queries_of
from taut.statistics._releases.counted_points import MOST_NEAR, CountedPoints
from taut.statistics._releases.descriptions import (
    CellCounts,
    LinearStatistic,
    Quantiles,
    Statistic,
)
from taut.statistics._releases.estimates import Estimate, Released
from taut.statistics._releases.evaluation import (
    NoisySums,
    counts_estimate,
    groups_estimate,
    linear_estimate,
    quantiles_estimate,
)
from taut.statistics._releases.groups import GroupStatistic
from taut.statistics._releases.parts import (
    CountsPart,
    GroupsPart,
    NoisyPart,
    Part,
    QuantilesPart,
    SumsPart,
    checked_statistics,
    parts_of,
)
from taut.statistics._releases.planning import design_for
from taut.statistics._tables.clipped_column import ClippedColumn
from taut.statistics._tables.queries import Counts, Query, Sums
from taut.statistics._tables.scan import Answer
from taut.statistics._tables.table import (
    Table,
    check_queries,
    doubles,
    exact_answers,
    is_beyond_memory,
)

__all__ = ["check_columns", "release"]


def release(
    data: Any,
    statistics: Sequence[Statistic],
    *,
    epsilon: float,
    delta: float = 0.0,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    records: int | None = None,
    ledger: Ledger | None = None,
    generator: RandomSource | None = None,
) -> Released:
    """Release several statistics of a table, with the budget shared so that errors are least.

    Counts, means, totals, variances and covariances get the noise of one joint design for the sums
    that they need, each once; histograms get whole noise or join the design; quantiles are drawn
    by the exponential mechanism. The shares follow from a formula that looks at no data
    (docs/theory/quantiles.md), and the result prints them.

    Args:
        data: whatever `Table.open` takes: columns by name, or a data frame.
        statistics: what to release: `Count`, `Mean`, `Total`, `Variance`, `Covariance`,
            `CellCounts`, `Quantiles`.
        epsilon: epsilon of the promise for all of them together.
        delta: probability delta of the promise; with 0 the promise is pure.
        adjacency: ``"add_remove"``, which hides whether a record is there, or ``"replace"``, which
            hides what it says and takes the number of records as public.
        records: the number of records, for ``"replace"`` alone: it is used, and published.
        ledger: who keeps the budget, such as a `PrivacyFilter`; it is charged first.
        generator: source of the noise, by default the secure generator.

    **Guarantee**: `Released.loss`, whose certified epsilon at ``delta`` is at most ``epsilon``, for
    tables that differ in one record. Every record counts by its own clipped integers, whatever it
    holds; sums are exact, noise is exact on a public grid, and no message depends on the data but
    for the number of records where that is public.

    Raises:
        ValueError: for unknown columns or those of another type, and parameters out of range.
        AdjacencyMismatch: for another relation.
        BudgetExceeded: if the ledger refuses; nothing is released then.

    Example:
        >>> from taut.statistics import Mean, Quantiles, release
        >>> table = {"age": [31.0, 64.0, 45.0] * 1000}
        >>> wanted = [Mean("age", (18, 90)), Quantiles("age", [0.5], (18, 90))]
        >>> found = release(table, wanted, epsilon=1.0)
        >>> list(found), found.loss.epsilon(delta=0) <= 1.0
        (['mean of age', 'quantiles of age'], True)
    """
    wanted = checked_statistics(statistics)
    relation, public = _relation(adjacency, records)
    epsilon, delta = validate.positive(epsilon=epsilon), validate.below_one(delta=delta)
    table = Table.open(data)
    parts = parts_of(wanted, relation)
    if not parts:  # a count that is public
        raise ValueError("statistics must hold more than a count, which is public for 'replace'")
    exact = _Exact(table, parts)  # refuses what the table does not have
    design = design_for(parts, epsilon, delta)
    source = default_generator() if generator is None else generator
    if not isinstance(source, RandomSource):
        raise validate.WrongType(
            f"generator must be a RandomSource, got {validate.told(generator)}"
        )
    if ledger is not None and public is not None:
        exact.check(public)  # so that a wrong number, which tells nothing, costs nothing
    charge(ledger, design.loss)
    exact.read(public, design.trees)
    promise = Promise(design.loss, delta, is_secure=source.secure)
    drawn = _Drawn()
    for group, mechanism in zip(design.groups, design.drawn, strict=True):
        drawn.add(group, mechanism, exact, source)
    sums = _sums_of(drawn, public)
    estimates = tuple(_estimate(one, drawn, sums, public, promise) for one in wanted)
    return Released(estimates, promise, design.shares, design.rule)


def check_columns(data: Any, statistics: Sequence[Statistic]) -> None:
    """Refuse a table that lacks a column of a statistic, or has one of another type.

    Args:
        data: whatever `Table.open` takes.
        statistics: what will be released.

    **Guarantee**: no record is read.

    Raises:
        ValueError: naming the column, and what it is taken for.

    Example:
        >>> from taut.statistics import Mean, check_columns
        >>> check_columns({"agee": [31.0]}, [Mean("age", (18, 90))])
        Traceback (most recent call last):
        ValueError: the table has no column 'age'; did you mean 'agee'?
    """
    _Exact(Table.open(data), parts_of(checked_statistics(statistics), Adjacency.ADD_REMOVE))


class _Exact:
    """The exact values of all parts: secret, and held nowhere else."""

    def __init__(self, table: Table, parts: Sequence[Part]) -> None:
        self._table = table
        self._sums = next((part for part in parts if isinstance(part, SumsPart)), None)
        self._counts = [part for part in parts if isinstance(part, CountsPart)]
        self._ranked = [part for part in parts if isinstance(part, QuantilesPart)]
        self._queries: list[Query] = queries_of(self._sums.coordinates if self._sums else ())
        self._sum_queries = len(self._queries)
        self._queries += [Counts(part.statistic.columns) for part in self._counts]
        self._groups = [part for part in parts if isinstance(part, GroupsPart)]
        for one in self._groups:
            cells = one.sums.cells
            self._queries += [Counts(cells), Sums((one.sums.column,), cells)]
        wanted = [part.statistic for part in self._ranked]
        sorted_ones = tuple(ClippedColumn(one.column, *one.bounds) for one in wanted)
        check_queries(table, [*self._queries, Sums(sorted_ones)])

    def check(self, public: int) -> None:
        """Compare the number of records, which is public, and read nothing else."""
        _check_number(exact_answers(self._table, [Counts()])[0], public)

    def read(self, public: int | None, trees: Mapping[QuantilesPart, QuantileTree]) -> None:
        """Go over the table, and compare the number of records if it is public.

        Args:
            public: number of records, None if it is secret.
            trees: the mechanism of every part with quantiles: whether a column longer than memory
                can be counted is up to them.
        """
        counted = {
            part: CountedPoints(part.statistic.column, part.statistic.grid, self._ask)
            for part in self._ranked
            if is_beyond_memory(self._table) and trees[part].most_near <= MOST_NEAR
        }
        first = [points.first_query for points in counted.values()]
        answers = exact_answers(self._table, [*self._queries, *first])
        if public is not None:
            _check_number(answers[0], public)
        coordinates = self._sums.coordinates if self._sums else ()
        self._integers = exact_sums(coordinates, answers[: self._sum_queries])
        left = iter(answers[self._sum_queries :])
        self._cells = {part: next(left) for part in self._counts}
        self._tables = {part: (next(left), next(left)) for part in self._groups}
        for points in counted.values():
            points.take(next(left))
        names = dict.fromkeys(p.statistic.column for p in self._ranked if p not in counted)
        self._counted = counted
        self._values = {name: doubles(self._table, name) for name in names}

    def integers(self, part: NoisyPart) -> tuple[list[int], list[float]]:
        """Return the integers of a part, and their units."""
        if isinstance(part, SumsPart):
            return self._integers, [one.unit for one in part.coordinates]
        if isinstance(part, GroupsPart):
            tables = part.sums.integers(*self._tables[part])
            return tables, [part.sums.unit] * len(tables)
        assert isinstance(part, CountsPart)
        cells = [int(count) for count in self._cells[part].ravel()]
        return cells, [1.0] * len(cells)

    def points(self, part: QuantilesPart) -> Points:
        """Return the points of a part on its grid."""
        if part in self._counted:
            return self._counted[part]
        return SortedPoints(part.statistic.grid.points(self._values[part.statistic.column]))

    def _ask(self, query: Query) -> Answer:
        (answer,) = exact_answers(self._table, [query])
        return answer


def _check_number(found: Answer, public: int) -> None:
    if int(found[()]) != public:
        raise ValueError(
            f"records must be the number of records of the table, which is public for 'replace', "
            f"got records={public!r} for another number"
        )


class _Drawn:
    """What mechanisms have released: no data any more."""

    def __init__(self) -> None:
        self.noisy: dict[Part, tuple[Vector, Vector, NoiseMechanism]] = {}
        self.places: dict[Part, tuple[tuple[int, ...], QuantileTree]] = {}

    def add(
        self,
        group: Sequence[Part],
        mechanism: NoiseMechanism | QuantileTree,
        exact: _Exact,
        source: RandomSource,
    ) -> None:
        """Release a group of parts."""
        if isinstance(mechanism, QuantileTree):
            (part,) = group
            assert isinstance(part, QuantilesPart)
            grid = part.statistic.grid
            self.places[part] = (mechanism.places(exact.points(part), grid, source), mechanism)
            return
        given = [exact.integers(part) for part in group if isinstance(part, NoisyPart)]
        integers = [integer for own, _ in given for integer in own]
        units = [unit for _, own in given for unit in own]
        values = mechanism.release_integers(integers, units, source)
        deviations = np.sqrt(mechanism.coordinate_errors())
        ends = np.cumsum([len(own) for own, _ in given])[:-1]
        pieces = zip(np.split(values, ends), np.split(deviations, ends), strict=True)
        for part, (one, deviation) in zip(group, pieces, strict=True):
            self.noisy[part] = (one, deviation, mechanism)


def _estimate(
    statistic: Statistic,
    drawn: _Drawn,
    sums: NoisySums | None,
    public: int | None,
    promise: Promise,
) -> Estimate:
    """Return one statistic of what was released."""
    if isinstance(statistic, LinearStatistic):
        assert sums is not None
        return linear_estimate(statistic, sums, promise)
    for part, (values, deviations, mechanism) in drawn.noisy.items():
        if isinstance(part, CountsPart) and part.statistic == statistic:
            assert isinstance(statistic, CellCounts)
            return counts_estimate(statistic, values, deviations, mechanism, promise)
        if isinstance(part, GroupsPart) and statistic in part.statistics:
            assert isinstance(statistic, GroupStatistic | CellCounts)
            return groups_estimate(statistic, part.sums, values, deviations, mechanism, promise)
    assert isinstance(statistic, Quantiles)
    released = public if sums is None else sums.moments(sums.values).records
    for part, (places, tree) in drawn.places.items():
        if isinstance(part, QuantilesPart) and part.statistic == statistic:
            return quantiles_estimate(statistic, places, tree, released, promise)
    raise AssertionError("every statistic belongs to a part")


def _sums_of(drawn: _Drawn, public: int | None) -> NoisySums | None:
    for part, (values, deviations, mechanism) in drawn.noisy.items():
        if isinstance(part, SumsPart):
            return NoisySums(part.coordinates, values, deviations, public, mechanism)
    return None


def _relation(adjacency: Adjacency | str, records: int | None) -> tuple[Adjacency, int | None]:
    """Return the relation, and the number of records where it is public."""
    relation = Adjacency(adjacency)
    if relation is Adjacency.REPLACE:
        if records is None:
            raise ValueError(
                "records must be given for adjacency='replace', where the number of records is "
                "public: it is used as the divisor of means; 'add_remove' hides it"
            )
        return relation, validate.integer(records=records)
    if relation is not Adjacency.ADD_REMOVE:
        raise AdjacencyMismatch(
            f"adjacency must be 'add_remove' or 'replace', got {str(relation)!r}"
        )
    if records is not None:
        raise ValueError(
            "records must be left out for adjacency='add_remove', which hides the number of "
            "records; a Count releases it"
        )
    return relation, None
