"""Proximal coordinate descent on clipped sums with noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.estimators._descent.budget import Budget
from taut.noise import RandomSource

__all__ = ["USUAL_CLIPS", "Descent", "Found"]

_MOST_PASSES = 64  # more change little where noise is small, and each costs as much as the first
_LEAST_PASSES = 2  # one to find the scale, one to be averaged
_FLOOR = 2.0  # deviations of noise: a curvature below cannot be told from none
_LITTLE = 15.0  # of the signal: below, noise costs more than derivatives that are cut closer


USUAL_CLIPS = (0.3, 0.4)
"""Where derivatives of squares are cut, of half the range of targets, for few records and for many.

Residuals of a fit that explains anything are mostly below. Cutting the others bends the solution,
which matters less than noise where records are few.
"""


@dataclass(frozen=True, eq=False)
class Found:
    """Coefficients, and the released numbers that they were found with.

    Attributes:
        coefficients: one per column.
        count: number of records, with noise unless it is public.
        passes: number of passes over all coefficients.
    """

    coefficients: Vector
    count: float
    passes: int


@dataclass(frozen=True, eq=False)
class Descent:
    """Minimises (1/n) Σ loss(xᵀθ) + Σ_j l1_j |θ_j| + l2_j θ_j² / 2 with privacy.

    Column 0 is that of ones: its curvature is the number of records, and it has no penalty.

    Args:
        budget: what may be spent.
        residual: function of (xᵀθ, target), entry by entry: the derivative of the loss of a record.
        bend: bound on the second derivative of the loss.
        clips: sizes of a derivative, in units of a column of mean square one, at which it is cut:
            where records are few beside the noise, and where they are many.
        l1: weights of absolute coefficients, zero for the first.
        l2: weights of squared coefficients, zero for the first.
        intercept: whether column 0 is fitted, too.
        rate: length of a step, in units of the one that is exact for a single column.
        passes: number of passes; None to choose by the number of records.
        noise: what noise is least for, see `Budget.steps`.
        ridge: weights of half the squared coefficients beside the *sum* of losses; None for none.

    **Guarantee**: `Budget.loss` for everything that is returned, for columns of which each record
    has entries within `reaches`.
    """

    budget: Budget
    residual: Callable[[Vector, Vector], Vector]
    bend: float
    clips: tuple[float, float]
    l1: Vector
    l2: Vector
    intercept: bool
    rate: float
    passes: int | None
    noise: str
    ridge: Vector | None = None

    def fit(
        self,
        columns: Matrix,
        targets: Vector,
        reaches: Vector,
        records: int | None,
        source: RandomSource | None,
    ) -> Found:
        """Return coefficients.

        Args:
            columns: private columns, one per row.
            targets: private targets.
            reaches: public bounds on the entries of every column.
            records: number of records, if it is public.
            source: source of the noise.
        """
        squares, count = self._curvatures(columns, reaches, records, source)
        used = slice(0 if self.intercept else 1, None)
        signal = self.budget.signal(count, len(squares[used]))
        passes = self._passes(signal)
        clip = self.clips[0] if signal < _LITTLE else self.clips[1]
        found = np.zeros(len(columns))
        found[used] = self._descend(
            columns[used], targets, squares[used], count, passes, clip, source
        )
        return Found(found, count, passes)

    def _curvatures(
        self, columns: Matrix, reaches: Vector, records: int | None, source: RandomSource | None
    ) -> tuple[Vector, float]:
        """Return noisy sums of squares, none so small that it could be noise, and the count."""
        asked = slice(0 if records is None else 1, None)
        mechanism = self.budget.curvatures(reaches[asked])
        with np.errstate(all="ignore"):  # no record may be told by a warning
            noisy = mechanism.release_sum(np.square(columns[asked]).T, source)
        above = np.maximum(noisy, _FLOOR * mechanism.scales)
        if records is None:
            return above, float(above[0])
        return np.append(float(records), above), float(records)

    def _passes(self, signal: float) -> int:
        """Return as many passes as leave every step with more signal than noise."""
        if self.passes is not None:
            return self.passes
        return int(min(max(round(signal), _LEAST_PASSES), _MOST_PASSES))

    def _descend(
        self,
        columns: Matrix,
        targets: Vector,
        squares: Vector,
        count: float,
        passes: int,
        clip: float,
        source: RandomSource | None,
    ) -> Vector:
        """Return the proximal step from the mean, over the later half, of where steps led."""
        curvatures = self.bend * squares
        clips = clip * np.sqrt(squares / count)
        mechanisms = self.budget.steps(clips, curvatures, passes, self.noise)
        rates = self.rate / curvatures
        l2 = self.l2 * count if self.ridge is None else self.l2 * count + self.ridge
        l1, l2 = (w[-len(squares) :] * rates for w in (self.l1 * count, l2))
        products = np.zeros(columns.shape[1])
        coefficients = np.zeros(len(columns))
        reached = np.zeros(len(columns))
        kept = np.zeros(len(columns))
        late = passes // 2
        for turn in range(passes):
            for j, column in enumerate(columns):
                with np.errstate(all="ignore"):  # no record may be told by a warning
                    derivatives = self.residual(products, targets) * column
                noisy = float(mechanisms[j].release_sum(derivatives[:, None], source)[0])
                reached[j] = coefficients[j] - rates[j] * noisy
                moved = _shrunk(reached[j], l1[j], l2[j])
                with np.errstate(all="ignore"):
                    products += (moved - coefficients[j]) * column
                coefficients[j] = moved
            if turn >= late:
                kept += reached / (passes - late)
        return np.array([_shrunk(*one) for one in zip(kept, l1, l2, strict=True)])


def _shrunk(point: float, l1: float, l2: float) -> float:
    """Return the proximal point of l1 |t| + l2 t² / 2."""
    left = max(abs(point) - l1, 0.0) / (1 + l2)
    return left if point > 0 else 0.0 - left
