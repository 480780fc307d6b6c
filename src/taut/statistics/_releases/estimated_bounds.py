"""Bounds where none are known in advance: released like everything else, and paid for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from taut._base import validate
from taut.accounting import PrivacyLoss, Promise
from taut.statistics._releases.descriptions import CellCounts
from taut.statistics._releases.release import release
from taut.statistics._releases.single import Budget, column_of
from taut.statistics._tables.cells import Intervals

__all__ = ["EstimatedBounds", "estimate_bounds"]

_MISTAKE = 0.01  # chance that noise alone makes some empty cell seem taken
_MOST_CELLS = 4096
_LARGEST = 2.0**1000  # so that the ends of the outermost cells are floats


@dataclass(frozen=True)
class EstimatedBounds:
    """Bounds that were released, and what they cost.

    Attributes:
        lower: lower bound.
        upper: upper bound.
        promise: what was promised; its loss adds to that of whatever the bounds are used for.
    """

    lower: float
    upper: float
    promise: Promise

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds, for the statistics that take some."""
        return self.lower, self.upper

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of finding them."""
        return self.promise.loss

    def __str__(self) -> str:
        """Return a line for people."""
        return f"bounds [{self.lower:g}, {self.upper:g}]; {self.promise}"


def estimate_bounds(
    data: Any,
    column: str | None = None,
    *,
    epsilon: float,
    smallest: float = 2.0**-10,
    largest: float = 2.0**40,
    **budget: Unpack[Budget],
) -> EstimatedBounds:
    """Return bounds, powers of two, between which nearly all values of a column lie.

    A histogram over public cells that double in width is released; the bounds are the ends of the
    outermost cells whose count stands out of the noise. Few values far away are left outside. Known
    bounds are better: they cost nothing.

    Args:
        data: table, or one array if there is no column to name.
        column: name of the column.
        epsilon: epsilon of the promise.
        smallest: magnitude below which values count as zero, public.
        largest: magnitude beyond which values are cut, public. If no cell stands out, these
            are the bounds.
        **budget: all else that `release` takes, see `Budget`.

    **Guarantee**: that of `release` for a histogram.

    Raises:
        ValueError: if ``smallest`` is not below ``largest``, or they are too far apart.

    Example:
        >>> from taut.statistics import estimate_bounds
        >>> estimate_bounds(list(range(20, 70)) * 100, epsilon=1.0).bounds
        (16.0, 128.0)
    """
    low, high = validate.positive(smallest=smallest), validate.positive(largest=largest)
    first, last = math.frexp(low)[1] - 1, math.ceil(math.log2(high))
    if high > _LARGEST:
        raise ValueError(f"largest must be at most {_LARGEST:g}, got largest={largest!r}")
    if not 0 < last - first <= _MOST_CELLS // 2:
        raise ValueError(
            f"smallest must be below largest, by at most 2^2048, got smallest={smallest!r} and "
            f"largest={largest!r}"
        )
    powers = np.ldexp(1.0, np.arange(first, last + 1))
    edges = np.concatenate([[-np.inf], -powers[::-1][1:], powers[:-1], [np.inf]])
    ends = np.concatenate([-powers[::-1], powers])
    table, name = column_of(data, column)
    cells = CellCounts(Intervals(name, edges))
    counts = release(table, [cells], epsilon=epsilon, **budget).estimates[0]
    values = np.asarray(counts.value)
    noise = np.asarray(counts.interval(1 - 2 * _MISTAKE / values.size).upper) - values
    taken = np.flatnonzero(values > noise)
    bounds = ends[0], ends[-1]
    if taken.size:
        bounds = ends[taken[0]], ends[taken[-1] + 1]
    return EstimatedBounds(float(bounds[0]), float(bounds[1]), counts.promise)
