"""The release of a table as a file: a promise, public bounds and cells, and what is wanted."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import taut
from taut._base import validate
from taut._base.files import new_file, text_of_file
from taut._base.json_numbers import json_numbers
from taut._base.spelling import did_you_mean
from taut.accounting import Adjacency, Ledger
from taut.runs._tables import check_key, mistakes_in, read_table
from taut.statistics import (
    Categories,
    CellCounts,
    Count,
    Covariance,
    GroupMeans,
    GroupTotals,
    Intervals,
    Mean,
    Quantiles,
    Released,
    Statistic,
    Total,
    Variance,
    check_columns,
    release,
)

__all__ = ["PromiseSection", "ReleaseConfig"]

_SECTIONS = ("promise", "bounds", "cells", "statistics")
_KINDS = ("count", "total", "mean", "variance", "covariance", "counts", "quantiles")
# What other libraries call them, which the nearest spelling would miss.
_MEANT = {
    "average": "what = 'mean'",
    "histogram": "what = 'counts' with by",
    "max": "what = 'quantiles' with a share below 1",
    "median": "what = 'quantiles' with shares = [0.5]",
    "min": "what = 'quantiles' with a share above 0",
    "percentiles": "what = 'quantiles'",
    "quantile": "what = 'quantiles'",
    "std": "what = 'variance'",
    "sum": "what = 'total'",
}
_EDGES, _LABELS = ("edges", "column", "other"), ("labels", "column", "other")


@dataclass(frozen=True, kw_only=True)
class PromiseSection:
    """What is promised for all statistics together.

    Attributes:
        epsilon: epsilon of the promise.
        delta: probability delta of the promise; with 0 it is pure.
        adjacency: "add_remove" hides whether a record is there; "replace" hides what it says,
            with a public number of records.
        records: public number of records, for "replace".
    """

    epsilon: float
    delta: float = 0.0
    adjacency: str = field(default="add_remove", metadata={"choices": ("add_remove", "replace")})
    records: int | None = None

    def __post_init__(self) -> None:
        validate.positive(epsilon=self.epsilon)
        validate.below_one(delta=self.delta)
        if self.records is not None:
            validate.positive_integer(records=self.records)
        if (self.adjacency == Adjacency.REPLACE) is not (self.records is not None):
            raise ValueError(
                "needs records, the public number of records, for adjacency = 'replace' alone"
            )


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """One statistic of the file.

    Attributes:
        what: its kind.
        of: the column, or columns for a covariance.
        by: names of cells, for counts, and for totals and means of groups.
        shares: shares of records, for quantiles.
        step: power of two of which quantiles are multiples.
        name: name of the result.
        weight: weight of its squared error.
    """

    what: str = field(metadata={"choices": _KINDS})
    of: str | list[Any] | None = None
    by: str | list[Any] | None = None
    shares: tuple[float, ...] | None = None
    step: float | None = None
    name: str = ""
    weight: float = 1.0


@dataclass(frozen=True)
class ReleaseConfig:
    """What to release of a table, and for which promise: all of it public.

    Attributes:
        promise: promise for all statistics together.
        statistics: statistics in the order of the file.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from taut.runs import ReleaseConfig
        >>> text = '''
        ... [promise]
        ... epsilon = 1.0
        ... [bounds]
        ... age = [18, 90]
        ... [cells]
        ... region = ["north", "south"]
        ... [[statistics]]
        ... what = "mean"
        ... of = "age"
        ... [[statistics]]
        ... what = "counts"
        ... by = "region"
        ... '''
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "release.toml"
        ...     _ = path.write_text(text)
        ...     config = ReleaseConfig.from_toml(path)
        >>> " and ".join(statistic.name for statistic in config.statistics)
        'mean of age and counts by region'
    """

    promise: PromiseSection
    statistics: tuple[Statistic, ...]

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> ReleaseConfig:
        """Return what a file says.

        Raises:
            ValueError: for a file that is no TOML, for an unknown section, key, statistic or cell
                (with the nearest known one), missing bounds, or a value out of its range.
            OSError: if the file cannot be read.
        """
        file = Path(path)
        with mistakes_in(file):
            return cls._of(tomllib.loads(text_of_file(file, "what to release")))

    @classmethod
    def _of(cls, tables: Mapping[str, Any]) -> ReleaseConfig:
        for name in tables:
            check_key(name, _SECTIONS, "the file")
        if "promise" not in tables:
            raise ValueError("the section [promise] is missing; it needs epsilon")
        wanted = tables.get("statistics")
        if not isinstance(wanted, list) or not wanted:
            raise ValueError("the file wants nothing; add [[statistics]] with what = 'count'")
        public = _Public(_bounds(tables.get("bounds", {})), _cells(tables.get("cells", {})))
        return cls(
            read_table(PromiseSection, tables["promise"], "[promise]"),
            tuple(public.statistic(table, i) for i, table in enumerate(wanted, 1)),
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `taut.statistics.release` that follow the table and the statistics."""
        promise = self.promise
        return {
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "adjacency": promise.adjacency,
            "records": promise.records,
        }

    def check(self, data: Any) -> None:
        """Refuse a table that lacks a column, or has one of another type; no record is read.

        Raises:
            ValueError: naming the column.
        """
        check_columns(data, self.statistics)

    def release(
        self,
        data: Any,
        out: str | os.PathLike[str] | None = None,
        *,
        ledger: Ledger | None = None,
    ) -> Released:
        """Release the statistics of a table.

        Args:
            data: whatever `taut.statistics.Table.open` takes, such as the path of a file.
            out: a file that does not exist yet, for `to_dict` in JSON.
            ledger: who keeps the budget, such as a `taut.accounting.BudgetFile`.

        **Guarantee**: that of `taut.statistics.release`. Nothing is released if the file exists or
        cannot be written.

        Raises:
            ValueError: as `taut.statistics.release`.
            FileExistsError: if the file exists.
            BudgetExceeded: if the ledger refuses; nothing is released then.
        """
        arguments = {**self.arguments, "ledger": ledger}
        if out is None:
            return release(data, self.statistics, **arguments)
        with new_file(Path(out)) as write:
            found = release(data, self.statistics, **arguments)
            write(json.dumps(json_numbers(self.to_dict(found)), indent=2) + "\n")
        return found

    @staticmethod
    def to_dict(found: Released) -> dict[str, Any]:
        """Return results as data for JSON: a statement for `taut verify`, and the statistics."""
        described = found.to_dict()
        del described["promise"]
        return {**found.statement, "taut": taut.__version__, **described}


