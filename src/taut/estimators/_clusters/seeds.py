"""Seeds: clusters of the cells of a noisy histogram, in the directions that spread most."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from taut._base.arrays import Matrix, Vector
from taut.estimators._components.moments import JointMoments
from taut.estimators._contract.row_wise import projected
from taut.noise import Histogram, RandomSource, optimal_gaussian

__all__ = ["Seeding"]

_DIRECTIONS = 3  # of the histogram: more have too many cells for their records
_MOST_CELLS = {1: 256, 2: 64, 3: 20}  # per direction, by the number of directions
_FULL = 4.0  # deviations of its noise that the mean count of a cell should have
_REACH = 2.5  # standard deviations to either side that the cells cover
_LEAST_SPREAD = 1e-2  # of a direction: noise may leave no variance at all
_STARTS = 5  # of the clustering of cells, which costs nothing


@dataclass(frozen=True)
class Seeding:
    """How seeds are found: what is released, and for how much of the budget.

    Attributes:
        clusters: number of seeds.
        half: half widths of the columns, which are centred at zero.
        moments: second moments for the directions; None if all columns have a place.
        mu: what the histogram may spend.
    """

    clusters: int
    half: Vector
    moments: JointMoments | None
    mu: float

    def seeds(self, rows: Matrix, source: RandomSource | None) -> Matrix:
        """Return seeds for rows within the half widths."""
        centre, axes, spread, count = self._frame(rows, source)
        cells = self._cells(axes.shape[1], count)
        shape = (cells,) * axes.shape[1]
        scores = (projected(rows, axes) - centre @ axes) / spread
        places = ((scores + _REACH) / (2 * _REACH) * cells).astype(np.int64)
        cell = np.asarray(np.ravel_multi_index(tuple(np.clip(places, 0, cells - 1).T), shape))
        counts = np.bincount(cell, minlength=cells ** len(shape)).astype(np.float64)
        noise = optimal_gaussian(Histogram(counts.size), multiplier=1 / self.mu)
        kept, weights = self._occupied(noise.release(counts, source))
        middles = ((np.array(np.unravel_index(kept, shape)).T + 0.5) / cells * 2 - 1) * _REACH
        found = KMeans(self.clusters, n_init=_STARTS, random_state=0)
        found.fit(middles * spread, sample_weight=weights)
        lifted = centre + found.cluster_centers_ @ axes.T
        seeds: Matrix = np.clip(lifted, -self.half, self.half)
        return seeds

    def _frame(
        self, rows: Matrix, source: RandomSource | None
    ) -> tuple[Vector, Matrix, Vector, float]:
        """Return a centre, directions as columns, the spread along each, and a count."""
        columns = self.half.size
        if self.moments is None:
            # Cells cover the whole range.
            return np.zeros(columns), np.eye(columns), self.half / _REACH, math.inf
        found = self.moments.release(rows, source)
        values, vectors = np.linalg.eigh(found.covariance)
        spread = np.sqrt(np.maximum(values[-_DIRECTIONS:], _LEAST_SPREAD**2))
        return found.mean, vectors[:, -_DIRECTIONS:], spread, found.count

    def _cells(self, directions: int, count: float) -> int:
        """Return the number of cells per direction: enough for the seeds, and not too empty."""
        filled = math.pow(min(count, 1e12) * self.mu / _FULL, 1 / directions)
        least = math.ceil(math.pow(4 * self.clusters, 1 / directions))
        return max(least, min(int(filled), _MOST_CELLS[directions]))

    def _occupied(self, counts: Vector) -> tuple[NDArray[np.intp], Vector]:
        """Return the cells whose counts noise alone would hardly reach, or the fullest ones."""
        kept = np.flatnonzero(counts > math.sqrt(2 * math.log(counts.size)) / self.mu)
        if kept.size < 2 * self.clusters:
            kept = np.sort(np.argsort(counts)[-2 * self.clusters :])
        return kept, np.maximum(counts[kept], 1.0)
