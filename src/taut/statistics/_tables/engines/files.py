"""Tables in files, read by Polars a part at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from taut.statistics._tables.clipped_column import checked_name
from taut.statistics._tables.engines.frames import of_frame
from taut.statistics._tables.engines.polars_columns import batches_of_lazy_frame
from taut.statistics._tables.engines.source import (
    ColumnType,
    EngineSource,
    Kind,
    Source,
    silently,
)

__all__ = ["of_file"]

_UNREAD = ColumnType(Kind.UNREAD, "text of a file")


def of_file(path: Path) -> Source:
    """Return the columns of a .csv or .parquet file.

    What an entry of a CSV file stands for is up to who asks: every column is a text until numbers
    are wanted of it, and what is no number then is missing. So no record decides the type of a
    column. Lines that are too short or too long, and letters that are none, are no errors.

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
        frame = pl.scan_parquet(path)
        silently("Polars", frame.collect_schema)
        return of_frame(frame)
    frame = pl.scan_csv(
        path,
        infer_schema=False,
        ignore_errors=True,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
    )
    names = silently("Polars", frame.collect_schema)
    types = {checked_name(name): _UNREAD for name in names}
    read = partial(batches_of_lazy_frame, frame)
    return EngineSource("Polars, from a file", types, read, is_beyond_memory=True)
