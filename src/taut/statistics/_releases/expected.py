"""What errors a release will have, before any data are touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import Adjacency, Promise
from taut.errors import AdjacencyMismatch
from taut.noise import NoiseMechanism
from taut.statistics._mechanisms.quantile_tree import QuantileTree
from taut.statistics._releases.coordinates import Coordinate
from taut.statistics._releases.descriptions import Quantiles, Statistic
from taut.statistics._releases.estimates import Estimate
from taut.statistics._releases.evaluation import (
    NoisySums,
    counts_estimate,
    groups_estimate,
    linear_estimate,
)
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

__all__ = ["Expected", "expected_errors"]

_MOST_SHOWN = 24  # numbers of one statistic, in a table for people


@dataclass(frozen=True, eq=False)
class Expected(Mapping[str, Vector]):
    """Standard errors of a release that was not made, by the names of its statistics.

    Attributes:
        records: the number of records that was assumed.
        errors: standard deviations of the noise, by name.
        labels: what the numbers of a statistic are called, by name.
        promise: what the release would promise.
        shares: share of the budget that every group of statistics has.
        rule: what is shared, and by which rule.
    """

    records: int
    errors: Mapping[str, Vector]
    labels: Mapping[str, tuple[str, ...]]
    promise: Promise
    shares: Mapping[str, float]
    rule: str

    def __getitem__(self, name: str) -> Vector:
        """Return the standard errors of a statistic."""
        return self.errors[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over names."""
        return iter(self.errors)

    def __len__(self) -> int:
        """Return the number of statistics."""
        return len(self.errors)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as data for JSON."""
        return {
            "records": self.records,
            "standard_errors": {name: errors.tolist() for name, errors in self.errors.items()},
            "shares": dict(self.shares),
            "rule": self.rule,
            "promise": self.promise.statement,
        }

    def __str__(self) -> str:
        """Return a table for people."""
        rows = [row for name in self.errors for row in self._rows(name)]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:{width}}  {error}" for name, error in rows]
        assumed = f"standard errors for {self.records} records; no data were read"
        return "\n".join([assumed, *lines, f"budget: {self.rule}", str(self.promise)])

    def _rows(self, name: str) -> Iterator[tuple[str, str]]:
        errors = self.errors[name].ravel()
        pairs = list(zip(self.labels[name], errors, strict=True))
        for label, error in pairs[:_MOST_SHOWN]:
            yield (f"{name}: {label}" if label else name), f"± {error:.2g}"
        if len(pairs) > _MOST_SHOWN:
            yield f"... {len(pairs) - _MOST_SHOWN} more", ""


def expected_errors(
    statistics: Sequence[Statistic],
    *,
    epsilon: float,
    delta: float = 0.0,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    records: int,
) -> Expected:
    """Return what errors `release` will have, without any data.

    Errors of counts, totals and histograms depend on the promise alone. Those of means, variances
    and covariances are for values around the middle of their ranges, equally many in all groups;
    those of quantiles for values that lie evenly in their range.

    Args:
        statistics: what would be released.
        epsilon: epsilon of the promise for all of them together.
        delta: probability delta of the promise; with 0 the promise is pure.
        adjacency: ``"add_remove"`` or ``"replace"``.
        records: the number of records that is assumed.

    **Guarantee**: no data are touched; `Expected.promise` is what the release will promise.

    Raises:
        ValueError: for parameters out of range, and two statistics of one name.
        TypeError: if there are no statistics.
        AdjacencyMismatch: for another relation.

    Example:
        >>> from taut.statistics import Mean, expected_errors
        >>> found = expected_errors([Mean("age", (18, 90))], epsilon=1.0, records=10_000)
        >>> print(f"{found['mean of age']:.3f}")
        0.007
    """
    whole = validate.positive_integer(records=records)
    relation = Adjacency(adjacency)
    if relation not in (Adjacency.ADD_REMOVE, Adjacency.REPLACE):  # which no release is made for
        raise AdjacencyMismatch(
            f"adjacency must be 'add_remove' or 'replace', got {str(relation)!r}"
        )
    wanted = checked_statistics(statistics)
    parts = parts_of(wanted, relation)
    if not parts:
        raise ValueError("statistics must hold more than a count, which is public for 'replace'")
    design = design_for(parts, validate.positive(epsilon=epsilon), validate.below_one(delta=delta))
    promise = Promise(design.loss, delta)
    found: dict[str, Estimate | Vector] = {}
    for group, mechanism in zip(design.groups, design.drawn, strict=True):
        for part, deviations in _apart(group, mechanism):
            assumed = _Assumed(whole, relation, deviations, mechanism, promise)
            found |= assumed.estimates(part)
    ordered = {one.name: found[one.name] for one in wanted}
    errors = {
        name: np.asarray(one.standard_error if isinstance(one, Estimate) else one)
        for name, one in ordered.items()
    }
    labels = {
        name: tuple(row[0] for row in one.rows()) if isinstance(one, Estimate) else ()
        for name, one in ordered.items()
    }
    for one in wanted:
        if isinstance(one, Quantiles):
            labels[one.name] = tuple(f"{float(share):.4g}" for share in one.fractions)
    return Expected(whole, errors, labels, promise, design.shares, design.rule)


def _apart(
    group: Sequence[Part], mechanism: NoiseMechanism | QuantileTree
) -> Iterator[tuple[Part, Vector]]:
    """Yield every part with the standard deviations of its noise."""
    if isinstance(mechanism, QuantileTree):
        yield group[0], np.array(mechanism.rank_errors)
        return
    noisy = [part for part in group if isinstance(part, NoisyPart)]
    ends = np.cumsum([part.weights.size for part in noisy])[:-1]
    deviations = np.sqrt(mechanism.coordinate_errors())
    yield from zip(noisy, np.split(deviations, ends), strict=True)


@dataclass(frozen=True)
class _Assumed:
    """The errors of a part, for a table that nobody looked at."""

    records: int
    adjacency: Adjacency
    deviations: Vector
    mechanism: NoiseMechanism | QuantileTree
    promise: Promise

    def estimates(self, part: Part) -> dict[str, Estimate | Vector]:
        """Return the statistics of a part by name."""
        if isinstance(part, QuantilesPart):
            lower, upper = part.statistic.bounds
            return {part.statistic.name: (upper - lower) * self.deviations / self.records}
        mechanism = self.mechanism
        assert isinstance(mechanism, NoiseMechanism)
        if isinstance(part, SumsPart):
            sums = self._sums(part, mechanism)
            return {one.name: linear_estimate(one, sums, self.promise) for one in part.statistics}
        if isinstance(part, CountsPart):
            zeros = np.zeros(self.deviations.size)
            given = (zeros, self.deviations, mechanism, self.promise)
            return {part.statistic.name: counts_estimate(part.statistic, *given)}
        assert isinstance(part, GroupsPart)
        even = self.records * part.sums.size / (2 * part.sums.groups)
        values = np.full(self.deviations.size, even)
        given = (values, self.deviations, mechanism, self.promise)
        return {one.name: groups_estimate(one, part.sums, *given) for one in part.statistics}

    def _sums(self, part: SumsPart, mechanism: NoiseMechanism) -> NoisySums:
        known = {Coordinate(): float(self.records)}
        values = np.array([known.get(one, 0.0) for one in part.coordinates])
        public = self.records if self.adjacency is Adjacency.REPLACE else None
        return NoisySums(part.coordinates, values, self.deviations, public, mechanism)
