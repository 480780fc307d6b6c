"""What principal components need of the data: second moments, sums and a count, with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency, PrivacyLoss
from taut.estimators._contract.row_wise import in_blocks
from taut.noise import GaussianMoments, RandomSource, gaussian_moments

__all__ = ["JointMoments", "MomentsRelease", "NoisyMoments", "joint_moments"]

_TYPICAL_MEAN = 0.5  # squared length of the mean, over that of the longest row


@dataclass(frozen=True)
class NoisyMoments:
    """Second moments with noise.

    Attributes:
        matrix: sum of x xᵀ.
        total: sum of x; zero if a mean was not asked for.
        count: number of records, at least one.
    """

    matrix: Matrix
    total: Vector
    count: float

    @property
    def mean(self) -> Vector:
        """The mean of all records."""
        return self.total / self.count

    @property
    def covariance(self) -> Matrix:
        """The second moment around the mean, per record."""
        mean = self.mean
        result: Matrix = self.matrix / self.count - np.outer(mean, mean)
        return result


class MomentsRelease(Protocol):
    """What releases moments of rows."""

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        ...

    def release(self, rows: Matrix, source: RandomSource | None) -> NoisyMoments:
        """Return the moments of rows, which it clips."""
        ...


@dataclass(frozen=True)
class JointMoments:
    """Second moments, sums and a count as one Gaussian release: a column of ones beside the rows.

    Attributes:
        mechanism: what releases them.
    """

    mechanism: GaussianMoments

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        return self.mechanism.loss

    def at(self, mu: float) -> JointMoments:
        """Return the same with another budget: noise of mu^2, shared as here."""
        factor = self.mechanism.mu / mu
        scales = tuple(tuple(factor * s for s in row) for row in self.mechanism.scales)
        return JointMoments(replace(self.mechanism, scales=scales))

    def release(self, rows: Matrix, source: RandomSource | None) -> NoisyMoments:
        """Return the moments of rows, clipped to the norm of the mechanism."""
        blocks = (np.column_stack([block, np.ones(len(block))]) for block in in_blocks(rows))
        released = self.mechanism.release_blocks(blocks, source)
        public = self.mechanism.adjacency is Adjacency.REPLACE
        count = float(len(rows)) if public else float(released[-1, -1])
        return NoisyMoments(released[:-1, :-1], released[:-1, -1], max(count, 1.0))


def joint_moments(
    columns: int,
    row_norm: float,
    *,
    with_mean: bool,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
) -> JointMoments:
    """Return the release whose covariance has the least expected error, for a typical mean.

    The squared Frobenius error of the covariance is d (d + 1) / 2 variances of the diagonal, plus
    (2 d + 2) |m|^2 of the sums, plus |m|^4 of the count; of a budget mu^2, shares in proportion to
    the roots of these are the best. |m|^2 = 1/2, in units of the clip, stands for all means.
    """
    d = columns
    of_sums = math.sqrt((2 * d + 2) * _TYPICAL_MEAN) if with_mean else 0.0
    of_count = 0.0 if adjacency is Adjacency.REPLACE else _TYPICAL_MEAN
    shares = [[math.sqrt(d * (d + 1) / 2), of_sums], [of_sums, of_count]]
    mechanism = gaussian_moments(
        (d, 1), (row_norm, 1.0), epsilon=epsilon, delta=delta, shares=shares, adjacency=adjacency
    )
    return JointMoments(mechanism)
