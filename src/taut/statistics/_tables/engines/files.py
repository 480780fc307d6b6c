"""Tables in files, read by Polars a part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from taut.statistics._tables.batch import Batch
from taut.statistics._tables.engines.csv_records import blocks_of_records, header_of
from taut.statistics._tables.engines.frames import of_frame
from taut.statistics._tables.engines.polars_columns import batches_of_lazy_frame
from taut.statistics._tables.engines.source import (
    ColumnType,
    EngineSource,
    Kind,
    Source,
    silently,
)

if TYPE_CHECKING:
    import polars as pl

__all__ = ["of_file"]

_UNREAD = ColumnType(Kind.UNREAD, "text of a file")


def of_file(path: Path) -> Source:
    """Return the columns of a .csv or .parquet file.

    What an entry of a CSV file stands for is up to who asks: every column is a text until numbers
    are wanted of it, and what is no number then is missing. So no record decides the type of a
    column. Lines that are too short or too long, letters that are none, and quotes within a field
    are no errors; a field that begins with a quote goes on to the next one, over lines.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is of another kind, or cannot be read.
        ModuleNotFoundError: without Polars.
    """
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"a table must be a .csv or a .parquet file, got {str(path)!r}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    try:
        import polars as pl
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "files need Polars: pip install 'taut[tables]'; or give a mapping of names to arrays"
        ) from None
    if path.suffix.lower() == ".parquet":
        frame = pl.scan_parquet(path, glob=False, hive_partitioning=False)  # this file alone
        silently("Polars", frame.collect_schema)
        return of_frame(frame)
    header = silently("Polars", partial(header_of, path))
    if not header:
        raise ValueError(
            f"{str(path)!r} has no first line: it must hold the names of columns, with commas"
        )
    every = silently("Polars", partial(_names, header))
    types = dict.fromkeys(every, _UNREAD)  # pandas writes its index without a name
    read = partial(_batches_of_csv, path, header, every)
    return EngineSource("Polars, from a file", types, read, is_beyond_memory=True)


def _batches_of_csv(
    path: Path, header: bytes, every: list[str], names: Sequence[str]
) -> Iterator[Batch]:
    for block in blocks_of_records(path):
        yield from batches_of_lazy_frame(_frame(header, block, every), names)


def _names(header: bytes) -> list[str]:
    """Return the names in a header; Polars leaves quotes within them doubled."""
    return [name.replace('""', '"') for name in _frame(header).collect_schema()]


def _frame(header: bytes, block: bytes = b"", every: list[str] | None = None) -> pl.LazyFrame:
    import polars as pl

    return pl.scan_csv(
        BytesIO(b"%b\n%b" % (header, block)),
        new_columns=every,
        infer_schema=False,
        ignore_errors=True,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
    )
