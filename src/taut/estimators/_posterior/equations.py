"""Normal equations of a ridge regression as rational numbers, solved to 200 digits.

All of this depends on the data, and leaves this folder with noise only. Two hundred digits are not
for accuracy: they make the errors of arithmetic so small that they need not be told from zero
(docs/theory/posterior-sampling.md).
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Matrix, Vector
from taut.errors import UnsoundConfiguration
from taut.noise import exact_moments

__all__ = [
    "LARGEST_SIZE",
    "Equations",
    "Ridge",
    "check_penalties",
    "check_size",
    "equations_of",
    "precisely",
]

_CONTEXT = decimal.Context(
    prec=200, rounding=decimal.ROUND_HALF_EVEN, Emin=-(10**6), Emax=10**6, traps=[]
)

LARGEST_SIZE = 512
"""The most features: solving takes some seconds then, and the error bounds count on it."""

_LEAST_RIDGE, _LARGEST_RIDGE = 2.0**-40, 2.0**60  # in squares of the clip: see the error bounds
_EIGENVALUE_BITS = 20  # of the smallest eigenvalue, below the square of the clip

Rows = Sequence[Sequence[Decimal]]


@dataclass(frozen=True, eq=False, repr=False)
class Equations:
    """X'X and X'y of clipped records, with features and targets in units of their clips.

    Attributes:
        gram: X'X and a public penalty, rational numbers.
        cross: X'y, rational numbers.
    """

    gram: NDArray[np.object_]
    cross: NDArray[np.object_]
    _solved: dict[float, Ridge] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of features."""
        return int(self.cross.size)

    @cached_property
    def values(self) -> Vector:
        """Both as doubles, one after the other: what a record moves by at most one each."""
        return np.concatenate([self.gram.ravel(), self.cross]).astype(np.float64)

    @cached_property
    def least_eigenvalue(self) -> float:
        """The smallest eigenvalue of X'X, rounded down to 20 bits below the square of the clip.

        The eigenvalue in doubles is a guess only, which two factorisations check.
        """
        guess = float(np.linalg.eigvalsh(self.gram.astype(np.float64))[0])
        low = max(math.floor(guess * 2**_EIGENVALUE_BITS), 0)
        step = 1
        while low > 0 and not self._exceeds(low):
            low, step = max(low - step, 0), 2 * step
        step = 1
        while self._exceeds(low + step):
            low, step = low + step, 2 * step
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._exceeds(middle) else (low, middle)
        return math.ldexp(low, -_EIGENVALUE_BITS)

    def _exceeds(self, steps: int) -> bool:
        """Return whether all eigenvalues of X'X are above so many steps."""
        with precisely():
            return _factor(self._shifted(-Fraction(steps, 2**_EIGENVALUE_BITS))) is not None

    def ridge(self, ridge: float) -> Ridge:
        """Return the solution with a ridge, in squares of the clip.

        Args:
            ridge: number that is added to the diagonal.
        """
        if not _LEAST_RIDGE <= ridge <= _LARGEST_RIDGE:
            raise ValueError(
                "ridge must be between 2^-40 and 2^60 squares of the clip of the features, got "
                f"{ridge:g} of them"
            )
        if ridge not in self._solved:
            self._solved[ridge] = self._solve(Fraction(ridge))
        return self._solved[ridge]

    def _solve(self, ridge: Fraction) -> Ridge:
        with precisely():
            factor = _factor(self._shifted(ridge))
            if factor is None:  # no clipped data lead here
                raise UnsoundConfiguration("the normal equations must be those of real numbers")
            right = [_decimal(one) for one in self.cross]
            return Ridge(factor, _solved_back(factor, _solved_forth(factor, right)))

    def _shifted(self, by: Fraction) -> list[list[Decimal]]:
        return [
            [_decimal(self.gram[i, j] + (by if i == j else 0)) for j in range(i + 1)]
            for i in range(self.size)
        ]