@dataclass(frozen=True)
class _Public:
    """Bounds and cells by name."""

    bounds: Mapping[str, tuple[float, float]]
    cells: Mapping[str, Categories | Intervals]

    def statistic(self, table: object, place: int) -> Statistic:
        """Return the statistic of a table.

        Raises:
            ValueError: naming what is wrong.
        """
        where = f"[[statistics]] number {place}:"
        _check_what(table, where)
        wanted = read_table(_Wanted, table, where)
        made = _MAKERS[wanted.what]
        unused = {"of", "by", "shares", "step"} - made.keys
        for key in sorted(unused):
            if getattr(wanted, key) is not None:
                raise ValueError(f"{where} {wanted.what} has no key {key!r}; leave it out")
        common = {"name": wanted.name, "weight": wanted.weight}
        try:
            return made.make(self, wanted, common)
        except ValueError as error:
            raise ValueError(f"{where} {error}") from None

    def bounds_of(self, column: object) -> tuple[float, float]:
        """Return the bounds of a column, or say how to give them."""
        if not isinstance(column, str):
            remedy = _in_section("bounds", self.bounds)
            raise ValueError(f"of must be the name of a column, got {column!r}{remedy}")
        if column not in self.bounds:
            raise ValueError(
                f"column {column!r} has no bounds{did_you_mean(column, self.bounds)}; add "
                f"{column} = [lower, upper] to [bounds], from what is public, not from the data"
            )
        return self.bounds[column]

    def cells_of(self, names: str | list[Any] | None) -> list[Categories | Intervals]:
        """Return cells by name, or say how to give them."""
        if names is None:
            raise ValueError(f"by must name cells, got None{_in_section('cells', self.cells)}")
        found = []
        for name in _listed(names, "by"):
            if not isinstance(name, str) or name not in self.cells:
                raise ValueError(
                    f"there are no cells {name!r}{did_you_mean(name, self.cells)}; add "
                    f"{name} = ['label', ...] or {name} = {{edges = [...]}} to [cells]"
                )
            found.append(self.cells[name])
        return found


def _check_what(table: object, where: str) -> None:
    what = table.get("what") if isinstance(table, Mapping) else None
    if isinstance(what, str) and what in _MEANT:
        raise ValueError(f"{where} there is no {what!r}; write {_MEANT[what]}")


def _bounds(table: object) -> dict[str, tuple[float, float]]:
    if not isinstance(table, Mapping):
        raise ValueError(f"[bounds] must be a table, got {table!r}")
    found = {}
    for name, pair in table.items():
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(f"[bounds] {name} must be [lower, upper], got {pair!r}")
        lower, upper = pair
        try:
            mean = Mean(name, (lower, upper))
        except ValueError as error:
            raise ValueError(f"[bounds] {error}") from None
        found[name] = (mean.clipped.lower, mean.clipped.upper)
    return found


def _cells(table: object) -> dict[str, Categories | Intervals]:
    if not isinstance(table, Mapping):
        raise ValueError(f"[cells] must be a table, got {table!r}")
    return {name: _cell(name, given) for name, given in table.items()}


def _cell(name: str, given: object) -> Categories | Intervals:
    described = {"labels": given} if isinstance(given, list) else given
    if not isinstance(described, Mapping) or ("labels" in described) is ("edges" in described):
        raise ValueError(
            f"[cells] {name} must be a list of labels, {{labels = [...]}} or {{edges = [...]}}, "
            f"got {given!r}"
        )
    for key in described:
        check_key(key, _EDGES if "edges" in described else _LABELS, f"[cells] {name}")
    column, other = described.get("column", name), described.get("other", False)
    if not isinstance(other, bool):
        raise ValueError(f"[cells] {name} other must be true or false, got {other!r}")
    try:
        if "edges" in described:
            return Intervals(column, described["edges"], other=other)
        return Categories(column, _listed(described["labels"], "labels"), other=other)
    except ValueError as error:
        raise ValueError(f"[cells] {error}") from None


def _in_section(section: str, names: Iterable[str]) -> str:
    shown = ", ".join(map(repr, names))
    return f"; [{section}] has {shown}" if shown else f"; add it to [{section}]"


def _listed(given: object, what: str) -> list[Any]:
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list) or not found:
        raise ValueError(f"{what} must be a list, got {given!r}")
    return found


@dataclass(frozen=True)
class _Maker:
    """How a kind of statistic is made, of which keys."""

    keys: frozenset[str]
    make: Callable[[_Public, _Wanted, dict[str, Any]], Statistic]


def _total(public: _Public, wanted: _Wanted, common: dict[str, Any]) -> Statistic:
    bounds, column = public.bounds_of(wanted.of), str(wanted.of)
    if wanted.by is None:
        return Total(column, bounds, **common)
    return GroupTotals(column, bounds, public.cells_of(wanted.by), **common)


def _mean(public: _Public, wanted: _Wanted, common: dict[str, Any]) -> Statistic:
    bounds, column = public.bounds_of(wanted.of), str(wanted.of)
    if wanted.by is None:
        return Mean(column, bounds, **common)
    return GroupMeans(column, bounds, public.cells_of(wanted.by), **common)


def _variance(public: _Public, wanted: _Wanted, common: dict[str, Any]) -> Statistic:
    bounds = public.bounds_of(wanted.of)
    return Variance(str(wanted.of), bounds, **common)


def _covariance(public: _Public, wanted: _Wanted, common: dict[str, Any]) -> Statistic:
    columns: Sequence[Any] = _listed(wanted.of, "of")
    bounds = {column: public.bounds_of(column) for column in columns}
    if len(bounds) < len(columns):
        raise ValueError(f"of must name every column once, got {columns!r}")
    return Covariance(bounds, **common)


def _counts(public: _Public, wanted: _Wanted, common: dict[str, Any]) -> Statistic:
    return CellCounts(public.cells_of(wanted.by), **common)


def _quantiles(public: _Public, wanted: _Wanted, common: dict[str, Any]) -> Statistic:
    if wanted.shares is None:
        raise ValueError("quantiles needs shares, such as shares = [0.25, 0.5, 0.75]")
    bounds = public.bounds_of(wanted.of)
    return Quantiles(str(wanted.of), wanted.shares, bounds, step=wanted.step, **common)


_MAKERS: Mapping[str, _Maker] = {
    "count": _Maker(frozenset(), lambda _, __, common: Count(**common)),
    "total": _Maker(frozenset({"of", "by"}), _total),
    "mean": _Maker(frozenset({"of", "by"}), _mean),
    "variance": _Maker(frozenset({"of"}), _variance),
    "covariance": _Maker(frozenset({"of"}), _covariance),
    "counts": _Maker(frozenset({"by"}), _counts),
    "quantiles": _Maker(frozenset({"of", "shares", "step"}), _quantiles),
}
