"""How far a median can move when records are exchanged, and how many it takes to move it more.

With the sorted data x_1, ..., x_n, the bounds in the place of x_i for i < 1 and i > n, and the rank
m of the median, the largest local sensitivity of all datasets within k exchanges is
A(k) = max over 0 <= t <= k + 1 of x_{m+t} - x_{m+t-k-1} (Nissim, Raskhodnikova and Smith 2007).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector, numbers_or_missing

__all__ = [
    "around_median",
    "checked_range",
    "clipped",
    "farthest",
    "moves_to_exceed",
    "refuse_hopeless",
    "widest",
]


def checked_range(low: float, high: float) -> tuple[float, float]:
    """Return public bounds on the data."""
    lower, upper = validate.finite(low=low), validate.finite(high=high)
    if not lower < upper or not np.isfinite(upper - lower):
        raise ValueError(
            f"low must be below high, by a finite number, got low={low!r} and high={high!r}"
        )
    return lower, upper


def clipped(data: ArrayLike, low: float, high: float) -> Vector:
    """Return one number per record within the bounds; what is no number counts as ``low``.

    Refusing NaN, or a missing entry, would tell that there was one.

    Raises:
        ValueError: if there are no records, or several numbers for each: their number is public.
    """
    values = numbers_or_missing(data, "data")
    if values.ndim != 1 or values.size == 0:
        raise ValueError(
            f"data must be a vector with one number per record, at least one, got shape "
            f"{values.shape}"
        )
    return np.clip(np.nan_to_num(values, nan=low, posinf=high, neginf=low), low, high)


def around_median(values: Vector, low: float, high: float, width: int) -> Vector:
    """Return the sorted data from ``width`` ranks below the median to as many above it.

    Args:
        values: clipped data, shape (n,).
        low: what stands below the first.
        high: what stands above the last.
        width: number of ranks to either side.

    Returns:
        Sorted numbers, shape (2 width + 1,), with the lower median in the middle.
    """
    n, middle = values.size, (values.size + 1) // 2 - 1
    first, last = max(middle - width, 0), min(middle + width, n - 1)
    inner = np.sort(np.partition(values, (first, last))[first : last + 1])
    below, above = width - (middle - first), width - (last - middle)
    return np.concatenate([np.full(below, low), inner, np.full(above, high)])


def widest(near: Vector, moves: int) -> float:
    """Return the largest local sensitivity within so many exchanges, A(moves).

    Args:
        near: sorted data around the median, from `around_median`, of a width above ``moves``.
        moves: number of records that were exchanged.
    """
    middle = near.size // 2
    upper = near[middle : middle + moves + 2]
    lower = near[middle - moves - 1 : middle + 1]
    return float((upper - lower).max())


def moves_to_exceed(values: Vector, low: float, high: float, bound: float, cap: int) -> int:
    """Return the least k with A(k) > ``bound``, at most ``cap``: a query of sensitivity one.

    Only for data within ``low`` and ``high``, as `clipped` returns them.

    Differences are rounded to doubles, which keeps their order: it is the distance to a local
    sensitivity that rounds to more than the bound. One that does not is at most half a unit in
    the last place above it.
    """
    # With all n records exchanged everything is possible: nothing more happens after that.
    width = min(cap, values.size + 1)
    near = around_median(values, low, high, width)
    if widest(near, width - 1) <= bound:
        return cap
    least, most = 0, width - 1  # A is not above the bound before `least`, and is at `most`
    while least < most:
        k = (least + most) // 2
        least, most = (least, k) if widest(near, k) > bound else (k + 1, most)
    return least


def farthest(records: int, low: float, high: float, bound: float) -> int | None:
    """Return the largest distance that any data of a size have; None if all have the same."""
    if bound >= high - low:
        return None
    if 2 * bound >= high - low:
        return records  # data in the middle must all be exchanged
    rank = (records + 1) // 2
    return max(rank, records + 1 - rank) - 1


def refuse_hopeless(records: int, low: float, high: float, bound: float, threshold: int) -> None:
    """Refuse a number of records, which is public, that never passes more often than not."""
    most = farthest(records, low, high, bound)
    if most is not None and most < threshold:
        raise ValueError(
            f"no data of {records} records would pass more often than not: distances are at most "
            f"{most}, and the test asks for {threshold}. Give the test a larger epsilon or delta, "
            "or propose a larger bound"
        )
