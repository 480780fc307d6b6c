"""Products and distances computed row by row: what a row gets depends on no other row.

A matrix product of doubles may round a row in another way when there is one row more or less, and
put somebody else's record into another cell: more than noise for one record hides. What transforms
and predictions return may be rows of another private fit, in a pipeline or a stack of models.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Matrix, Vector

__all__ = ["in_blocks", "nearest", "projected", "squared_distances"]

_ENTRIES = 1 << 18  # of a block, so that what is made of it stays in the cache


def in_blocks(rows: Matrix) -> Iterator[Matrix]:
    """Yield a table in blocks of rows."""
    height = max(1, _ENTRIES // max(rows.shape[1], 1))
    for start in range(0, len(rows), height):
        yield rows[start : start + height]


def projected(rows: Matrix, axes: Matrix) -> Matrix:
    """Return the products of all rows with axes, columns, added column by column."""
    result = np.empty((len(rows), axes.shape[1]))
    start = 0
    for block in in_blocks(rows):
        result[start : start + len(block)] = _projected(np.ascontiguousarray(block.T), axes).T
        start += len(block)
    return result


def _projected(columns: Matrix, axes: Matrix) -> Matrix:
    """Return what `projected` does, transposed: a row of numbers in memory for every axis."""
    total = np.zeros((axes.shape[1], columns.shape[1]))
    product = np.empty_like(total)
    for column, weights in zip(columns, axes, strict=True):
        total += np.multiply(weights[:, None], column, out=product)
    return total


def nearest(rows: Matrix, centres: Matrix) -> NDArray[np.intp]:
    """Return the place of the nearest centre for every row, the first of those equally near."""
    blocks = (_nearest(np.asfortranarray(block), centres) for block in in_blocks(rows))
    return np.concatenate([np.zeros(0, dtype=np.intp), *blocks])


def _nearest(rows: Matrix, centres: Matrix) -> NDArray[np.intp]:
    """Do the same for a block, whose columns are contiguous in memory."""
    best = np.full(len(rows), np.inf)
    places = np.zeros(len(rows), dtype=np.intp)
    for place, centre in enumerate(centres):
        distances = squared_distances(rows, centre)
        closer = distances < best
        best[closer], places[closer] = distances[closer], place
    return places


def squared_distances(rows: Matrix, centre: Vector) -> Vector:
    """Return the squared distance of every row to a point."""
    total = np.zeros(len(rows))
    for column, value in zip(rows.T, centre, strict=True):
        total += (column - value) ** 2
    return total
