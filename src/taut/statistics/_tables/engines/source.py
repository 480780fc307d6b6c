"""What every engine can do: name its columns and their types, and be scanned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from taut.statistics._tables.batch import Batch
from taut.statistics._tables.queries import Query
from taut.statistics._tables.scan import Answer, Scan

__all__ = ["ColumnType", "Kind", "Source"]


class Kind(Enum):
    """What a column can be read as, by its type alone."""

    NUMBER = "numbers"
    BOOLEAN = "booleans"
    TEXT = "texts"
    MIXED = "objects"  # of Python, one by one
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
    """

    engine: str
    types: Mapping[str, ColumnType]

    @abstractmethod
    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield the columns of these names, in parts that cover every record once."""

    def scan(self, queries: Sequence[Query], names: Sequence[str]) -> list[Answer]:
        """Return the exact answers to queries that need the columns of these names."""
        scan = Scan(queries)
        scan.add_all(self.batches(names))
        return scan.answers()
