"""Standardised columns with a promise."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency
from taut.estimators._columns.moments import columns_release
from taut.estimators._contract.estimator import (
    Ledger,
    PrivateEstimator,
    whole_or_nothing,
)
from taut.estimators._contract.inputs import column_bounds, features, refuse_extras
from taut.noise import RandomSource

__all__ = ["PrivateStandardScaler"]


class PrivateStandardScaler(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Columns less their mean, over their standard deviation; both are released with noise.

    Args:
        bounds: public pair (lower, upper), of numbers or of one number per column. Entries beyond
            are clipped for the fit, not by `transform`.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise; 0 for a pure one.
        adjacency: ``"add_remove"``.
        ledger: budget that the fit is charged to.
        generator: source of the noise, by default the secure generator.

    Attributes:
        mean_: mean of every column, within its bounds.
        var_: variance of every column, at least the error that noise makes of it.
        scale_: its root, never zero: a constant column becomes small noise around zero.
        count_: number of records, with noise.
        loss_: privacy loss of the fit.
        promise_: what may be published about it.

    **Guarantee**: `loss_`, for add/remove. A count, sums of columns and sums of squares, around the
    middles of their ranges, are one release of exact sums, with the noise of least error among
    all mechanisms for such a box (docs/theory/ranges.md). A row with NaN or infinity is counted
    nowhere.

    Raises:
        ValueError: if bounds are missing, the wrong way round or not finite.

    Example:
        >>> import numpy as np
        >>> from taut.estimators import PrivateStandardScaler
        >>> ages = np.random.default_rng(0).normal(50, 10, size=(10_000, 1))
        >>> fitted = PrivateStandardScaler(bounds=(18, 90), epsilon=1.0).fit(ages)
        >>> bool(abs(fitted.mean_[0] - 50) < 1 and abs(fitted.scale_[0] - 10) < 1)
        True
    """

    def __init__(
        self,
        *,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        adjacency: Adjacency | str = "add_remove",
        ledger: Ledger | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        self.bounds = bounds
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.ledger = ledger
        self.generator = generator

    @whole_or_nothing
    def fit(self, X: Any, y: Any = None, **extras: object) -> Self:
        """Release means and standard deviations.

        Args:
            X: table, one row per record.
            y: ignored.
            **extras: refused; weights with the reason.
        """
        refuse_extras(self, extras)
        table = features(self, X, reset=True)
        self._relation(Adjacency.ADD_REMOVE)
        lower, upper = column_bounds(self.bounds, table.shape[1])
        epsilon, delta = self._budget()
        moments = columns_release(lower, upper, epsilon=epsilon, delta=delta)
        self._begin(moments.loss)
        found = moments.release(table, self.generator)
        self.mean_: Vector = found.means
        self.var_: Vector = found.variances
        self.scale_: Vector = np.sqrt(found.variances)
        self.count_ = found.count
        return self

    def transform(self, X: Any) -> Matrix:
        """Return columns less their mean, over their scale."""
        check_is_fitted(self)
        table = features(self, X, reset=False)
        with np.errstate(all="ignore"):
            result: Matrix = (table - self.mean_) / self.scale_
        return result

    def inverse_transform(self, X: Any) -> Matrix:
        """Return what `transform` made of rows, in their own units again."""
        check_is_fitted(self)
        table = features(self, X, reset=False)
        with np.errstate(all="ignore"):
            result: Matrix = table * self.scale_ + self.mean_
        return result
