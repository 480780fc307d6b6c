"""What released numbers say about coefficients: the mean of a normal belief.

A derivation is in docs/theory/regression.md. Nothing here sees private data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.estimators._regression.moments import Measurement, NoisyMoments

__all__ = ["Belief", "first_belief"]

# Variances of a coefficient before anything was seen, between which the belief is spread evenly in
# logarithms: predictions of 1 % up to three times the range of targets.
_LEAST_VARIANCE, _LARGEST_VARIANCE, _VARIANCES = 1e-4, 10.0, 16


@dataclass(frozen=True, eq=False)
class _Hypothesis:
    """A belief about coefficients that had one variance before anything was seen.

    Args:
        variance: variance that coefficients had.
        root: upper triangle R; R'R is the inverse of the covariance.
        right: R times the mean.
        misfit: squared residual of all that was learnt, in units of its noise.
        log_noise: sum of the logarithms of variances of the noise of all that was learnt.
    """

    variance: float
    root: Matrix
    right: Vector
    misfit: float = 0.0
    log_noise: float = 0.0

    @property
    def mean(self) -> Vector:
        return np.asarray(np.linalg.solve(self.root, self.right), dtype=np.float64)

    @property
    def evidence(self) -> float:
        """The logarithm of the likelihood of all that was learnt, up to a constant."""
        sizes = 2 * np.log(np.abs(np.diag(self.root))).sum()
        whole = self.log_noise + self.misfit + sizes + self.right.size * math.log(self.variance)
        return float(-whole / 2)

    def learn(self, matrix: Matrix, errors: Matrix, seen: Measurement) -> _Hypothesis:
        """Return the belief after a measurement of ``matrix @ (coefficients - seen.at)``.

        Args:
            matrix: released X'X, made positive.
            errors: variances of its noise, which is taken for noise of the measurement.
            seen: the measurement.
        """
        spread = (np.linalg.inv(self.root) ** 2).sum(axis=1)
        noise = seen.variances + errors @ (spread + (self.mean - seen.at) ** 2)
        weights = 1 / np.sqrt(noise)
        upper = np.column_stack([self.root, self.right])
        lower = np.column_stack([matrix, seen.cross + matrix @ seen.at]) * weights[:, None]
        triangle: Matrix = np.asarray(np.linalg.qr(np.vstack([upper, lower]), mode="r"))
        return _Hypothesis(
            self.variance,
            triangle[:-1, :-1],
            triangle[:-1, -1],
            self.misfit + float(triangle[-1, -1]) ** 2,
            self.log_noise + float(np.log(noise).sum()),
        )


@dataclass(frozen=True, eq=False)
class Belief:
    """What is believed about coefficients after some measurements.

    Args:
        matrix: released X'X, made steady and positive.
        errors: variances of what noise is left in it.
        hypotheses: beliefs by the variance that coefficients had before.
    """

    matrix: Matrix
    errors: Matrix
    hypotheses: Sequence[_Hypothesis]

    @property
    def mean(self) -> Vector:
        """The mean of the coefficients, over all hypotheses."""
        evidence = np.array([one.evidence for one in self.hypotheses])
        weights = np.exp(evidence - evidence.max())
        means = np.array([one.mean for one in self.hypotheses])
        mean: Vector = weights @ means / weights.sum()
        return mean

    def learn(self, seen: Measurement) -> Belief:
        """Return the belief after one more measurement."""
        return Belief(
            self.matrix,
            self.errors,
            [one.learn(self.matrix, self.errors, seen) for one in self.hypotheses],
        )


def first_belief(moments: NoisyMoments, features: int) -> Belief:
    """Return the belief after a release of moments.

    Args:
        moments: released moments.
        features: number of columns of the design that are features, the first ones.
    """
    size = moments.cross.size
    variances = np.geomspace(_LEAST_VARIANCE, _LARGEST_VARIANCE, _VARIANCES).tolist()
    open_minded = [_Hypothesis(t, np.eye(size) / math.sqrt(t), np.zeros(size)) for t in variances]
    matrix, errors = _steadied(moments.design, moments.design_variances, features)
    return Belief(matrix, errors, open_minded).learn(moments.measurement)


def _steadied(matrix: Matrix, variances: Matrix, features: int) -> tuple[Matrix, Matrix]:
    """Return X'X with eigenvalues pulled together as far as noise has spread them.

    Linear shrinkage of Ledoit and Wolf (2004), with noise of a known size in the place of sampling;
    what is left of the noise is counted by its variances alone.
    """
    part = (slice(features), slice(features))
    mean = max(float(np.trace(matrix[part])) / features, 0.0)
    even = mean * np.eye(features)
    spread = float(((matrix[part] - even) ** 2).sum())
    pull = min(1.0, float(variances[part].sum()) / max(spread, 1e-300))
    steady, left = matrix.copy(), variances.copy()
    steady[part] = (1 - pull) * matrix[part] + pull * even
    left[part] = (1 - pull) * variances[part]
    return _positive_part(steady), left


def _positive_part(matrix: Matrix) -> Matrix:
    """Return the nearest symmetric matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh(matrix)
    nearest: Matrix = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return nearest
