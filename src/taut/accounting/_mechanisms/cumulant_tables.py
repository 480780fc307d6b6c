"""Renyi curves from tables of cumulants at integer orders."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taut._base.arrays import Vector
from taut._base.floats import UP
from taut._base.worst_record import OPERATIONS_FACTOR
from taut.accounting.renyi._sums import LARGEST_TABULATED, Orders, interpolated

__all__ = ["divergences_from", "gaussian_cumulants", "table_size"]

_LEAST_HALF_SQUARE = 1e-290  # a squared shift below would underflow before it is multiplied


def gaussian_cumulants(shift: float, largest: int) -> Vector:
    """Return the cumulants a (a - 1) shift^2 / 2 of Gaussian noise at orders 0 to ``largest``."""
    a = np.arange(largest + 1.0)
    if shift == 0:
        return np.zeros_like(a)
    with np.errstate(over="ignore", invalid="ignore"):
        half_square = np.maximum(np.float64(shift) ** 2 / 2 * OPERATIONS_FACTOR, _LEAST_HALF_SQUARE)
        return np.where(a > 1, a * (a - 1) * half_square * OPERATIONS_FACTOR, 0.0)


def table_size(largest: int) -> int:
    """Return an order of at least ``largest`` + 1, one of few, so that tables can be kept."""
    return max(64, 1 << (largest - 1).bit_length()) + 1


def divergences_from(table: Callable[[int], Vector], orders: Vector) -> Vector:
    """Return divergences at real orders from a table of cumulants, infinite beyond its limit.

    Args:
        table: maps n to bounds on the cumulants at orders 0, 1, ..., n, or more; the one at order
            2 must hold for both orders of the pair.
        orders: real orders above one, shape (m,).
    """

    def at(integers: Orders) -> Vector:
        return table(int(integers[-1]))[integers]

    cumulants = interpolated(orders, at, both=True, largest=LARGEST_TABULATED)
    return cumulants / (orders - 1) * UP
