"""Least squares with l1 and l2 penalties."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from taut._base.arrays import Vector
from taut.accounting import Adjacency
from taut.estimators._contract.estimator import Ledger, whole_or_nothing
from taut.estimators._contract.inputs import features_and_targets, refuse_extras
from taut.estimators._contract.linear import LinearRegressor
from taut.estimators._descent.arguments import target_range
from taut.estimators._descent.descent import USUAL_CLIPS
from taut.estimators._descent.model import DescentModel
from taut.noise import RandomSource

__all__ = ["PrivateElasticNet", "PrivateLasso"]


class PrivateElasticNet(LinearRegressor, DescentModel):
    """Linear regression with l1 and l2 penalties, by coordinate descent with differential privacy.

    It minimises (1/2n) Σ (y - Xw - b)² + alpha (l1_ratio |w|₁ + (1 - l1_ratio) |w|² / 2), as
    ``sklearn.linear_model.ElasticNet`` does. With few records or a small epsilon it needs far less
    of the data than methods that release all second moments; alpha=0 is plain least squares.

    Args:
        alpha: weight of the penalties; the intercept has none.
        l1_ratio: share of the l1 penalty.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise, well below one over the number of records.
        bounds: public bounds of features, a pair of lower and upper ones, each a number or one per
            column; entries beyond are cut.
        target_bound: public bound on the size of targets, or a pair of lower and upper ones;
            targets beyond are cut.
        fit_intercept: whether there is an intercept.
        clip: residual, in units of targets and for a feature of its usual size, at which the
            influence of a record is cut; None for 0.4 of half the range of targets, or 0.3 where
            records are few beside the noise.
        rate: length of a step; 1 takes one coefficient to its best value at once.
        passes: number of passes over all coefficients; None to choose by the number of records (a
            noisy one where it is private), between 2 and 64.
        noise: what noise is least for: ``"curvature"``, the objective, or ``"coefficient"``, the
            sum of squared errors of coefficients.
        adjacency: neighbouring relation, ``"add_remove"`` or ``"replace"`` (the number of records
            is public then).
        ledger: budget that pays for the fit, such as a `taut.accounting.PrivacyFilter`.
        generator: source of the noise, by default the secure generator.

    Attributes:
        coef_: slopes, one per column.
        intercept_: the intercept.
        loss_: privacy loss of the fit.
        promise_: what may be published about it.
        n_iter_: number of passes.
        n_features_in_: number of columns.
        feature_names_in_: names of columns, if they have some.

    **Guarantee**: ``loss_``, that of Gaussian noise, keeps (epsilon, delta) under ``adjacency`` for
    all that the fit releases. Sums of squares of all columns, one of ones among them, take a tenth
    of mu², and sums of derivatives, each cut at a bound, the rest in equal passes: exact integers
    with noise on a public grid. In view of the former the latter are fixed, so that mu² adds up
    (docs/theory/coordinate-descent.md). Records with NaN or infinity count as zero, or nowhere.
    Bounds must not be taken from the data.

    Example:
        >>> import numpy as np
        >>> from taut.estimators import PrivateElasticNet
        >>> X = np.random.default_rng(0).uniform(-1, 1, (20_000, 3))
        >>> model = PrivateElasticNet(alpha=0.01, bounds=(-1, 1), target_bound=4.0)
        >>> model = model.fit(X, 2 * X[:, 0] - X[:, 1] + 0.5)
        >>> bool(np.abs(model.coef_ - [2.0, -1.0, 0.0]).max() < 0.3)
        True
        >>> print(model.promise_)
        epsilon <= 1.000 at delta = 1e-06 (add_remove, certified; at least 0.9999)
    """

    coef_: Vector
    intercept_: float

    def __init__(
        self,
        alpha: float = 0.0,
        *,
        l1_ratio: float = 0.5,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        target_bound: float | tuple[float, float] | None = None,
        fit_intercept: bool = True,
        clip: float | None = None,
        rate: float = 1.0,
        passes: int | None = None,
        noise: str = "curvature",
        adjacency: Adjacency | str = "add_remove",
        ledger: Ledger | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.target_bound = target_bound
        self.fit_intercept = fit_intercept
        self.clip = clip
        self.rate = rate
        self.passes = passes
        self.noise = noise
        self.adjacency = adjacency
        self.ledger = ledger
        self.generator = generator

    @whole_or_nothing
    def fit(self, X: Any, y: Any, **extras: Any) -> Self:
        """Fit the model: one private release.

        Args:
            X: table of features, one row per record.
            y: targets.
            extras: nothing; weights of records are refused.

        Raises:
            ValueError: for tables of the wrong shape, missing bounds, weights.
            BudgetExceeded: if the ledger refuses; nothing was released then.
        """
        refuse_extras(self, extras)
        table, targets = features_and_targets(self, X, y, numeric=True)
        design, budget = self._arguments(table.shape[1])
        low, high = target_range(self.target_bound)
        centre = (low / 2 + high / 2) * bool(self.fit_intercept)
        half = max(high - centre, centre - low)
        few, many = USUAL_CLIPS
        descent = self._descent(budget, table.shape[1], (few * half, many * half))
        finite = np.isfinite(targets)
        cut = np.clip(np.where(finite, targets, 0.0), low, high) - centre
        found = self._fit(table, cut, finite, design, descent)
        self.coef_, moved = design.coefficients(found.coefficients)
        self.intercept_ = moved + centre
        return self

    @property
    def _bend(self) -> float:
        return 1.0

    @staticmethod
    def _residual(products: Vector, targets: Vector) -> Vector:
        return products - targets


class PrivateLasso(PrivateElasticNet):
    """Linear regression with an l1 penalty, by coordinate descent with differential privacy.

    It minimises (1/2n) Σ (y - Xw - b)² + alpha |w|₁, as ``sklearn.linear_model.Lasso`` does: it is
    `PrivateElasticNet` with ``l1_ratio=1``. Coefficients that the penalty outweighs are zero.

    Args:
        alpha: weight of the penalty; the intercept has none.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise, well below one over the number of records.
        bounds: see `PrivateElasticNet`, as for all that follow.
        target_bound: public bound on the size of targets, or a pair.
        fit_intercept: whether there is an intercept.
        clip: residual at which the influence of a record is cut.
        rate: length of a step.
        passes: number of passes over all coefficients.
        noise: what noise is least for.
        adjacency: neighbouring relation.
        ledger: budget that pays for the fit.
        generator: source of the noise, by default the secure generator.

    **Guarantee**: that of `PrivateElasticNet`.

    Example:
        >>> import numpy as np
        >>> from taut.estimators import PrivateLasso
        >>> X = np.random.default_rng(0).uniform(-1, 1, (20_000, 3))
        >>> model = PrivateLasso(alpha=0.1, bounds=(-1, 1), target_bound=2.0).fit(X, X[:, 0])
        >>> bool(model.coef_[1] == model.coef_[2] == 0.0)
        True
    """

    def __init__(
        self,
        alpha: float = 0.01,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        target_bound: float | tuple[float, float] | None = None,
        fit_intercept: bool = True,
        clip: float | None = None,
        rate: float = 1.0,
        passes: int | None = None,
        noise: str = "curvature",
        adjacency: Adjacency | str = "add_remove",
        ledger: Ledger | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        super().__init__(
            alpha,
            l1_ratio=1.0,
            epsilon=epsilon,
            delta=delta,
            bounds=bounds,
            target_bound=target_bound,
            fit_intercept=fit_intercept,
            clip=clip,
            rate=rate,
            passes=passes,
            noise=noise,
            adjacency=adjacency,
            ledger=ledger,
            generator=generator,
        )
