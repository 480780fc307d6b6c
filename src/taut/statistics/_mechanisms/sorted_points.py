"""Points in order, as a quantile tree asks for them: in memory here, elsewhere perhaps not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Inside", "Points", "SortedPoints"]


class Points(Protocol):
    """Points of records on a grid, in order: secret, whoever holds them."""

    @property
    def size(self) -> int:
        """The number of points."""

    def ranks(self, places: Sequence[int]) -> NDArray[np.int64]:
        """Return how many points are below each place."""

    def between(self, spans: Sequence[tuple[int, int]], most: int) -> list[NDArray[np.int64]]:
        """Return the points of some ranks, from one up to another.

        Args:
            spans: first rank, and the one after the last.
            most: number of all these points at most, which must be public.
        """


class SortedPoints:
    """Points in memory."""

    def __init__(self, points: NDArray[np.int64]) -> None:
        """Take points that are sorted."""
        self._points = points

    @property
    def size(self) -> int:
        """The number of points."""
        return self._points.size

    def ranks(self, places: Sequence[int]) -> NDArray[np.int64]:
        """Return how many points are below each place."""
        found: NDArray[np.int64] = np.searchsorted(self._points, np.array(places, dtype=np.int64))
        return found

    def between(self, spans: Sequence[tuple[int, int]], most: int) -> list[NDArray[np.int64]]:
        """Return the points of some ranks, from one up to another."""
        return [self._points[first:last] for first, last in spans]


@dataclass(frozen=True)
class Inside:
    """The points between two places.

    Attributes:
        size: how many there are.
        first: the rank of the first of those that are known.
        known: those of the ranks that weigh in a draw, sorted.
        ranks: the function that tells how many of them are below some places, for replays.
    """

    size: int
    first: int
    known: NDArray[np.int64]
    ranks: Callable[[Sequence[int]], NDArray[np.int64]]

    @classmethod
    def of(cls, points: NDArray[np.int64]) -> Inside:
        """Return sorted points that are all known."""
        return cls(points.size, 0, points, SortedPoints(points).ranks)
