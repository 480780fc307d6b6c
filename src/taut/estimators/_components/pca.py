"""Principal components with a promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from taut._base import validate
from taut._base.arrays import Matrix, Vector, real_numbers
from taut.accounting import Adjacency, PrivacyLoss
from taut.estimators._components.eigengap import eigengap_release
from taut.estimators._components.entrywise import entrywise_moments
from taut.estimators._components.moments import MomentsRelease, joint_moments
from taut.estimators._components.spectrum import Spectrum, leading
from taut.estimators._contract.entries import as_numbers
from taut.estimators._contract.estimator import (
    Ledger,
    PrivateEstimator,
    whole_or_nothing,
)
from taut.estimators._contract.inputs import features, refuse_extras
from taut.estimators._contract.row_wise import projected
from taut.noise import RandomSource

__all__ = ["PrivatePCA"]

_NOISES = ("symmetric", "entrywise", "eigengap")
_LARGEST_NORM = 1e34  # and one over it the least: sums of fourth powers stay floats
_LEAST_TOTAL = 1e-300  # of variances: a quotient of zeros is zero


class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Principal components of rows of bounded length, from noisy second moments.

    Args:
        n_components: number of components, by default all.
        row_norm: public bound on the l2 norm of a row, measured from ``mean`` if that is a vector.
            Longer rows are scaled down to it.
        mean: what variances are measured around. ``"private"``, the default: the mean, released
            beside the second moments; a vector: a public mean; None: the origin.
        noise: ``"symmetric"``, the default: Gaussian noise on the second moments, smaller beside
            the diagonal. ``"entrywise"``: products of entries are clipped, with noise to match
            (Muthukrishnan and Kalyani 2025), for comparison. ``"eigengap"``: the gap behind the
            last component is released first, and where it is large, noise that fits it is added
            to the subspace. Both need a public mean or none, and add/remove.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise.
        adjacency: ``"add_remove"`` or, where the number of records is public, ``"replace"``.
        ledger: budget that the fit is charged to.
        generator: source of the noise, by default the secure generator.

    Attributes:
        components_: unit vectors, one per row, the one of largest variance first.
        explained_variance_: variance along each, from the noisy moments, which raise it: noise has
            a largest eigenvalue of its own.
        explained_variance_ratio_: the same over the sum of all variances; not for ``"eigengap"``,
            which does not release that.
        mean_: what is subtracted by `transform`.
        n_components_: number of components.
        loss_: privacy loss of the fit.
        promise_: what may be published about it.

    **Guarantee**: `loss_`, that of one Gaussian release of all that the fit uses; (epsilon, delta)
    for ``"eigengap"``, which holds at that point alone. One row with
    |x| <= r moves the sum of x xᵀ by at most r² in Frobenius norm. Noise of deviation s on the
    diagonal and s / √2 beside it weighs changes in that norm, so that mu = r² / s
    (docs/theory/principal-components.md). Rows with NaN or infinity count as zero.

    Raises:
        ValueError: if an argument is out of its range or ``row_norm`` is missing.

    Example:
        >>> import numpy as np
        >>> from taut.estimators import PrivatePCA
        >>> rows = np.random.default_rng(0).normal(size=(5000, 3)) * [0.5, 0.2, 0.1]
        >>> fitted = PrivatePCA(1, row_norm=1.0, epsilon=1.0, delta=1e-6).fit(rows)
        >>> bool(fitted.components_[0, 0] > 0.95)
        True
        >>> fitted.promise_.epsilon.upper <= 1.0
        True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        row_norm: float | None = None,
        mean: str | ArrayLike | None = "private",
        noise: str = "symmetric",
        epsilon: float = 1.0,
        delta: float = 1e-6,
        adjacency: Adjacency | str = "add_remove",
        ledger: Ledger | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        self.n_components = n_components
        self.row_norm = row_norm
        self.mean = mean
        self.noise = noise
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.ledger = ledger
        self.generator = generator

    @whole_or_nothing
    def fit(self, X: Any, y: Any = None, **extras: object) -> Self:
        """Release the components.

        Args:
            X: table, one row per record.
            y: ignored.
            **extras: refused; weights with the reason.
        """
        refuse_extras(self, extras)
        table = features(self, X, reset=True)
        columns = table.shape[1]
        kept = self._kept(columns)
        origin = self._origin(columns)
        release = self._release(columns, kept, len(table))
        self._begin(release.loss)
        with np.errstate(all="ignore"):  # no record may be told by a warning
            found = release.release(table - origin, self.generator)
        self._note(found, origin)
        return self

    def transform(self, X: Any) -> Matrix:
        """Return the coordinates of rows along the components."""
        check_is_fitted(self)
        table = features(self, X, reset=False)
        with np.errstate(all="ignore"):
            return projected(table - self.mean_, self.components_.T)

    def inverse_transform(self, X: Any) -> Matrix:
        """Return the rows that have given coordinates, in the space of the components."""
        check_is_fitted(self)
        scores = as_numbers(X, "X")
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise ValueError(
                f"X must have {self.n_components_} columns, one per component, "
                f"got shape {scores.shape}"
            )
        with np.errstate(all="ignore"):
            return projected(scores, self.components_) + self.mean_

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _note(self, found: Spectrum, origin: Vector) -> None:
        self.components_: Matrix = found.components
        self.explained_variance_: Vector = found.variances
        self.mean_: Vector = origin + found.mean
        self.n_components_ = len(found.components)
        if hasattr(self, "explained_variance_ratio_"):  # of an earlier fit
            del self.explained_variance_ratio_
        if found.total is not None:
            self.explained_variance_ratio_: Vector = found.variances / max(
                found.total, _LEAST_TOTAL
            )

    def _kept(self, columns: int) -> int:
        if self.n_components is None:
            return columns
        kept = validate.positive_integer(n_components=self.n_components)
        if kept > columns:
            raise ValueError(
                f"n_components must be at most the number of columns, {columns}, "
                f"got n_components={kept}"
            )
        return kept

    def _origin(self, columns: int) -> Vector:
        """Return the public point that rows are measured from."""
        if self.mean is None or self._has_private_mean:
            return np.zeros(columns)
        if isinstance(self.mean, str):
            raise ValueError(f"mean must be 'private', a vector or None, got mean={self.mean!r}")
        origin = real_numbers(self.mean, "mean")
        if origin.shape != (columns,) or not np.isfinite(origin).all():
            raise ValueError(
                f"mean must have {columns} finite numbers, one per column, got mean={self.mean!r}"
            )
        return origin

    @property
    def _has_private_mean(self) -> bool:
        return isinstance(self.mean, str) and self.mean == "private"

    def _release(self, columns: int, kept: int, records: int) -> _Release:
        """Return the mechanism, from public arguments alone."""
        epsilon, delta = self._budget()
        relation = self._relation(Adjacency.ADD_REMOVE, Adjacency.REPLACE)
        if self.row_norm is None:
            raise ValueError(
                "row_norm must be given: a public bound on the length of a row, which cannot be "
                "taken from the data"
            )
        row_norm = validate.positive(row_norm=self.row_norm)
        if not 1 / _LARGEST_NORM <= row_norm <= _LARGEST_NORM:
            raise ValueError(
                f"row_norm must be between {1 / _LARGEST_NORM:g} and {_LARGEST_NORM:g}, got "
                f"row_norm={self.row_norm!r}; count in other units"
            )
        if self.noise not in _NOISES:
            raise ValueError(f"noise must be one of {', '.join(_NOISES)}, got noise={self.noise!r}")
        if self.noise == "symmetric":
            joint = joint_moments(
                columns,
                row_norm,
                with_mean=self._has_private_mean,
                epsilon=epsilon,
                delta=delta,
                adjacency=relation,
            )
            return _FromMoments(joint, kept)
        if self._has_private_mean:
            raise ValueError(
                f"mean must be a public vector or None for noise={self.noise!r}, got mean='private'"
            )
        self._relation(Adjacency.ADD_REMOVE)
        if self.noise == "eigengap":
            return eigengap_release(
                columns, kept, row_norm, records=records, epsilon=epsilon, delta=delta
            )
        return _FromMoments(
            entrywise_moments(columns, row_norm, epsilon=epsilon, delta=delta), kept
        )


class _Release(Protocol):
    """What releases the components of rows."""

    @property
    def loss(self) -> PrivacyLoss: ...

    def release(self, rows: Matrix, source: RandomSource | None) -> Spectrum: ...


@dataclass(frozen=True)
class _FromMoments:
    """The leading directions of a covariance that is released as a whole."""

    moments: MomentsRelease
    kept: int

    @property
    def loss(self) -> PrivacyLoss:
        return self.moments.loss

    def release(self, rows: Matrix, source: RandomSource | None) -> Spectrum:
        found = self.moments.release(rows, source)
        return leading(found.covariance, found.mean, self.kept)
