"""Which of many intervals a number lies in, at the speed of reading it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector

__all__ = ["IntervalSearch"]

_BINS_PER_EDGE = 8  # even bins among which edges are looked up
_MOST_BINS = 1 << 16  # a table that stays in the cache of a core
_MOST_IN_BIN = 4  # edges compared one after the other: beyond, bisection is faster


class IntervalSearch:
    """The number of sorted edges at or below a value; one more than all of them for NaN.

    Values are first put into bins of equal width. Computed in doubles, that is a monotone function
    of the value, so that an edge in a lower bin is surely below it, and one in a higher bin above;
    only edges in the same bin are compared. So the answer is that of bisection, to the last bit.
    """

    def __init__(self, edges: Vector) -> None:
        """Prepare the bins.

        Args:
            edges: finite numbers, sorted.
        """
        self._edges = edges
        self._start = float(edges[0])
        self._bins = min(_MOST_BINS, _BINS_PER_EDGE * len(edges))
        with np.errstate(over="ignore"):
            width = float(edges[-1] - edges[0])
            self._scale = self._bins / width if 0 < width < np.inf else 0.0
        self._scale = self._scale if np.isfinite(self._scale) else 0.0
        bins = self._bin_of(edges)
        self._in_bin = int(np.bincount(bins).max())
        below = np.searchsorted(bins, np.arange(self._bins))
        self._below = np.append(below, len(edges) + 1)
        self._padded = np.append(edges, [np.nan, np.nan])  # never at or below a value

    def counts(self, values: Vector) -> NDArray[np.intp]:
        """Return how many edges are at most each value."""
        if self._in_bin > _MOST_IN_BIN:
            found = np.searchsorted(self._edges, values, side="right")
            found[np.isnan(values)] = len(self._edges) + 1
            return found
        found = self._below.take(self._bin_of(values), mode="clip")  # the fastest mode: all fit
        for _ in range(self._in_bin):
            found += values >= self._padded.take(found, mode="clip")
        return found

    def _bin_of(self, values: Vector) -> NDArray[np.intp]:
        if self._scale == 0.0:
            return np.where(np.isnan(values), self._bins, 0)
        with np.errstate(all="ignore"):  # a warning would tell of a record
            place = values - self._start
            place *= self._scale
            np.clip(place, 0.0, self._bins - 1, out=place)
            np.copyto(place, self._bins, where=np.isnan(place))  # which alone is in no bin
            return place.astype(np.intp)
