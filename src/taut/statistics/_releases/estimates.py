"""What was released: numbers with their errors, and what may be promised about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut.accounting import PrivacyLoss, Promise
from taut.statistics._releases.descriptions import CellCounts, Covariance, Quantiles, Statistic
from taut.statistics._releases.groups import GroupStatistic

__all__ = ["Estimate", "Interval", "Released"]

_MOST_SHOWN = 24  # numbers of one statistic, in a table for people


class Interval(NamedTuple):
    """Where a statistic of the data lies, with a probability over the noise.

    Attributes:
        lower: lower ends.
        upper: upper ends.
    """

    lower: float | Vector
    upper: float | Vector


@dataclass(frozen=True, eq=False)
class Estimate:
    """One statistic as it was released, with the error that noise made.

    All of it is post-processing of a release: it may be published, with `promise`.

    Attributes:
        statistic: what was asked for.
        value: the number, or an array of them.
        standard_error: standard deviation of the noise in it, of the same shape: exact for counts
            and totals, to first order in 1 / n for means, variances and covariances. For quantiles
            it is estimated from the released ones nearby, and NaN if there is no telling. It says
            nothing about a population that the records were drawn from.
        promise: what was promised for the whole release that it is a part of.
        rank_error: standard deviation of the number of records below, of quantiles alone.
    """

    statistic: Statistic
    value: float | Vector
    standard_error: float | Vector
    promise: Promise
    rank_error: Vector | None = None
    _within: Callable[[float], Interval] = field(repr=False, kw_only=True)

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of the whole release that it is a part of."""
        return self.promise.loss

    @property
    def statement(self) -> dict[str, Any]:
        """The promise, for ``taut verify``."""
        return self.promise.statement

    def interval(self, level: float = 0.95) -> Interval:
        """Return where the statistic of the (clipped) data lies, with a probability over the noise.

        Args:
            level: probability, between 0 and 1. For arrays it holds number by number. For quantiles
                it is approximate: how values lie between the released ones is not known.
        """
        wanted = validate.finite(level=level)
        if not 0 < wanted < 1:
            raise ValueError(f"level must lie between 0 and 1, got level={level!r}")
        return self._within(wanted)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as data for JSON, without the promise."""
        errors = np.asarray(self.standard_error)
        found: dict[str, Any] = {
            "name": self.statistic.name,
            "value": np.asarray(self.value).tolist(),
            "standard_error": None if np.isnan(errors).any() else errors.tolist(),
        }
        labels = _labels(self.statistic)
        return found if labels is None else {**found, "labels": [list(one) for one in labels]}

    def rows(self) -> Iterator[tuple[str, float, float]]:
        """Yield the label, the value and the standard error of every number."""
        values = np.asarray(self.value)
        errors = np.broadcast_to(self.standard_error, values.shape)
        labels = _labels(self.statistic)
        for place in np.ndindex(values.shape):
            named = (one[i] for one, i in zip(labels or (), place, strict=True))
            yield ", ".join(named), float(values[place]), float(errors[place])

    def __str__(self) -> str:
        """Return a table for people."""
        return "\n".join([*_lines([self]), str(self.promise)])


@dataclass(frozen=True, eq=False)
class Released(Mapping[str, Estimate]):
    """Several statistics of one release, by name.

    Attributes:
        estimates: the statistics, in the order in which they were asked for.
        promise: what was promised for all of them together.
        shares: share of the budget that every group of them had.
        rule: what was shared, and by which rule.
    """

    estimates: tuple[Estimate, ...]
    promise: Promise
    shares: Mapping[str, float]
    rule: str

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of all of it."""
        return self.promise.loss

    @property
    def statement(self) -> dict[str, Any]:
        """The promise, for ``taut verify``."""
        return self.promise.statement

    def __getitem__(self, name: str) -> Estimate:
        """Return the statistic of a name."""
        for estimate in self.estimates:
            if estimate.statistic.name == name:
                return estimate
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over names."""
        return (estimate.statistic.name for estimate in self.estimates)

    def __len__(self) -> int:
        """Return the number of statistics."""
        return len(self.estimates)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as data for JSON."""
        return {
            "statistics": [estimate.to_dict() for estimate in self.estimates],
            "shares": dict(self.shares),
            "rule": self.rule,
            "promise": self.statement,
        }

    def __str__(self) -> str:
        """Return a table for people, with the shares of the budget below it."""
        spent = [f"  {share:6.1%}  {label}" for label, share in self.shares.items()]
        budget = [f"budget: {self.rule}", *spent] if len(spent) > 1 else [f"budget: {self.rule}"]
        return "\n".join([*_lines(self.estimates), *budget, str(self.promise)])


def _lines(estimates: tuple[Estimate, ...] | list[Estimate]) -> Iterator[str]:
    """Yield one line per number: what it is, its value, its standard error."""
    found = []
    for estimate in estimates:
        rows = list(estimate.rows())
        for label, value, error in rows[:_MOST_SHOWN]:
            name = f"{estimate.statistic.name}: {label}" if label else estimate.statistic.name
            found.append((name, _written(value, error), error))
        if len(rows) > _MOST_SHOWN:
            found.append((f"... {len(rows) - _MOST_SHOWN} more", "", np.nan))
    width = max(len(name) for name, _, _ in found)
    column = max(len(text) for _, text, _ in found)
    for name, text, error in found:
        spread = "" if np.isnan(error) else f"  ± {error:.2g}"
        yield f"{name:{width}}  {text:>{column}}{spread}"


def _written(value: float, error: float) -> str:
    """Return a number with the digits that its error leaves."""
    if not error > 0 or not np.isfinite(value):
        return f"{value:.6g}"
    digits = int(np.clip(1 - np.floor(np.log10(error)), 0, 12))
    return f"{value:.{digits}f}" if abs(value) < 1e15 else f"{value:.6g}"


def _labels(statistic: Statistic) -> tuple[tuple[str, ...], ...] | None:
    """Return what the numbers along every axis are called, if there are several."""
    if isinstance(statistic, CellCounts):
        return tuple(one.labels_shown for one in statistic.columns)
    if isinstance(statistic, GroupStatistic):
        return tuple(one.labels_shown for one in statistic.sums.cells)
    if isinstance(statistic, Covariance):
        return (tuple(statistic.bounds),) * 2
    if isinstance(statistic, Quantiles):
        return (tuple(f"{float(share):.4g}" for share in statistic.fractions),)
    return None
