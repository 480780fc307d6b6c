"""Clusters around means, with a promise."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency, gaussian, gaussian_mu
from taut.estimators._clusters.seeds import Seeding
from taut.estimators._components.moments import joint_moments
from taut.estimators._contract.estimator import (
    Ledger,
    PrivateEstimator,
    whole_or_nothing,
)
from taut.estimators._contract.inputs import column_bounds, features, refuse_extras
from taut.estimators._contract.row_wise import in_blocks, nearest, squared_distances
from taut.noise import (
    Box,
    CentredRanges,
    GaussianNoise,
    RandomSource,
    Ranges,
    Source,
    optimal_gaussian,
)

__all__ = ["PrivateKMeans"]

_MOST_CLUSTERS = 1000
_MOST_PLACED = 3  # columns that all have a place in the histogram of seeds
# Of the budget mu^2, for directions, seeds and steps; without directions seeds have their share.
_DIRECTIONS_SHARE, _SEEDS_SHARE, _STEPS_SHARE = 0.15, 0.35, 0.5
_BELOW = 1 - 1e-9  # of the budget: what rounding of shares may spend
_CLEAR = 4.0  # deviations of a sum that a count must have for its cluster to move


class PrivateKMeans(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    PrivateEstimator,
):
    """Centres of clusters: seeds from a noisy histogram, then a few noisy steps of Lloyd's.

    Args:
        n_clusters: number of clusters.
        bounds: public pair (lower, upper), of numbers or of one number per column; entries beyond
            are clipped. Distances are in the units of the data.
        n_steps: steps that move centres to the noisy means of their records.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise.
        adjacency: ``"add_remove"``.
        ledger: budget that the fit is charged to.
        generator: source of the noise, by default the secure generator.

    Directions in which records spread most come from noisy second moments. Records are counted in
    cells along three of them; what k-means makes of cells with noisy counts, which costs nothing,
    are the seeds.

    Attributes:
        cluster_centers_: the centres, one per row. Where their records are, is for `predict`.
        loss_: privacy loss of the fit.
        promise_: what may be published about it.

    **Guarantee**: `loss_`, for add/remove: Gaussian releases one after the other, of a joint mu.
    A record is in one cell of the histogram, and in one cluster of a step, whatever the others
    are; so that releases of a step cost what one does. Rows with NaN or infinity are counted
    nowhere.

    Raises:
        ValueError: if bounds are missing or a number is out of its range.

    Example:
        >>> import numpy as np
        >>> from taut.estimators import PrivateKMeans
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(rng.choice([-2.0, 2.0], 5000)[:, None], 0.5, size=(5000, 2))
        >>> centres = PrivateKMeans(2, bounds=(-5, 5), epsilon=1.0).fit(rows).cluster_centers_
        >>> np.sort(centres[:, 0]).round().tolist()
        [-2.0, 2.0]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        n_steps: int = 3,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        adjacency: Adjacency | str = "add_remove",
        ledger: Ledger | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.bounds = bounds
        self.n_steps = n_steps
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.ledger = ledger
        self.generator = generator

    @whole_or_nothing
    def fit(self, X: Any, y: Any = None, **extras: object) -> Self:
        """Release the centres.

        Args:
            X: table, one row per record.
            y: ignored.
            **extras: refused; weights with the reason.
        """
        refuse_extras(self, extras)
        table = features(self, X, reset=True)
        self._relation(Adjacency.ADD_REMOVE)
        lower, upper = column_bounds(self.bounds, table.shape[1])
        clusters = validate.positive_integer(n_clusters=self.n_clusters)
        if clusters > _MOST_CLUSTERS:
            raise ValueError(
                f"n_clusters must be at most {_MOST_CLUSTERS}, got n_clusters={clusters}"
            )
        steps = validate.positive_integer(n_steps=self.n_steps)
        epsilon, delta = self._budget()
        mu = gaussian_mu(epsilon, delta) * _BELOW
        middle, width = lower / 2 + upper / 2, upper / 2 - lower / 2
        longest = float(width.max())
        half = width / longest
        seeding = self._seeding(clusters, half, epsilon, delta, mu * _BELOW)
        noise = _noise_of_sums(half, mu * _BELOW * math.sqrt(_STEPS_SHARE / steps))
        self._begin(gaussian(1 / mu))
        whole = np.isfinite(table).all(axis=1)
        rows = (np.clip(table[whole], lower, upper) - middle) / longest
        rows = np.clip(rows, -half, half)
        centres = seeding.seeds(rows, self.generator)
        for _ in range(steps):
            centres = self._step(rows, centres, half, noise)
        self.cluster_centers_: Matrix = middle + longest * centres
        return self

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Return the place of the nearest centre for every row."""
        check_is_fitted(self)
        table = features(self, X, reset=False)
        with np.errstate(all="ignore"):
            return nearest(table, self.cluster_centers_)

    def fit_predict(self, X: Any, y: Any = None, **extras: object) -> NDArray[np.intp]:
        """Release the centres, and return the nearest one for every row, which is private."""
        return self.fit(X, y, **extras).predict(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the sum of squared distances to the nearest centres, which is private.

        Args:
            X: table, one row per record; rows that are no finite numbers are left out.
            y: ignored.
        """
        distances = self.transform(X).min(axis=1)
        return -float(np.sum(np.square(distances[np.isfinite(distances)])))

    def transform(self, X: Any) -> Matrix:
        """Return the distances of rows to all centres."""
        check_is_fitted(self)
        table = features(self, X, reset=False)
        with np.errstate(all="ignore"):
            distances = [squared_distances(table, centre) for centre in self.cluster_centers_]
            result: Matrix = np.sqrt(np.stack(distances, axis=1))
        return result

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _seeding(
        self, clusters: int, half: Vector, epsilon: float, delta: float, mu: float
    ) -> Seeding:
        if half.size <= _MOST_PLACED:
            both = _DIRECTIONS_SHARE + _SEEDS_SHARE
            return Seeding(clusters, half, None, mu * math.sqrt(both))
        moments = joint_moments(
            half.size,
            float(np.linalg.norm(half)),
            with_mean=True,
            epsilon=epsilon,
            delta=delta,
            adjacency=Adjacency.ADD_REMOVE,
        )
        spent = mu * math.sqrt(_DIRECTIONS_SHARE)
        return Seeding(clusters, half, moments.at(spent), mu * math.sqrt(_SEEDS_SHARE))

    def _step(self, rows: Matrix, centres: Matrix, half: Vector, noise: GaussianNoise) -> Matrix:
        """Return the noisy means of clusters; those with too few records stay where they are."""
        sums = _sums(half)
        clear = _CLEAR * float(noise.scales[1:].max())
        places = nearest(rows, centres)
        moved = centres.copy()
        for place in range(len(centres)):
            parts = (sums.clip(block) for block in in_blocks(rows[places == place]))
            released = noise.release_sum_blocks(parts, self.generator)
            if released[0] > clear:
                moved[place] = np.clip(released[1:] / released[0], -half, half)
        return moved


def _sums(half: Vector) -> CentredRanges:
    """Return what is summed of a cluster: ones, and rows within their half widths."""
    return Ranges(np.stack([-half, half], axis=1)).centred()


def _noise_of_sums(half: Vector, mu: float) -> GaussianNoise:
    """Return the noise of one step: errors of means add up, and that of the count moves them all.

    Raises:
        UnsoundConfiguration: for widths too far apart for floating point.
    """
    box = Box(_sums(half).widths, source=Source.CLIPPED)
    weights = [float(half @ half), *np.ones(half.size)]
    return optimal_gaussian(box, multiplier=1 / mu, weights=weights)
