"""One pass over a table, in any order and in any parts, to exact answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taut.statistics._tables.batch import Batch
from taut.statistics._tables.clipped_column import BITS
from taut.statistics._tables.queries import MOST_ROWS, Query

__all__ = ["Answer", "Scan"]

Answer: TypeAlias = NDArray[Any]
"""Python integers in an array of objects, exact whatever their size."""

_ROWS = 1 << 15  # of a piece: its columns stay in the cache of a core
_ROWS_PER_CELL = 4  # pieces are longer where there are more cells than rows in one
_LARGEST = 1 << 62  # what int64 sums may reach: every addition is looked at


class Scan:
    """Running sums of the answers to some queries.

    Two scans of parts of a table add up to one of the whole, whatever engine saw which part.
    """

    def __init__(self, queries: Sequence[Query]) -> None:
        """Begin with no record."""
        self._queries = tuple(queries)
        self._totals: list[list[Answer]] = []  # none before anything was settled or merged
        self._recent = [query.empty() for query in self._queries]
        self._rows = 0
        cells = max((limb.size for limbs in self._recent for limb in limbs), default=1)
        self._piece = min(max(_ROWS, _ROWS_PER_CELL * cells), MOST_ROWS)

    def add(self, batch: Batch) -> None:
        """Count a batch of any size."""
        for start in range(0, batch.rows, self._piece):
            piece = batch.part(start, start + self._piece)
            if self._rows + piece.rows > _LARGEST >> (BITS + 1):
                self._settle()
            self._rows += piece.rows
            for recent, query in zip(self._recent, self._queries, strict=True):
                for total, limb in zip(recent, query.limbs(piece), strict=True):
                    total += limb

    def add_all(self, batches: Iterable[Batch]) -> None:
        """Count some batches."""
        for batch in batches:
            self.add(batch)

    def merge(self, answers: Sequence[Sequence[Answer]]) -> None:
        """Count what another scan of the same queries saw, by its `parts`."""
        if not self._totals:
            self._totals = [[limb.copy() for limb in limbs] for limbs in answers]
            return
        for totals, theirs in zip(self._totals, answers, strict=True):
            for total, limb in zip(totals, theirs, strict=True):
                total += limb

    def parts(self) -> list[list[Answer]]:
        """Return what was counted, for `merge`."""
        self._settle()
        return self._totals

    def answers(self) -> list[Answer]:
        """Return the exact answer to every query."""
        self._settle()
        return [_whole(limbs) for limbs in self._totals]

    def _settle(self) -> None:
        """Bring the int64 sums of the last rows to Python integers, before they can overflow."""
        self.merge([[_objects(limb) for limb in limbs] for limbs in self._recent])
        self._recent = [query.empty() for query in self._queries]
        self._rows = 0


def _whole(limbs: list[Answer]) -> Answer:
    total = limbs[-1]
    for limb in reversed(limbs[:-1]):
        total = total * (1 << BITS // 2) + limb
    return np.asarray(total, dtype=object)  # arithmetic makes a scalar of an array without axes


def _objects(limb: NDArray[np.int64]) -> Answer:
    found = np.empty(limb.shape, dtype=object)
    found[...] = limb.tolist() if limb.ndim else limb.item()
    return found
