"""Statistics of tables: counts, sums, means, histograms, quantiles, with noise for one record."""

from taut._base import surface
from taut.statistics._releases.descriptions import (
    CellCounts,
    Count,
    Covariance,
    Mean,
    Quantiles,
    Statistic,
    Total,
    Variance,
)
from taut.statistics._releases.estimated_bounds import EstimatedBounds, estimate_bounds
from taut.statistics._releases.estimates import Estimate, Interval, Released
from taut.statistics._releases.expected import Expected, expected_errors
from taut.statistics._releases.groups import GroupMeans, GroupTotals
from taut.statistics._releases.release import check_columns, release
from taut.statistics._releases.single import (
    Budget,
    count,
    covariance,
    histogram,
    mean,
    quantiles,
    total,
    variance,
)
from taut.statistics._tables.cells import Categories, Intervals
from taut.statistics._tables.clipped_column import ClippedColumn
from taut.statistics._tables.table import Table

__all__ = [
    "Budget",
    "Categories",
    "CellCounts",
    "ClippedColumn",
    "Count",
    "Covariance",
    "Estimate",
    "EstimatedBounds",
    "Expected",
    "GroupMeans",
    "GroupTotals",
    "Interval",
    "Intervals",
    "Mean",
    "Quantiles",
    "Released",
    "Statistic",
    "Table",
    "Total",
    "Variance",
    "check_columns",
    "count",
    "covariance",
    "estimate_bounds",
    "expected_errors",
    "histogram",
    "mean",
    "quantiles",
    "release",
    "total",
    "variance",
]

surface.claim(globals())
