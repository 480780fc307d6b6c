"""One statistic at a time, of a table or of a single array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from taut.accounting import Adjacency, Ledger
from taut.noise import RandomSource
from taut.statistics._releases.descriptions import (
    Bounds,
    CellCounts,
    Count,
    Covariance,
    Mean,
    Quantiles,
    Statistic,
    Total,
    Variance,
)
from taut.statistics._releases.estimates import Estimate
from taut.statistics._releases.release import release
from taut.statistics._tables.cells import Categories, Cells, Intervals, Label
from taut.statistics._tables.table import Table

__all__ = [
    "Budget",
    "column_of",
    "count",
    "covariance",
    "histogram",
    "mean",
    "quantiles",
    "total",
    "variance",
]

_ALONE = "value"  # what the only column of an array is called


class Budget(TypedDict, total=False):
    """What every function of one statistic takes by name, as `release` does.

    Attributes:
        delta: probability delta of the promise; left out, the promise is pure.
        adjacency: ``"add_remove"``, the default, or ``"replace"``.
        records: number of records, for ``"replace"``, where it is public.
        ledger: who keeps the budget.
        generator: source of the noise, by default the secure generator.
    """

    delta: float
    adjacency: Adjacency | str
    records: int | None
    ledger: Ledger | None
    generator: RandomSource | None


def count(data: Any, *, epsilon: float, **budget: Unpack[Budget]) -> Estimate:
    """Return the number of records, with whole noise.

    Args:
        data: table, or one array.
        epsilon: epsilon of the promise.
        **budget: all else that `release` takes, see `Budget`.

    **Guarantee**: that of `release`.

    Example:
        >>> from taut.statistics import count
        >>> count([3, 1, 4, 1, 5], epsilon=1.0).value % 1
        0.0
    """
    table = data if _has_columns(data) else column_of(data, None)[0]
    return _only(table, Count(), epsilon, budget)


def total(
    data: Any,
    column: str | None = None,
    *,
    bounds: Bounds,
    epsilon: float,
    **budget: Unpack[Budget],
) -> Estimate:
    """Return the sum of a column.

    Args:
        data: table, or one array if there is no column to name.
        column: name of the column.
        bounds: public lower and upper bound; values beyond them count as the bounds, and missing
            values as the middle.
        epsilon: epsilon of the promise.
        **budget: all else that `release` takes, see `Budget`.

    **Guarantee**: that of `release`.

    Example:
        >>> from taut.statistics import total
        >>> found = total([3.0, 1.0, 4.0] * 100, bounds=(0, 5), epsilon=2.0)
        >>> abs(found.value - 800) < 20 * found.standard_error
        True
    """
    table, name = column_of(data, column)
    return _only(table, Total(name, bounds), epsilon, budget)


def mean(
    data: Any,
    column: str | None = None,
    *,
    bounds: Bounds,
    epsilon: float,
    **budget: Unpack[Budget],
) -> Estimate:
    """Return the mean of a column.

    Args:
        data: table, or one array if there is no column to name.
        column: name of the column.
        bounds: public lower and upper bound; values beyond them count as the bounds, and missing
            values as the middle.
        epsilon: epsilon of the promise.
        **budget: all else that `release` takes, see `Budget`.

    **Guarantee**: that of `release`. A count and the sum around the middle are released, and their
    quotient is cut to the bounds; a count below one is taken as one.

    Example:
        >>> from taut.statistics import mean
        >>> found = mean({"age": [31.0, 64.0, 45.0] * 1000}, "age", bounds=(18, 90), epsilon=1.0)
        >>> abs(found.value - 140 / 3) < 20 * found.standard_error
        True
    """
    table, name = column_of(data, column)
    return _only(table, Mean(name, bounds), epsilon, budget)


def variance(
    data: Any,
    column: str | None = None,
    *,
    bounds: Bounds,
    epsilon: float,
    **budget: Unpack[Budget],
) -> Estimate:
    """Return the variance of a column, the mean of squared differences from its mean.

    Args:
        data: table, or one array if there is no column to name.
        column: name of the column.
        bounds: public lower and upper bound, as for `mean`.
        epsilon: epsilon of the promise.
        **budget: all else that `release` takes, see `Budget`.

    **Guarantee**: that of `release`. Negative values, which noise can make, are cut to zero.

    Example:
        >>> from taut.statistics import variance
        >>> variance([3.0, 1.0, 4.0] * 100, bounds=(0, 5), epsilon=2.0).value >= 0
        True
    """
    table, name = column_of(data, column)
    return _only(table, Variance(name, bounds), epsilon, budget)


def covariance(
    data: Any,
    *,
    bounds: Mapping[str, Bounds],
    epsilon: float,
    positive: bool = True,
    **budget: Unpack[Budget],
) -> Estimate:
    """Return the covariance matrix of some columns.

    Args:
        data: table.
        bounds: public lower and upper bound of every column, by name.
        epsilon: epsilon of the promise.
        positive: whether negative eigenvalues, which noise can make, are set to zero.
        **budget: all else that `release` takes, see `Budget`.

    **Guarantee**: that of `release`.

    Example:
        >>> from taut.statistics import covariance
        >>> table = {"x": [0.0, 1.0] * 500, "y": [1.0, 0.0] * 500}
        >>> covariance(table, bounds={"x": (0, 1), "y": (0, 1)}, epsilon=1.0).value.shape
        (2, 2)
    """
    return _only(data, Covariance(bounds, positive=positive), epsilon, budget)


def histogram(
    data: Any,
    column: str | None = None,
    *,
    cells: Cells | Sequence[Cells] | Sequence[Label] | None = None,
    edges: Sequence[float] | None = None,
    epsilon: float,
    **budget: Unpack[Budget],
) -> Estimate:
    """Return the number of records in every cell.

    Args:
        data: table, or one array if there is no column to name.
        column: name of the column; left out where cells name theirs.
        cells: public labels of the column, or `Categories` and `Intervals` of one or several.
        edges: public ends of intervals, instead of labels.
        epsilon: epsilon of the promise.
        **budget: all else that `release` takes, see `Budget`.

    **Guarantee**: that of `release`. Noise does not grow with the number of cells.

    Raises:
        ValueError: if there are neither cells nor edges, or both.

    Example:
        >>> from taut.statistics import histogram
        >>> found = histogram(["a", "b", "a"], cells=["a", "b", "c"], epsilon=1.0)
        >>> found.value.shape, round(float(found.standard_error[0]), 3)
        ((3,), 1.357)
    """
    if (cells is None) == (edges is None):
        raise ValueError("give exactly one of cells and edges: both are public, and listed")
    described = cells if isinstance(cells, Sequence) else (cells,)
    if described and all(isinstance(one, Categories | Intervals) for one in described):
        return _only(data, CellCounts(cells), epsilon, budget)  # type: ignore[arg-type]
    table, name = column_of(data, column)
    if edges is not None:
        return _only(table, CellCounts(Intervals(name, edges)), epsilon, budget)
    labels = Categories(name, cells)  # type: ignore[arg-type]  # as they are no cells
    return _only(table, CellCounts(labels), epsilon, budget)


def quantiles(
    data: Any,
    column: str | None = None,
    *,
    shares: Iterable[float],
    bounds: Bounds,
    epsilon: float,
    step: float | None = None,
    **budget: Unpack[Budget],
) -> Estimate:
    """Return values below which given shares of the records lie.

    Args:
        data: table, or one array if there is no column to name.
        column: name of the column.
        shares: shares between 0 and 1, increasing: 0.5 is the median.
        bounds: public lower and upper bound, as for `mean`.
        epsilon: epsilon of the promise.
        step: power of two of which quantiles are multiples, by default some 2^-32 of the range.
        **budget: all else that `release` takes, see `Budget`.

    **Guarantee**: that of `release`. Quantiles are drawn by the exponential mechanism, in order.

    Example:
        >>> from taut.statistics import quantiles
        >>> found = quantiles(range(1001), shares=[0.5], bounds=(0, 2000), epsilon=2.0)
        >>> abs(found.value[0] - 500) < 30
        np.True_
    """
    table, name = column_of(data, column)
    return _only(table, Quantiles(name, shares, bounds, step), epsilon, budget)


def column_of(data: Any, column: str | None) -> tuple[Any, str]:
    """Return a table and the name of its column; an array is a table of one.

    Raises:
        ValueError: if a column is named of an array, or none of a table.
        TypeError: if data are neither.
    """
    if _has_columns(data):
        if column is None:
            Table.open(data)  # a generator, or a matrix, has no columns with names
            raise ValueError("column must be named, as the data have columns")
        return data, column
    if column is not None:
        raise ValueError(f"column must be left out for one array, got column={column!r}")
    return Table.open({_ALONE: data}), _ALONE


def _has_columns(data: Any) -> bool:
    """Say whether data have columns, or are one array."""
    if isinstance(data, list | tuple | range) or hasattr(data, "to_frame"):  # a series, of Polars
        return False
    if hasattr(data, "to_pylist") and not hasattr(data, "schema"):  # an array of Arrow
        return False
    return getattr(data, "ndim", 2) != 1


def _only(data: Any, statistic: Statistic, epsilon: float, budget: Budget) -> Estimate:
    return release(data, [statistic], epsilon=epsilon, **budget).estimates[0]
