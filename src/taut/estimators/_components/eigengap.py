"""A subspace with noise that fits its eigengap, which is released first.

One record moves the projector on the leading eigenvectors by no more than their gap allows. A noisy
gap, less what noise exceeds with a small probability only, is a lower bound on it; noise for that
bound is added to the projector. Where it is too small to gain anything, the rest of the budget goes
to second moments as usual (docs/theory/principal-components.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from taut._base.arrays import Matrix
from taut.accounting import Adjacency, PrivacyLoss, approximate, gaussian_mu
from taut.estimators._components.moments import JointMoments, joint_moments
from taut.estimators._components.spectrum import Spectrum, leading, with_signs
from taut.estimators._contract.row_wise import in_blocks, projected
from taut.noise import Box, L2Ball, NoiseMechanism, RandomSource, Source, optimal_gaussian

__all__ = ["EigengapRelease", "eigengap_release", "projector_reach"]

_FAILURE_SHARE = 0.1  # of delta, for a lower bound on the gap that is too high
# Of the budget mu^2. A gap that helps is large against its noise, whatever the share is.
_GAP_SHARE = 0.05
_INNER_SHARE = 0.05  # for variances within the subspace, and the count
_BELOW = 1 - 1e-9  # of the budget: what rounding of shares, scales and quantiles may spend
_MOST_COLUMNS = 1 << 10
_MOST_ENTRIES = 1 << 37  # a terabyte: the number of rows is no reason to refuse any that are there
_QUANTUM = 2.0**-19  # of entries
_CHUNK = 1 << 12  # rows whose products sum exactly in doubles
_LOW_BITS = 25  # of a sum of 2^50, so that sums of both parts, over 2^25 chunks, are exact doubles
# Frobenius distance to the matrix whose exact eigenvectors LAPACK's are: 64 roundings of the
# largest eigenvalue, at most the number of rows, per column.
_ROUNDING = 64 * 2.0**-53 * _MOST_ENTRIES


def projector_reach(gap: float) -> float:
    """Return how far one record moves the projector on leading eigenvectors, in Frobenius norm.

    Args:
        gap: distance of the eigenvalues on both sides, in units of the squared norm of a row.

    **Guarantee**: sqrt(2) sin(arcsin(1 / gap) / 2) for all data that have a record more or less
    than data with this gap, if it is above 1 (docs/theory/principal-components.md); infinity
    otherwise.
    """
    if not gap > 1:
        return math.inf
    return math.sqrt(2) * math.sin(math.asin(1 / gap) / 2)


@dataclass(frozen=True)
class EigengapRelease:
    """A gap, then a subspace or second moments, at a price that does not depend on which.

    Attributes:
        columns: number of columns.
        kept: number of leading directions, less than the columns.
        row_norm: l2 norm to which rows are clipped.
        epsilon: epsilon of the promise.
        delta: its delta, of which a part is kept for a gap that is overestimated.
    """

    columns: int
    kept: int
    row_norm: float
    epsilon: float
    delta: float

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release, whichever way it goes."""
        return approximate(self.epsilon, self.delta)

    def release(self, rows: Matrix, source: RandomSource | None) -> Spectrum:
        """Return leading directions of rows, and variances along them."""
        unit = self._unit(rows)
        values, vectors = np.linalg.eigh(_second_moments(unit))
        gap = float(values[-self.kept] - values[-self.kept - 1])
        noisy = float(self._gap_noise.release([gap], source)[0])
        reach = self._reach(noisy)
        outer = self._mu * math.sqrt(1 - _GAP_SHARE)
        inner = self._mu * math.sqrt(1 - _GAP_SHARE - _INNER_SHARE)
        # Noise of the subspace, against that of second moments over what they are divided by.
        if reach / inner < 1 / (outer * max(noisy, 1.0)):
            top = vectors[:, -self.kept :]
            axes = self._subspace(top @ top.T, reach, inner, source)
            return self._within(unit, axes, source)
        found = self._moments(self.columns, outer).release(unit * self.row_norm, source)
        return replace(leading(found.covariance, found.mean, self.kept), total=None)

    @cached_property
    def _mu(self) -> float:
        return gaussian_mu(self.epsilon, self.delta * (1 - _FAILURE_SHARE)) * _BELOW

    @cached_property
    def _gap_noise(self) -> NoiseMechanism:
        moved = Box([1 + 4 * _ROUNDING], source=Source.CLIPPED)
        return optimal_gaussian(moved, multiplier=1 / (self._mu * math.sqrt(_GAP_SHARE)))

    def _reach(self, noisy: float) -> float:
        """Return how far a record moves the projector, whatever the gap is, but for a failure."""
        noise = self._gap_noise
        scale = math.sqrt(float(noise.coordinate_errors()[0]))
        most = -float(ndtri(_FAILURE_SHARE * self.delta * _BELOW)) * scale + float(noise.grid[0])
        low = noisy - most * (1 + 1e-9) - 2 * _ROUNDING
        if not low > 1 + 16 * _ROUNDING:  # so that rounding, below, turns the subspace by little
            return math.inf
        rounding = 2 * math.sqrt(2) * _ROUNDING / (low - 1)
        return projector_reach(low) + rounding

    def _subspace(
        self, projector: Matrix, reach: float, mu: float, source: RandomSource | None
    ) -> Matrix:
        """Return the leading eigenvectors of a noisy projector, one per row."""
        i, j = np.triu_indices(self.columns)
        # Entries beside the diagonal count twice in the Frobenius norm.
        factors = np.where(i == j, 1.0, math.sqrt(2))
        ball = L2Ball(i.size, reach, source=Source.CLIPPED)
        noise = optimal_gaussian(ball, multiplier=1 / mu)
        noisy: Matrix = np.zeros(projector.shape)
        noisy[i, j] = noise.release(projector[i, j] * factors, source) / factors
        noisy += np.triu(noisy, 1).T
        axes: Matrix = np.asarray(np.linalg.eigh(noisy)[1], dtype=np.float64)[:, -self.kept :].T
        return axes

    def _within(self, unit: Matrix, axes: Matrix, source: RandomSource | None) -> Spectrum:
        """Return directions within a released subspace, by the moments of the rows in it."""
        inside = self._moments(self.kept, self._mu * math.sqrt(_INNER_SHARE))
        found = inside.release(projected(unit, axes.T) * self.row_norm, source)
        spectrum = leading(found.covariance, np.zeros(self.columns), self.kept)
        return replace(spectrum, components=with_signs(spectrum.components @ axes), total=None)

    def _moments(self, columns: int, mu: float) -> JointMoments:
        wanted = joint_moments(
            columns,
            self.row_norm,
            with_mean=False,
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=Adjacency.ADD_REMOVE,
        )
        return wanted.at(mu)

    def _unit(self, rows: Matrix) -> Matrix:
        """Return rows of length one at most, cut towards zero to multiples of a quantum."""
        ball, unit, start = L2Ball(self.columns, self.row_norm), np.empty(rows.shape), 0
        for block in in_blocks(rows):
            clipped = ball.clip(block) / self.row_norm
            unit[start : start + len(block)] = np.trunc(clipped / _QUANTUM) * _QUANTUM
            start += len(block)
        return unit


