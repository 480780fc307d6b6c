"""Gradient descent for multinomial logistic regression, on sums over all records with noise.

All records take part in every step: for a linear model a step costs two products of tables, and for
a given promise no sampling leaves less noise on the sum of all steps (docs/logistic-regression.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Matrix, along_rows
from taut.accounting import Adjacency
from taut.estimators._contract.gaussian_budget import GaussianBudget
from taut.noise import (
    Box,
    FixedRows,
    GaussianProducts,
    RandomSource,
    Source,
    gaussian_with_scales,
)

__all__ = ["GradientDescent"]

_SPLIT = 1 + 1e-10  # of the noise of every part: mechanisms round up
_SHARE = 0.01  # of mu² for the number of records: it only sets lengths of steps
_MOMENTUM = 0.9
_STEADY = 40.0  # length of a step, momentum counted, that rows of length one never let grow
_LEAST_STEPS, _MOST_STEPS = 20, 100
_NOISE = 0.5  # deviation of the noise of all steps together on the score of the longest row
_BITS = 2.0**20  # of rows and of weights, so that products of 4096 are sums of integers
_COLUMNS = 1 << 12  # that are summed without an error
_BLOCK = 1 << 14  # rows at a time


@dataclass(frozen=True)
class GradientDescent(GaussianBudget):
    """Multinomial logistic regression at a promise.

    Args:
        epsilon: epsilon of the promise.
        delta: probability delta of the promise.
        classes: number of classes.
        clip: l2 norm of the error of one record's probabilities at which it is cut.
        steps: number of steps; None to choose by the number of records.
        adjacency: neighbouring relation.

    **Guarantee**: `loss` for everything that `fit` returns: one Gaussian release of the number of
    records, if it is private, and in view of it a fixed number of Gaussian releases of sums of
    r xᵀ, of which each record has one with |r| <= clip and |x| <= 1.

    Raises:
        InfeasibleBudget: if no Gaussian noise within floating point keeps the promise.
    """

    epsilon: float
    delta: float
    classes: int
    clip: float
    steps: int | None
    adjacency: Adjacency

    def fit(
        self, rows: Matrix, numbers: NDArray[np.int64], source: RandomSource | None
    ) -> tuple[Matrix, int]:
        """Return one row of weights per class, and the number of steps.

        Args:
            rows: private rows, of length at most one; zero for records that do not count.
            numbers: private number of every record's class; -1 for records that do not count.
            source: source of the noise.
        """
        whole = numbers >= 0
        count = self._count(whole, source)
        length, steps = self._lengths(count)
        products = self._products(steps)
        fixed = FixedRows(rows, 1.0)
        weights = np.zeros((self.classes, rows.shape[1]))
        direction = np.zeros_like(weights)
        for _ in range(steps):
            errors = self._errors(fixed.entries, weights, numbers)
            gradient = products.release(errors, fixed, source) / count
            # Errors sum to zero over classes; noise that does not is left out.
            direction = _MOMENTUM * direction + (gradient - gradient.mean(axis=0))
            weights = weights - (1 - _MOMENTUM) * length * direction
        return weights, steps

    def _count(self, whole: NDArray[np.bool_], source: RandomSource | None) -> float:
        """Return the number of records, with noise unless it is public."""
        if self.adjacency is Adjacency.REPLACE:
            return float(len(whole))
        scale = _SPLIT / (self.mu * math.sqrt(_SHARE))
        mechanism = gaussian_with_scales(Box([1.0], source=Source.CLIPPED), [scale])
        noisy = float(mechanism.release_sum(whole[:, None].astype(np.float64), source)[0])
        return max(noisy, scale, 1.0)

    def _lengths(self, count: float) -> tuple[float, int]:
        """Return the length of a step and the number of steps.

        Noise on a weight, after all steps, is length * steps * clip / (mu count) whatever the
        number of steps: so their whole length is what the noise allows.
        """
        reach = 2 if self.adjacency is Adjacency.REPLACE else 1
        whole = _NOISE * self.mu * count / (reach * self.clip)
        if self.steps is None:
            steps = int(min(max(math.ceil(whole / _STEADY), _LEAST_STEPS), _MOST_STEPS))
        else:
            steps = self.steps
        return min(whole / steps, _STEADY), steps

    def _products(self, steps: int) -> GaussianProducts:
        is_replaced = self.adjacency is Adjacency.REPLACE
        left = 1.0 if is_replaced else 1 - _SHARE
        reach = 2 if is_replaced else 1
        scale = reach * self.clip * math.sqrt(steps / left) / self.mu * _SPLIT
        return GaussianProducts(self.clip, 1.0, scale, self.adjacency)

    def _errors(self, entries: Matrix, weights: Matrix, numbers: NDArray[np.int64]) -> Matrix:
        """Return probabilities minus labels; zero for records that do not count.

        Every row depends on its record alone, to the last bit: scores are sums of integers.
        """
        unit = max(float(np.abs(weights).max()), 1e-300)
        coarse = np.rint(weights / unit * _BITS) / _BITS
        errors = np.empty((len(entries), self.classes))
        for start in range(0, len(entries), _BLOCK):
            part = slice(start, start + _BLOCK)
            scores = np.zeros((len(entries[part]), self.classes))
            for first in range(0, entries.shape[1], _COLUMNS):
                columns = slice(first, first + _COLUMNS)
                scores += entries[part, columns] @ coarse[:, columns].T
            # Rows are in units of two: the power above their largest length, one.
            errors[part] = _probabilities(scores * (2 * unit))
        errors[np.arange(len(errors)), numbers] -= 1.0
        errors[numbers < 0] = 0.0
        return errors


def _probabilities(scores: Matrix) -> Matrix:
    """Return the softmax of every row."""
    with np.errstate(all="ignore"):
        odds = np.exp(scores - along_rows(np.maximum, scores, -np.inf)[:, None])
        result: Matrix = odds / along_rows(np.add, odds, 0.0)[:, None]
    return result
