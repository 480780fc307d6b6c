"""Columns of Polars: in memory, lazily, and of files, which are read a part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut.statistics._tables.batch import ArrayColumn, Batch, Column

if TYPE_CHECKING:
    import polars as pl

__all__ = ["batches_of_frame", "batches_of_lazy_frame"]

_ROWS = 1 << 18  # of a batch: a few megabytes
# As other engines take them: Polars writes the first to files, pandas the second, others the third.
_BOOLEANS = {"true": 1.0, "false": 0.0, "True": 1.0, "False": 0.0, "TRUE": 1.0, "FALSE": 0.0}


def batches_of_frame(frame: pl.DataFrame, names: Sequence[str]) -> Iterator[Batch]:
    """Yield all at once: most columns are not copied."""
    yield _batch(frame, names)


def batches_of_lazy_frame(frame: pl.LazyFrame, names: Sequence[str]) -> Iterator[Batch]:
    """Yield the rows in any order, a few at a time where Polars can do that."""
    import polars as pl

    # A name such as "^a.*$", given as a text, would be a pattern.
    chosen = frame.select(pl.selectors.by_name(*names) if names else pl.len())
    if not names:
        yield Batch({}, int(chosen.collect(engine="streaming").item()))
    elif hasattr(chosen, "collect_batches"):
        for batch in chosen.collect_batches(chunk_size=_ROWS, maintain_order=False):
            yield _batch(batch, names)
    else:
        yield _batch(chosen.collect(engine="streaming"), names)


def _batch(frame: pl.DataFrame, names: Sequence[str]) -> Batch:
    # Methods of series take their names for patterns, too.
    columns = {name: _column(frame[name].alias("column")) for name in names}
    return Batch(columns, frame.height)


def _column(series: pl.Series) -> Column:
    import polars as pl

    if series.dtype.is_decimal():
        return ArrayColumn(np.array([*series.to_list(), None], dtype=object)[:-1])
    if series.dtype.is_numeric() or series.dtype == pl.Boolean:
        return ArrayColumn(_doubles(series))
    return _TextColumn(series)


class _TextColumn:
    """Texts, which stand for numbers if they come from a file without types."""

    def __init__(self, series: pl.Series) -> None:
        """Take a series of texts or categories."""
        self._series = series

    def part(self, start: int, stop: int) -> _TextColumn:
        """Return the entries from one up to another, not copied."""
        return _TextColumn(self._series[start:stop])

    def numbers(self) -> Vector:
        """Return doubles, NaN where a text is no number; true and false are 1 and 0."""
        import polars as pl

        texts = self._series.cast(pl.String).str.strip_chars()
        numbers = texts.cast(pl.Float64, strict=False)
        if numbers.null_count() > texts.null_count():
            words = texts.replace_strict(_BOOLEANS, default=None, return_dtype=pl.Float64)
            numbers = numbers.zip_with(numbers.is_not_null(), words)
        return _doubles(numbers)

    def places(self, labels: Sequence[object]) -> NDArray[np.intp]:
        """Return the place of every entry in a list of texts, its length for those not in it."""
        import polars as pl

        found = self._series.cast(pl.String).replace_strict(
            list(labels), list(range(len(labels))), default=len(labels), return_dtype=pl.Int64
        )
        return found.to_numpy().astype(np.intp, copy=False)


def _doubles(series: pl.Series) -> Vector:
    import polars as pl

    plain = series if series.dtype == pl.Float64 else series.cast(pl.Float64)
    found: Vector = plain.to_numpy()  # NaN where it is null
    return found