def eigengap_release(
    columns: int,
    kept: int,
    row_norm: float,
    *,
    records: int,
    epsilon: float,
    delta: float,
) -> EigengapRelease:
    """Return the release, or refuse sizes for which it has no proof or no use."""
    if kept >= columns:
        raise ValueError(
            f"n_components must be less than the number of columns, {columns}, for "
            f"noise='eigengap', got n_components={kept}: all directions together have no gap"
        )
    if columns > _MOST_COLUMNS or columns * records > _MOST_ENTRIES:
        raise ValueError(
            f"X must have at most {_MOST_COLUMNS} columns, and 2^37 entries, for "
            f"noise='eigengap', got {columns} columns; rounding is not covered beyond"
        )
    if not 1e-290 < delta < 0.5:
        raise ValueError(
            f"delta must be above 1e-290 and below 1/2 for noise='eigengap', got delta={delta!r}"
        )
    return EigengapRelease(columns, kept, row_norm, epsilon, delta)


def _second_moments(unit: Matrix) -> Matrix:
    """Return the sum of x xᵀ over rows in multiples of the quantum, rounded once."""
    columns = unit.shape[1]
    low, high = np.zeros((2, columns, columns), dtype=np.int64)
    for start in range(0, len(unit), _CHUNK):
        part = unit[start : start + _CHUNK] / _QUANTUM
        products = (part.T @ part).astype(np.int64)
        low += products & ((1 << _LOW_BITS) - 1)
        high += products >> _LOW_BITS
    whole = high.astype(np.float64) * 2.0**_LOW_BITS + low.astype(np.float64)
    return whole * _QUANTUM**2
