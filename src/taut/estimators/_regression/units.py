"""From columns as people have them to public units, and coefficients back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector, column_norms, real_numbers

__all__ = ["Units", "units"]

_ROWS = 1 << 11  # of a block
_LARGEST_ENTRY = (
    1e150  # where entries are cut that have no bounds, so that their squares are numbers
)
_LARGEST = 1e30  # of bounds, and one over it the least: squares and quotients stay floats


@dataclass(frozen=True, eq=False)
class Units:
    """Public bounds of features and targets, and the units that they make.

    Args:
        low: lower bounds of features, to which they are cut.
        high: upper bounds of features.
        centre: what is taken from every feature.
        half: what every feature is divided by then.
        norm: l2 norm to which rows of features are scaled down then, and by which they are divided.
        target_low: lower bound of targets.
        target_high: upper bound of targets.
        intercept: whether targets are centred, and blocks have a column of ones.
    """

    low: Vector
    high: Vector
    centre: Vector
    half: Vector
    norm: float
    target_low: float
    target_high: float
    intercept: bool

    @cached_property
    def is_scaled(self) -> bool:
        """Whether columns are moved or divided before rows are scaled."""
        return bool(self.centre.any() or (self.half != 1.0).any())

    @cached_property
    def _cuts(self) -> tuple[Any, Any]:
        """Bounds by column; as two numbers, with which NumPy is faster, where they are the same."""
        if (self.low == self.low[:1]).all() and (self.high == self.high[:1]).all():
            return self.low[:1], self.high[:1]
        return self.low[:, None], self.high[:, None]

    @property
    def target_centre(self) -> float:
        """What is taken from every target."""
        return self.target_low / 2 + self.target_high / 2 if self.intercept else 0.0

    @property
    def target_half(self) -> float:
        """What every target is divided by then."""
        if self.intercept:
            return self.target_high / 2 - self.target_low / 2
        return max(abs(self.target_low), abs(self.target_high))

    @property
    def reach(self) -> float:
        """A bound on the size of entries of features in these units."""
        sizes = np.maximum(self.high - self.centre, self.centre - self.low) / self.half
        return min(1.0, float(sizes.max()) / self.norm)

    def blocks(self, X: Matrix, y: Vector) -> Iterator[Matrix]:
        """Yield rows in these units; see `Problem.blocks`."""
        for start in range(0, len(X), _ROWS):
            yield self._block(X[start : start + _ROWS], y[start : start + _ROWS])

    def coefficients(self, found: Vector) -> tuple[Vector, float]:
        """Return slopes and intercept for columns as people have them."""
        slopes = self._scales * found[: self.half.size]
        height = found[-1] * self.target_half - slopes @ self.centre if self.intercept else 0.0
        return slopes, float(height) + self.target_centre

    def functions(self) -> tuple[Matrix, float]:
        """Return slopes, then the intercept, as functions of coefficients in these units.

        Returns:
            One row per slope and one for the intercept, and what is added to the intercept.
        """
        scales = self._scales
        functions = np.zeros((self.half.size + 1, self.half.size + self.intercept))
        functions[:-1, : self.half.size] = np.diag(scales)
        if self.intercept:
            functions[-1] = np.append(-scales * self.centre, self.target_half)
        return functions, self.target_centre

    @property
    def _scales(self) -> Vector:
        """Slopes per coefficient of one."""
        return self.target_half / (self.norm * self.half)

    def penalties(self, alpha: float) -> tuple[float, ...]:
        """Return the weights of the penalty alpha * |coefficients|^2 in these units."""
        return tuple((alpha / (self.norm * self.half) ** 2).tolist())

    def _block(self, X: Matrix, y: Vector) -> Matrix:
        """Return rows in these units, column by column in memory."""
        size = self.half.size
        columns = np.empty((size + 1 + self.intercept, len(X)))
        features, targets = columns[:size], columns[-1]
        features[:] = X.T
        columns[size:-1] = 1.0
        finite = np.isfinite(features).all(axis=0) & np.isfinite(y)
        with np.errstate(all="ignore"):  # no record may be told by a warning
            np.clip(features, *self._cuts, out=features)
            if self.is_scaled:
                features -= self.centre[:, None]
                features /= self.half[:, None]
            norms = column_norms(features)
            features *= np.where(norms > self.norm, 1 / norms, 1 / self.norm)
            targets[:] = np.clip(y, self.target_low, self.target_high) - self.target_centre
            targets /= self.target_half
            columns[:, ~finite] = 0.0
        return columns.T


def units(
    features: int,
    *,
    feature_norm: float | None,
    bounds: tuple[ArrayLike, ArrayLike] | None,
    target_bound: float | tuple[float, float] | None,
    intercept: bool,
) -> Units:
    """Return the units of public bounds.

    Args:
        features: number of columns.
        feature_norm: l2 norm of rows, after the scaling by bounds if there are any.
        bounds: lower and upper bounds of features, each a number or one per column.
        target_bound: lower and upper bound of targets, or one bound on their size.
        intercept: whether there is an intercept; without it zero must stay where it is.

    Raises:
        ValueError: if bounds are missing, in the wrong order, or of the wrong number.
    """
    if feature_norm is None and bounds is None:
        raise ValueError(
            "feature_norm or bounds must be given, from public knowledge: what a record may change "
            "is unbounded otherwise, and the data must not be asked"
        )
    longest = math.sqrt(features) if bounds is not None else math.inf
    norm = longest if feature_norm is None else validate.positive(feature_norm=feature_norm)
    target_low, target_high = _target_range(target_bound)
    if bounds is None:
        low, high = np.full(features, -_LARGEST_ENTRY), np.full(features, _LARGEST_ENTRY)
        centre, half = np.zeros(features), np.ones(features)
    else:
        low, high = (_per_column(bound, features) for bound in _pair(bounds, "bounds"))
        if not (low < high).all():
            raise ValueError(
                "bounds must be a pair of lower and upper bounds, the lower ones below, got "
                f"bounds={bounds!r}; leave out columns that are constant"
            )
        centre = low / 2 + high / 2 if intercept else np.zeros(features)
        half = high / 2 - low / 2 if intercept else np.maximum(np.abs(low), np.abs(high))
    made = Units(
        low, high, centre, half, min(norm, longest), target_low, target_high, bool(intercept)
    )
    sizes = np.append(half, [made.norm, made.target_half])
    if not (sizes.min() >= 1 / _LARGEST and max(sizes.max(), np.abs(centre).max()) <= _LARGEST):
        raise ValueError(
            f"bounds must be of sizes between {1 / _LARGEST:g} and {_LARGEST:g}; count in other "
            f"units, got feature_norm={feature_norm!r}, bounds={bounds!r}, "
            f"target_bound={target_bound!r}"
        )
    return made


def _target_range(bound: float | tuple[float, float] | None) -> tuple[float, float]:
    """Return the bounds of targets."""
    if bound is None:
        raise ValueError(
            "target_bound must be given, from public knowledge: targets beyond it are cut"
        )
    if not isinstance(bound, Sequence | np.ndarray) or np.ndim(bound) == 0:
        size = validate.positive(target_bound=bound)
        return -size, size
    low, high = (validate.finite(target_bound=one) for one in _pair(bound, "target_bound"))
    if not low < high:
        raise ValueError(
            f"target_bound must be a bound, or a lower one and a higher one, got {bound!r}"
        )
    return low, high


def _pair(bounds: Any, name: str) -> tuple[Any, Any]:
    """Return a pair, as tuples, lists and arrays are."""
    if not isinstance(bounds, Sequence | np.ndarray) or len(bounds) != 2:
        raise ValueError(f"{name} must be a pair, lower and upper, got {name}={bounds!r}")
    return bounds[0], bounds[1]


def _per_column(bound: ArrayLike, features: int) -> Vector:
    """Return one finite bound per column."""
    numbers = real_numbers(bound, "bounds")
    if numbers.shape not in ((), (features,)) or not np.isfinite(numbers).all():
        raise ValueError(
            f"bounds must be finite, numbers or one per column ({features}), got {bound!r}"
        )
    return np.array(np.broadcast_to(numbers, (features,)))
