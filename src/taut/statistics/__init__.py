"""Statistics of tables: counts, sums, means, histograms, quantiles, with noise for one record."""

from taut._base import surface

__all__: list[str] = []

surface.claim(globals())
