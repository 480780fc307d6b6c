"""Tables in parts on several machines: each part is summed where it is, and parts are added up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.statistics._tables.batch import Batch
from taut.statistics._tables.engines.arrow_columns import batch_of_arrow
from taut.statistics._tables.engines.pandas_columns import batch_of_pandas
from taut.statistics._tables.engines.source import ColumnType, Source
from taut.statistics._tables.queries import Query
from taut.statistics._tables.scan import Answer, Scan

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["DaskSource", "SparkSource"]


class DaskSource(Source):
    """A Dask DataFrame."""

    is_beyond_memory = True

    def __init__(self, frame: Any, types: Mapping[str, ColumnType]) -> None:
        """Take a collection of parts in pandas.

        Args:
            frame: the collection.
            types: the types of the columns, by name.
        """
        self.engine = "Dask"
        self.types = types
        self._frame = frame

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield the parts, one after the other."""
        for part in self._parts(names):
            yield batch_of_pandas(part.compute(), dict(self.types), names)

    def scan(self, queries: Sequence[Query], names: Sequence[str]) -> list[Answer]:
        """Return the exact answers; every part is summed by a worker of its own."""
        from dask.base import compute
        from dask.delayed import delayed

        counted = delayed(_of_pandas)
        given = (tuple(queries), dict(self.types), tuple(names))
        delayed_parts = [counted(part, *given) for part in self._parts(names)]
        found = compute(*delayed_parts)  # type: ignore[no-untyped-call]
        return _added(queries, found)

    def _parts(self, names: Sequence[str]) -> list[Any]:
        # Without a column there would be no rows to count.
        chosen = self._frame[list(names) or list(self.types)[:1]]
        return list(chosen.to_delayed())


class SparkSource(Source):
    """A DataFrame of Spark."""

    is_beyond_memory = True

    def __init__(self, frame: Any, types: Mapping[str, ColumnType]) -> None:
        """Take a frame.

        Args:
            frame: the frame.
            types: the types of the columns, by name.
        """
        self.engine = "Spark"
        self.types = types
        self._frame = frame

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield all at once: this is for columns that fit into memory."""
        for batch in self._chosen(names).toArrow().to_batches():
            yield _named(batch, names)

    def scan(self, queries: Sequence[Query], names: Sequence[str]) -> list[Answer]:
        """Return the exact answers; every part is summed where it is."""
        chosen = self._chosen(names or list(self.types)[:1])
        count = _counter(tuple(queries), tuple(names))
        rows = chosen.mapInArrow(count, "part string").collect()
        return _added(queries, [_of_text(row["part"]) for row in rows])

    def _chosen(self, names: Sequence[str]) -> Any:
        # Without quotes, the dot of a name would lead into another column. Spark itself forgets
        # them when it hands columns over, so that these go by numbers.
        quoted = ("`{}`".format(name.replace("`", "``")) for name in names)
        return self._frame.select(*quoted).toDF(*(f"c{i}" for i in range(len(names))))


def _added(queries: Sequence[Query], parts: Sequence[Sequence[Sequence[Answer]]]) -> list[Answer]:
    scan = Scan(queries)
    for part in parts:
        scan.merge(part)
    return scan.answers()


def _of_pandas(
    part: pd.DataFrame,
    queries: tuple[Query, ...],
    types: dict[str, ColumnType],
    names: tuple[str, ...],
) -> list[list[Answer]]:
    scan = Scan(queries)
    scan.add(batch_of_pandas(part, types, names))
    return scan.parts()


def _named(batch: pa.RecordBatch, names: Sequence[str]) -> Batch:
    """Return columns that Spark hands over in this order."""
    if not names:
        return Batch({}, batch.num_rows)
    return batch_of_arrow(type(batch).from_arrays(batch.columns, names=list(names)), names)


def _counter(
    queries: tuple[Query, ...], names: tuple[str, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a worker of Spark does with its part."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        scan = Scan(queries)
        scan.add_all(_named(batch, names) for batch in batches)
        yield pa.RecordBatch.from_pydict({"part": [_as_text(scan.parts())]})

    return count


def _as_text(parts: list[list[Answer]]) -> str:
    return json.dumps([[limb.tolist() for limb in limbs] for limbs in parts])


def _of_text(text: str) -> list[list[Answer]]:
    return [[np.array(limb, dtype=object) for limb in limbs] for limbs in json.loads(text)]