@dataclass(frozen=True, eq=False, repr=False)
class Ridge:
    """A ridge regression: the factor of its precision matrix, and its solution.

    Attributes:
        factor: lower triangle L with L L' = X'X + ridge.
        solution: the coefficients, in clips of the targets per clip of the features.
    """

    factor: Rows
    solution: Sequence[Decimal]

    @cached_property
    def log_residual(self) -> float:
        """The logarithm of 1 + |solution|, which no residual exceeds in clips of the targets."""
        with precisely():
            square = sum((one * one for one in self.solution), Decimal(0))
            return float((1 + square.sqrt()).ln())

    def moved(self, direction: Sequence[Decimal], scale: Decimal) -> list[Decimal]:
        """Return the solution plus a scaled vector whose covariance becomes the inverse matrix.

        Args:
            direction: independent standard numbers, one per feature.
            scale: deviation that one over the precision has.
        """
        with precisely():
            step = _solved_back(self.factor, direction)
            return [centre + scale * one for centre, one in zip(self.solution, step, strict=True)]


def equations_of(
    blocks: Iterable[Matrix],
    features: int,
    *,
    row_clip: float,
    target_clip: float,
    penalties: Sequence[float] = (),
) -> Equations:
    """Return the exact normal equations of clipped records; those with NaN count as zero.

    Args:
        blocks: tables with features and the target, one row per record.
        features: number of features.
        row_clip: l2 norm to which the features of a record are scaled down.
        target_clip: magnitude to which targets are cut.
        penalties: weights of a public penalty on the squares of coefficients, one per feature, in
            squares of ``row_clip``.
    """
    check_size(features)
    sums = exact_moments(blocks, (features, 1), (row_clip, target_clip))
    x, y = Fraction(row_clip), Fraction(target_clip)
    gram = sums[:features, :features] / (x * x)
    check_penalties(penalties)
    for i, penalty in enumerate(penalties):
        gram[i, i] += Fraction(penalty)
    return Equations(gram, sums[:features, features] / (x * y))


def check_size(features: int) -> None:
    """Refuse more features than the error bounds count on."""
    if not 1 <= features <= LARGEST_SIZE:
        raise ValueError(
            f"posterior sampling takes 1 to {LARGEST_SIZE} features, got {features}; use another "
            "method"
        )


def check_penalties(penalties: Sequence[float]) -> None:
    """Refuse penalties beyond what the error bounds count on, in squares of the clip."""
    for penalty in penalties:
        if not 0 <= penalty <= _LARGEST_RIDGE:
            raise ValueError(
                "penalties must be between 0 and 2^60 squares of the clip of the features, got "
                f"{penalty:g} of them"
            )


def precisely() -> AbstractContextManager[decimal.Context]:
    """Return a context in which every operation on decimals is right to 200 digits."""
    return decimal.localcontext(_CONTEXT)


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def _factor(lower: list[list[Decimal]]) -> list[list[Decimal]] | None:
    """Return Cholesky's factor of a symmetric matrix, None if it is not positive definite."""
    factor: list[list[Decimal]] = []
    for i, given in enumerate(lower):
        row: list[Decimal] = []
        for j in range(i):
            row.append(_less(given[j], row, factor[j][:j]) / factor[j][j])
        pivot = _less(given[i], row, row)
        if not pivot > 0:
            return None
        row.append(pivot.sqrt())
        factor.append(row)
    return factor


def _less(start: Decimal, left: Sequence[Decimal], right: Sequence[Decimal]) -> Decimal:
    """Return a number less the products of two vectors, summed over the shorter one."""
    total = start
    for one, other in zip(left, right, strict=False):
        total -= one * other
    return total


def _solved_forth(factor: Rows, right: Sequence[Decimal]) -> list[Decimal]:
    """Return the solution of L x = right."""
    found: list[Decimal] = []
    for row, one in zip(factor, right, strict=True):
        found.append(_less(one, found, row) / row[-1])
    return found


def _solved_back(factor: Rows, right: Sequence[Decimal]) -> list[Decimal]:
    """Return the solution of L' x = right."""
    size = len(factor)
    found = [Decimal(0)] * size
    for i in reversed(range(size)):
        column = [factor[k][i] for k in range(i + 1, size)]
        found[i] = _less(right[i], column, found[i + 1 :]) / factor[i][i]
    return found
