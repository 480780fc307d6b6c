"""Sums of x xᵀ over clipped rows as integers, as fast as matrix products of doubles.

Rows are clipped, cut to limbs and multiplied a few thousand at a time, by several threads: sums of
integers do not tell who added first.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

try:
    from threadpoolctl import threadpool_limits
except ImportError:  # it comes with scikit-learn
    threadpool_limits = None

from taut._base.arrays import Matrix, Vector, column_norms
from taut.noise._exact_sums import FixedPoint, Integers, carried, moment_limbs

__all__ = ["MomentSums"]

_ROWS_TOGETHER = 1 << 11  # rows: products of two limbs and of sums of two limbs add up exactly
_MOST_TOGETHER = 1 << 9  # sums below 2^53 each that fit into 64 bits, with room
_THREADS = min(4, os.cpu_count() or 1)  # more wait for memory, and for who hands out portions
_LARGEST_ENTRY = 1e150  # entries are cut there: their squares, and sums of them, are doubles
# What sums of 4096 squares, a root and two products lose, relative to them, is less than half.
_CLIP_MARGIN = 2.0**-40


@dataclass(frozen=True)
class MomentSums:
    """How rows are clipped and added up.

    Args:
        sizes: number of columns of every group, in order.
        clips: l2 norm to which the columns of every group are scaled down, row by row.
        last_alone: whether products with columns of the last group are enough; all others are zero.
    """

    sizes: tuple[int, ...]
    clips: tuple[float, ...]
    last_alone: bool

    def of(self, tables: Iterable[Matrix]) -> FixedPoint:
        """Return the exact sum, entries divided by powers of two that are just above the clips.

        **Guarantee**: a row with NaN or infinity adds nothing; no other is longer than the clips;
        what a row adds depends on it alone.
        """
        columns = sum(self.sizes)
        total = FixedPoint(np.zeros((1, columns, columns)), 0)
        waiting, count = np.zeros((3, columns, columns), dtype=np.int64), 0
        for sums in self._in_order(tables):
            waiting += sums
            count += 1
            if count == _MOST_TOGETHER:
                total = total.plus(carried(waiting, -80))
                waiting[:], count = 0, 0
        return total.plus(carried(waiting, -80))

    def _in_order(self, tables: Iterable[Matrix]) -> Iterator[Integers]:
        """Yield sums of portions, with a few of them at work at a time."""
        portions = _portions(tables)
        first = list(itertools.islice(portions, 2))
        if len(first) < 2:  # to set up threads takes longer than the sum of one portion
            yield from map(self._of_portion, first)
            return
        with _one_blas_thread_each() as threads, ThreadPoolExecutor(threads) as pool:
            at_work: deque[Future[Integers]] = deque()
            for portion in itertools.chain(first, portions):
                at_work.append(pool.submit(self._of_portion, portion))
                if len(at_work) > 2 * threads:
                    yield at_work.popleft().result()
            while at_work:
                yield at_work.popleft().result()

    def _of_portion(self, table: Matrix) -> Integers:
        """Return the sums of limbs, in orders of 2^20."""
        # Columns side by side in memory: one number per row stands for all of them.
        columns = np.ascontiguousarray(table.T, dtype=np.float64)
        with np.errstate(all="ignore"):  # no record may be told by a warning
            columns[:, ~np.isfinite(columns).all(axis=0)] = 0.0
            np.clip(columns, -_LARGEST_ENTRY, _LARGEST_ENTRY, out=columns)
            start = 0
            for size, clip in zip(self.sizes, self.clips, strict=True):
                group = columns[start : start + size]
                group *= np.ldexp(_factors(group, clip), -math.frexp(clip)[1])
                start += size
            return moment_limbs(columns, self.sizes[-1] if self.last_alone else len(columns))


@contextmanager
def _one_blas_thread_each() -> Iterator[int]:
    """Yield how many threads to take, with products that take no threads of their own.

    Threads whose products wait for each other's threads spin for longer than they work. Where BLAS
    cannot be told so, it has all of them.
    """
    if threadpool_limits is None:
        yield 1
        return
    with threadpool_limits(limits=1, user_api="blas"):
        yield _THREADS


def _factors(columns: Matrix, clip: float) -> Vector:
    """Return what makes every column no longer than the clip."""
    limit = clip * (1 - _CLIP_MARGIN)
    norms = column_norms(columns)
    return np.where(norms > limit, limit / norms, 1.0)


def _portions(tables: Iterable[Matrix]) -> Iterator[Matrix]:
    """Yield copies: a table may be filled with other records while its portions wait."""
    for table in tables:
        for start in range(0, len(table), _ROWS_TOGETHER):
            yield np.array(table[start : start + _ROWS_TOGETHER])
