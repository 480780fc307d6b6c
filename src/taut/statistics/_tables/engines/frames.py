"""Which engine a data frame is of, and the types of its columns, as Narwhals tells."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from taut.statistics._tables.clipped_column import checked_name
from taut.statistics._tables.engines.arrow_columns import batches_of_duckdb, batches_of_table
from taut.statistics._tables.engines.pandas_columns import batches_of_pandas
from taut.statistics._tables.engines.parts import DaskSource, SparkSource
from taut.statistics._tables.engines.polars_columns import batches_of_frame, batches_of_lazy_frame
from taut.statistics._tables.engines.source import (
    ColumnType,
    EngineSource,
    Kind,
    Source,
)

if TYPE_CHECKING:
    import narwhals as nw

__all__ = ["of_frame"]

_ENGINES = (
    "pandas, Polars (eager or lazy), PyArrow, DuckDB (a relation), Dask, or Spark; or a mapping of "
    "names to arrays, a matrix, or the path of a .csv or .parquet file"
)


def of_frame(data: Any) -> Source:
    """Return the columns of a data frame; nothing is read yet.

    Raises:
        TypeError: if it is none, or of another engine.
        ModuleNotFoundError: without Narwhals.
    """
    try:
        import narwhals as nw
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "data frames need Narwhals: pip install 'taut[tables]'; or give a mapping of names to "
            "arrays"
        ) from None
    frame = nw.from_native(data, pass_through=True)
    if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
        raise TypeError(
            f"data must be a table of {_ENGINES}, got an object of the type {type(data).__name__}"
        )
    return _source(frame, _types(frame))


def _source(frame: nw.DataFrame[Any] | nw.LazyFrame[Any], types: dict[str, ColumnType]) -> Source:
    import narwhals as nw

    native, engine = frame.to_native(), frame.implementation
    if engine.is_polars() and isinstance(frame, nw.LazyFrame):
        return EngineSource(
            "Polars, lazily", types, partial(batches_of_lazy_frame, native), is_beyond_memory=True
        )
    if engine.is_polars():
        return EngineSource("Polars", types, partial(batches_of_frame, native))
    if engine.is_pandas():
        return EngineSource("pandas", types, partial(batches_of_pandas, native, types))
    if engine.is_pyarrow():
        return EngineSource("PyArrow", types, partial(batches_of_table, native))
    if engine.is_duckdb():
        return EngineSource(
            "DuckDB",
            types,
            lambda names: batches_of_duckdb(_chosen(frame, names).to_native(), names),
            is_beyond_memory=True,
        )
    if engine.is_dask():
        return DaskSource(native, types)
    if engine.is_pyspark() or engine.is_pyspark_connect():
        return SparkSource(native, types)
    raise TypeError(f"data must be a table of {_ENGINES}, got one of {engine}")


def _chosen(
    frame: nw.DataFrame[Any] | nw.LazyFrame[Any], names: Sequence[str]
) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
    """Return some columns of a relation of DuckDB; Narwhals quotes their names."""
    import narwhals as nw

    if not names:
        return frame
    wide = {name for name, dtype in frame.collect_schema().items() if dtype == nw.UInt128}
    # In Arrow they have a sign, so that large ones would turn negative.
    columns = (nw.col(n).cast(nw.Float64) if n in wide else nw.col(n) for n in names)
    return frame.select(*columns)


def _types(frame: nw.DataFrame[Any] | nw.LazyFrame[Any]) -> dict[str, ColumnType]:
    native = _native_types(frame)
    is_typed = frame.implementation.is_polars() or frame.implementation.is_duckdb()
    entries = Kind.TEXT if is_typed else Kind.ENTRIES
    schema = frame.collect_schema()
    try:
        names = [checked_name(name) for name in schema]
    except ValueError as error:  # pandas numbers columns that were given no name
        remedy = "rename it, in pandas with table.columns = ['age', ...]"
        raise ValueError(f"{error}; {remedy}") from None
    return {name: _column_type(schema[name], native.get(name, ""), entries) for name in names}


def _native_types(frame: nw.DataFrame[Any] | nw.LazyFrame[Any]) -> dict[str, str]:
    """Return what an engine calls its types, where Narwhals would look at entries, or know less."""
    engine, native = frame.implementation, frame.to_native()
    if engine.is_pandas() or engine.is_dask():
        pairs = native.dtypes.items()
    elif engine.is_polars():
        pairs = native.collect_schema().items()
    elif engine.is_pyarrow():
        pairs = ((field.name, field.type) for field in native.schema)
    elif engine.is_duckdb():
        pairs = zip(native.columns, native.types, strict=True)
    else:
        pairs = ()
    return {name: str(dtype) for name, dtype in pairs}


def _column_type(dtype: nw.dtypes.DType, native: str, entries: Kind) -> ColumnType:
    # What Narwhals calls a column of objects depends on the entries, and the name of an Enum lists
    # them: neither may be in a message.
    shown = native if native == "object" else str(dtype).partition("(")[0]
    return ColumnType(_kind(dtype, native, entries), shown)


def _kind(dtype: nw.dtypes.DType, native: str, entries: Kind) -> Kind:
    import narwhals as nw

    if native == "object" or dtype == nw.String:
        return Kind.TEXT  # objects that are no texts have no label
    if native.strip('"').lower().startswith("null"):
        return Kind.ENTRIES  # all are missing, which another record would change
    if dtype == nw.Categorical or dtype == nw.Enum:
        return entries
    if dtype == nw.Boolean:
        return Kind.BOOLEAN
    return Kind.NUMBER if dtype.is_numeric() else Kind.OTHER
