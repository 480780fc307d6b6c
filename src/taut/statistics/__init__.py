"""Statistics of tables: counts, sums, means, histograms, quantiles, with noise for one record."""

from taut._base import surface
from taut.statistics._tables.cells import Categories, Intervals
from taut.statistics._tables.clipped_column import ClippedColumn
from taut.statistics._tables.table import Table

__all__ = ["Categories", "ClippedColumn", "Intervals", "Table"]

surface.claim(globals())
