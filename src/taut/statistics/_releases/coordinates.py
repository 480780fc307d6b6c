"""The sums that statistics are made of: what a record adds, and by how much it can change them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut.statistics._tables.clipped_column import ClippedColumn
from taut.statistics._tables.queries import Counts, Products, Query, Sums
from taut.statistics._tables.scan import Answer

__all__ = ["Coordinate", "Moments", "Places", "exact_sums", "queries_of"]

_Columns: TypeAlias = tuple[ClippedColumn, ...]


@dataclass(frozen=True)
class Coordinate:
    """A number of records, a sum, or a sum of products, around the middles of ranges.

    Attributes:
        columns: no column for a count, one for a sum, two for products; one twice for squares. Of
            squares half of the largest is subtracted, so that a record changes them half as far.
    """

    columns: tuple[ClippedColumn, ...] = ()

    @cached_property
    def unit(self) -> float:
        """What an integer of one stands for, a power of two."""
        return math.prod(column.unit for column in self.columns)

    @cached_property
    def width(self) -> float:
        """By how much one record changes it at most, rounded up."""
        largest = math.prod(column.reach for column in self.columns)
        return math.nextafter(float(max(self.offset, largest - self.offset)), math.inf) * self.unit

    @cached_property
    def offset(self) -> int:
        """What is subtracted for every record, an integer."""
        if len(self.columns) < 2 or self.columns[0] != self.columns[1]:
            return 0
        return int(self.columns[0].reach ** 2) // 2


class Places:
    """Where coordinates stand in a vector of their values."""

    def __init__(self, coordinates: Sequence[Coordinate]) -> None:
        """Take coordinates, each once."""
        self.of = {coordinate: place for place, coordinate in enumerate(coordinates)}
        self._tables: dict[_Columns, tuple[NDArray[np.intp], NDArray[np.intp], Vector]] = {}

    def table(self, columns: _Columns) -> tuple[NDArray[np.intp], NDArray[np.intp], Vector]:
        """Return the places of sums and of products of columns, and what offsets stand for."""
        if columns not in self._tables:
            size = len(columns)
            products, offsets = np.empty((size, size), dtype=np.intp), np.zeros((size, size))
            for i, one in enumerate(columns):
                for j, other in enumerate(columns[i:], start=i):
                    coordinate = Coordinate((one, other))
                    products[i, j] = products[j, i] = self.of[coordinate]
                    offsets[i, j] = offsets[j, i] = coordinate.offset * coordinate.unit
            sums = np.array([self.of[Coordinate((one,))] for one in columns])
            self._tables[columns] = sums, products, offsets
        return self._tables[columns]


@dataclass(frozen=True, eq=False)
class Moments:
    """Values of coordinates, with noise or without: from them statistics are computed.

    Attributes:
        records: number of records.
        values: values of the coordinates.
        places: where each of them stands.
    """

    records: float
    values: Vector
    places: Places = field(repr=False)

    @property
    def divisor(self) -> float:
        """The number of records, at least one: what means are divided by."""
        return max(self.records, 1.0)

    def sum(self, column: ClippedColumn) -> float:
        """Return the sum of what values are beyond the middle."""
        return float(self.values[self.places.of[Coordinate((column,))]])

    def mean(self, column: ClippedColumn) -> float:
        """Return the mean of what values are beyond the middle."""
        return self.sum(column) / self.divisor

    def covariance(self, columns: _Columns) -> Vector:
        """Return the means of products of what values are beyond their means."""
        sums, products, offsets = self.places.table(columns)
        means = self.values[sums] / self.divisor
        found: Vector = self.values[products] / self.divisor + offsets - np.outer(means, means)
        return found


def queries_of(coordinates: Sequence[Coordinate]) -> list[Query]:
    """Return what a table is asked, to be answered by `exact_sums`."""
    sums, products = _columns(coordinates, 1), _columns(coordinates, 2)
    queries: list[Query] = [Counts()]
    queries += [Sums(sums)] if sums else []
    queries += [Products(products)] if products else []
    return queries


def exact_sums(coordinates: Sequence[Coordinate], answers: Sequence[Answer]) -> list[int]:
    """Return the integer of every coordinate, which is secret.

    Args:
        coordinates: what is asked for.
        answers: answers to `queries_of` these coordinates.
    """
    records, *rest = answers
    sums, products = (
        {column: i for i, column in enumerate(_columns(coordinates, power))} for power in (1, 2)
    )
    of_sums = rest.pop(0) if sums else None
    of_products = rest.pop(0) if products else None
    found = []
    for coordinate in coordinates:
        if not coordinate.columns:
            total = int(records[()])
        elif len(coordinate.columns) == 1:
            assert of_sums is not None
            total = int(of_sums[sums[coordinate.columns[0]]])
        else:
            assert of_products is not None
            i, j = (products[column] for column in coordinate.columns)
            total = int(of_products[i, j]) - coordinate.offset * int(records[()])
        found.append(total)
    return found


def _columns(coordinates: Sequence[Coordinate], power: int) -> tuple[ClippedColumn, ...]:
    """Return the columns of all coordinates with so many factors, each once."""
    wanted = (one for one in coordinates if len(one.columns) == power)
    return tuple(dict.fromkeys(column for one in wanted for column in one.columns))
