"""Columns of pandas, which Dask has in its parts, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.statistics._tables.batch import ArrayColumn, Batch, CodedColumn, Column
from taut.statistics._tables.engines.source import ColumnType, Kind

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["batch_of_pandas", "batches_of_pandas"]


def batches_of_pandas(
    frame: pd.DataFrame, types: dict[str, ColumnType], names: Sequence[str]
) -> Iterator[Batch]:
    """Yield all at once: most columns are not copied."""
    yield batch_of_pandas(frame, types, names)


def batch_of_pandas(
    frame: pd.DataFrame, types: dict[str, ColumnType], names: Sequence[str]
) -> Batch:
    """Return the columns of these names."""
    columns = {name: _column(frame[name], types[name].kind) for name in names}
    return Batch(columns, len(frame))


def _column(series: pd.Series[Any], kind: Kind) -> Column:
    from pandas.api.types import is_numeric_dtype

    if hasattr(series, "cat"):  # categories, of which each is looked at once
        values = series.cat.categories.to_numpy(dtype=object)
        return CodedColumn(series.cat.codes.to_numpy(dtype=np.intp), values)
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iufO":
        return ArrayColumn(series.to_numpy())
    # A part of Dask may be of another type than the table, by what its records are.
    if kind in (Kind.NUMBER, Kind.BOOLEAN) and is_numeric_dtype(series.dtype):
        return ArrayColumn(series.to_numpy(dtype=np.float64, na_value=np.nan))
    codes, values = series.factorize()
    return CodedColumn(codes, np.asarray(values, dtype=object))
