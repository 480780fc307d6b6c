"""A table of any engine, opened for exact sums; it shows its columns, and no record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from taut._base.arrays import Vector
from taut._base.spelling import did_you_mean
from taut.errors import UnsoundConfiguration
from taut.statistics._tables.cells import Categories, Cells
from taut.statistics._tables.engines.arrays import Arrays, of_matrix
from taut.statistics._tables.engines.files import of_file
from taut.statistics._tables.engines.frames import of_frame
from taut.statistics._tables.engines.source import Kind, Source, silently
from taut.statistics._tables.queries import Query
from taut.statistics._tables.scan import Answer

__all__ = ["Table", "check_queries", "doubles", "exact_answers", "is_beyond_memory"]

_NUMBERS = {Kind.NUMBER, Kind.BOOLEAN, Kind.ENTRIES, Kind.UNREAD}
_TEXTS = {Kind.TEXT, Kind.ENTRIES, Kind.UNREAD}


class Table:
    """Records in columns with names, in memory or beyond it.

    **Guarantee**: none of its own. A table shows its engine and the names of its columns; what
    mechanisms of this room ask of it are exact sums, to which they add noise before anyone sees
    them. It cannot be pickled, copied deeply or compared.

    Example:
        >>> from taut.statistics import Table
        >>> Table.open({"age": [31, 64], "region": ["north", "south"]})
        Table(NumPy: 'age', 'region')
    """

    __slots__ = ("__source",)

    def __init__(self, source: Source) -> None:
        """Hide a source; use `Table.open`.

        Args:
            source: the columns.
        """
        # Behind a function, so that nothing that walks through attributes comes upon records.
        opened: Callable[[], Source] = lambda: source  # noqa: E731
        self.__source = opened

    @classmethod
    def open(cls, data: Any, *, columns: Sequence[str] | None = None) -> Table:
        """Return a table of anything that has columns; nothing is read yet.

        Args:
            data: a mapping of names to arrays or lists; a matrix; a data frame of pandas, Polars
                (eager or lazy), PyArrow, DuckDB (a relation), Dask or Spark; or the path of a .csv
                or .parquet file, which Polars reads a part at a time.
            columns: names of the columns of a matrix.

        Entries of a CSV file are numbers if numbers are asked for, texts otherwise.

        Raises:
            ValueError: if it has no columns of one length with names, or cannot be read.
            TypeError: if it is nothing of that.
            FileNotFoundError: if there is no such file.
            ModuleNotFoundError: for frames without Narwhals, and files without Polars.
        """
        if isinstance(data, Table):
            return data
        if isinstance(data, Mapping):
            return cls(Arrays(data))
        if isinstance(data, np.ndarray):
            if columns is None:
                raise ValueError(
                    "columns must name the columns of a matrix, got none; open it with "
                    "Table.open(matrix, columns=[...])"
                )
            return cls(of_matrix(data, columns))
        if isinstance(data, str | Path):
            return cls(of_file(Path(data)))
        return cls(of_frame(data))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.__source().types)

    @property
    def engine(self) -> str:
        """What reads the table."""
        return self.__source().engine

    def __repr__(self) -> str:
        return f"Table({self.engine}: {', '.join(map(repr, self.columns))})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise UnsoundConfiguration(
            "a table cannot be pickled or copied, as its records would go with it; open it where "
            "it is used"
        )


def exact_answers(table: Table, queries: Sequence[Query]) -> list[Answer]:
    """Return exact answers to all queries, in one pass over the table.

    They are Python integers in arrays of objects: secret, until a mechanism has added noise.

    Raises:
        ValueError: for unknown columns, those of the wrong type, and what the engine cannot read.
    """
    names = check_queries(table, queries)
    source = _source(table)
    return silently(table.engine, lambda: source.scan(queries, names))


def check_queries(table: Table, queries: Sequence[Query]) -> list[str]:
    """Return the names of the columns that queries read, from what is public alone.

    Raises:
        ValueError: for unknown columns, and those of the wrong type.
    """
    names: dict[str, None] = {}
    for query in queries:
        for name in query.numbers:
            _check(table, name, _NUMBERS, "numbers")
            names[name] = None
        for cells in query.cells:
            if isinstance(cells, Categories):
                _check_labels(table, cells)
            names[cells.name] = None
    return list(names)


def doubles(table: Table, name: str) -> Vector:
    """Return a column of numbers in memory, NaN where one is missing, for what has to be sorted.

    Raises:
        ValueError: for an unknown column, or one of the wrong type.
    """
    _check(table, name, _NUMBERS, "numbers")
    source = _source(table)

    def read() -> Vector:
        parts = [batch.numbers(name) for batch in source.batches([name])]
        return np.concatenate([np.empty(0), *parts])

    return silently(table.engine, read)


def is_beyond_memory(table: Table) -> bool:
    """Return whether the engine reads the table in parts, so that a column may not fit."""
    return _source(table).is_beyond_memory


def _source(table: Table) -> Source:
    found: Source = table._Table__source()  # type: ignore[attr-defined]
    return found


def _check_labels(table: Table, cells: Cells) -> None:
    assert isinstance(cells, Categories)
    if isinstance(cells.labels[0], str):
        _check(table, cells.name, _TEXTS, "texts, as its labels are")
    else:
        _check(table, cells.name, _NUMBERS, "numbers or booleans, as its labels are")


def _foreign_format(names: Iterable[str]) -> str:
    """Return what to do about a file whose first line says that it is written in another way."""
    shown = ", ".join(names)
    if "," not in shown and any(mark in shown for mark in ";\t|"):
        return f"; its only column is {shown!r}: separate columns by commas"
    if "\N{REPLACEMENT CHARACTER}" in shown:
        return f"; known are {shown}: write the file in UTF-8"
    return ""


def _check(table: Table, name: str, kinds: Iterable[Kind], wanted: str) -> None:
    types = _source(table).types
    if name not in types:
        hint = _foreign_format(types) or did_you_mean(name, types, otherwise=True)
        raise ValueError(f"the table has no column {name!r}{hint}")
    if types[name].kind not in kinds:
        raise ValueError(
            f"column {name!r} must hold {wanted}, got the type {types[name].shown}; convert it "
            "before the table is opened"
        )
