"""Second moments whose products are clipped entry by entry, with noise of its own on each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.accounting import PrivacyLoss, gaussian_mu
from taut.estimators._components.moments import NoisyMoments
from taut.estimators._contract.row_wise import in_blocks
from taut.noise import Box, L2Ball, NoiseMechanism, RandomSource, Source, optimal_gaussian

__all__ = ["EntrywiseMoments", "entrywise_moments"]

_MOST_COLUMNS = 512  # whose 131,328 products are summed record by record
# Of the squared norm of a row: sums of multiples of it are exact doubles up to 2^33 records.
_QUANTUM = 2.0**-20
_ROOM = 1 + 1e-10  # of the noise: what an accountant rounds up must still be within the promise
_ROWS = 1 << 8  # whose products are held at a time


@dataclass(frozen=True)
class EntrywiseMoments:
    """The upper triangle of the sum of x xᵀ with clipped entries, and a count, with noise.

    Attributes:
        columns: number of columns.
        row_norm: l2 norm to which rows are clipped first.
        widths: bounds on the entries, in units of the squared norm.
        mechanism: Gaussian noise for the entries and, as the last coordinate, the count.
    """

    columns: int
    row_norm: float
    widths: Vector
    mechanism: NoiseMechanism

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release."""
        return self.mechanism.loss

    def release(self, rows: Matrix, source: RandomSource | None) -> NoisyMoments:
        """Return the moments of clipped rows, in the units of the data."""
        ball, sums = L2Ball(self.columns, self.row_norm), np.zeros(self.widths.size)
        for block in in_blocks(rows):
            sums += self._sums(ball.clip(block) / self.row_norm)
        finite = np.isfinite(rows).all(axis=1)
        released = self.mechanism.release([*sums, float(finite.sum())], source)
        matrix = np.zeros((self.columns, self.columns))
        matrix[np.triu_indices(self.columns)] = released[:-1] * self.row_norm**2
        matrix = matrix + np.triu(matrix, 1).T
        return NoisyMoments(matrix, np.zeros(self.columns), max(float(released[-1]), 1.0))

    def _sums(self, unit: Matrix) -> Vector:
        """Return sums of clipped products, rounded one by one so that adding them is exact."""
        i, j = np.triu_indices(self.columns)
        total = np.zeros(self.widths.size)
        for start in range(0, len(unit), _ROWS):
            part = unit[start : start + _ROWS]
            products = np.clip(part[:, i] * part[:, j], -self.widths, self.widths)
            total += np.rint(products / _QUANTUM).sum(axis=0)
        return total * _QUANTUM


def entrywise_moments(
    columns: int, row_norm: float, *, epsilon: float, delta: float
) -> EntrywiseMoments:
    """Return the release of Muthukrishnan and Kalyani (2025, section VI-B), with its clipping."""
    if columns > _MOST_COLUMNS:
        raise ValueError(
            f"X must have at most {_MOST_COLUMNS} columns for noise='entrywise', got {columns}; "
            "noise='symmetric' has less error and takes more"
        )
    size = columns * (columns + 1) // 2
    i, j = np.triu_indices(columns)
    wanted = np.where(i == j, 1 / np.sqrt(size), 1 / np.sqrt(2 * size))
    widths = np.ceil(wanted / _QUANTUM) * _QUANTUM
    mechanism = optimal_gaussian(
        Box([*widths, 1.0], source=Source.CLIPPED), multiplier=_ROOM / gaussian_mu(epsilon, delta)
    )
    return EntrywiseMoments(columns, row_norm, widths, mechanism)
