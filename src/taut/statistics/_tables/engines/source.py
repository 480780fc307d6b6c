"""What every engine can do: name its columns and their types, and be scanned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from taut.statistics._tables.batch import Batch
from taut.statistics._tables.queries import Query
from taut.statistics._tables.scan import Answer, Scan

__all__ = ["ColumnType", "EngineSource", "Kind", "Source", "Unreadable", "silently"]

_T = TypeVar("_T")
_REMOTE = ("Dask", "Spark")  # engines with workers that may be on other machines


class Unreadable(ValueError):
    """What we say ourselves of a table, which quotes no record."""


class Kind(Enum):
    """What a column can be read as, by its type alone."""

    NUMBER = "numbers"
    BOOLEAN = "booleans"
    TEXT = "texts"
    ENTRIES = "any objects"  # a list, or the different entries of a column: read one by one
    UNREAD = "text of a file"  # which may stand for numbers
    OTHER = "other"


@dataclass(frozen=True)
class ColumnType:
    """The type of a column.

    Attributes:
        kind: what it can be read as.
        shown: how the engine calls it.
    """

    kind: Kind
    shown: str


class Source(ABC):
    """The columns of a table in one engine.

    Attributes:
        engine: what the engine is called.
        types: the types of the columns, by name.
        is_beyond_memory: whether records come in parts, from where there is room for more.
    """

    engine: str
    types: Mapping[str, ColumnType]
    is_beyond_memory: bool = False

    @abstractmethod
    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield the columns of these names, in parts that cover every record once."""

    def scan(self, queries: Sequence[Query], names: Sequence[str]) -> list[Answer]:
        """Return the exact answers to queries that need the columns of these names."""
        scan = Scan(queries)
        scan.add_all(self.batches(names))
        return scan.answers()


class EngineSource(Source):
    """Columns that another library reads, one part after the other."""

    def __init__(
        self,
        engine: str,
        types: Mapping[str, ColumnType],
        read: Callable[[Sequence[str]], Iterator[Batch]],
        *,
        is_beyond_memory: bool = False,
    ) -> None:
        """Take what reads.

        Args:
            engine: what the engine is called.
            types: the types of the columns, by name.
            read: the function that yields the columns of some names in parts.
            is_beyond_memory: whether it reads them from where there is room for more.
        """
        self.is_beyond_memory = is_beyond_memory
        self.engine = engine
        self.types = types
        self._read = read

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield the columns of these names."""
        yield from self._read(names)


def silently(engine: str, read: Callable[[], _T]) -> _T:
    """Return what a function reads; what an engine says of an error is replaced by what is public.

    Raises:
        ValueError: if anything is raised but for want of memory or by an interrupt.
    """
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read()
        except (MemoryError, KeyboardInterrupt, SystemExit, Unreadable):
            raise
        except BaseException as error:  # Polars panics with what is no Exception
            failed = type(error).__name__
    # Out here, the error of the engine, which may quote records, is not the context of ours.
    raise ValueError(
        f"{engine} could not read the table ({failed}); its message is not shown, as it may quote "
        f"records{'; taut must be installed where its workers run' * (engine in _REMOTE)}"
    )
