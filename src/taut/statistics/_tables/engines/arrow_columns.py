"""Columns of Arrow: tables in memory, and what DuckDB hands over a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.statistics._tables.batch import ArrayColumn, Batch, CodedColumn, Column

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["batch_of_arrow", "batches_of_duckdb", "batches_of_table"]

_ROWS = 1 << 18  # of a batch of DuckDB: a few megabytes


def batches_of_table(table: pa.Table, names: Sequence[str]) -> Iterator[Batch]:
    """Yield the batches that a table consists of."""
    if not names:
        yield Batch({}, table.num_rows)
        return
    for batch in table.select(list(names)).to_batches():
        yield batch_of_arrow(batch, names)


def batches_of_duckdb(relation: Any, names: Sequence[str]) -> Iterator[Batch]:
    """Yield the rows of a relation, a few at a time."""
    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    reader = read(_ROWS)
    try:
        for batch in reader:
            yield batch_of_arrow(batch, names)
    finally:
        reader.close()  # an open result blocks the connection


def batch_of_arrow(batch: pa.RecordBatch, names: Sequence[str]) -> Batch:
    """Return the columns of these names."""
    return Batch({name: _column(batch.column(name)) for name in names}, batch.num_rows)


def _column(array: pa.Array) -> Column:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type) or _is_text(array.type):
        coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        codes = pc.fill_null(coded.indices.cast(pa.int64()), -1)
        values = np.array([*coded.dictionary.to_pylist(), None], dtype=object)[:-1]
        return CodedColumn(codes.to_numpy(zero_copy_only=False), values)
    if pa.types.is_decimal(array.type):
        return ArrayColumn(np.array([*array.to_pylist(), None], dtype=object)[:-1])
    plain = pc.cast(array, pa.float64(), safe=False)  # rounded to the nearest, as NumPy does
    return ArrayColumn(plain.to_numpy(zero_copy_only=False))


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )
