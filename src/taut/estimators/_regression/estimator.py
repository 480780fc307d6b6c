"""Private linear regression for scikit-learn pipelines."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from taut._base import validate
from taut._base.arrays import Matrix, Vector, real_numbers
from taut.accounting import Adjacency
from taut.estimators._contract.estimator import (
    Ledger,
    PrivateEstimator,
    whole_or_nothing,
)
from taut.estimators._contract.inputs import (
    features_and_targets,
    penalty_weight,
    refuse_extras,
)
from taut.estimators._contract.linear import LinearRegressor
from taut.estimators._regression.choice import choose
from taut.estimators._regression.intervals import unpenalised
from taut.estimators._regression.method import Fit
from taut.estimators._regression.problem import Problem, Setting
from taut.estimators._regression.units import Units, units
from taut.noise import RandomSource

__all__ = ["PrivateLinearRegression", "PrivateRidge"]


class _NoInterval(ValueError, AttributeError):
    """Nothing that was released has an interval, so that `hasattr` finds none."""


class _PrivateRegression(LinearRegressor, PrivateEstimator):
    """What estimators of a linear model share: units, methods, and predictions."""

    feature_norm: float | None
    bounds: tuple[ArrayLike, ArrayLike] | None
    target_bound: float | tuple[float, float] | None
    method: str
    fit_intercept: bool
    public_data: tuple[ArrayLike, ArrayLike] | None

    coef_: Vector
    intercept_: float
    method_: str
    why_: str
    refused_: bool
    _released: tuple[Units, Setting, Fit]

    @whole_or_nothing
    def fit(self, X: Any, y: Any, **refused: Any) -> Self:
        """Fit the model: one private release.

        Args:
            X: table of features, one row per record. Rows beyond the bounds are scaled into them;
                rows with NaN or infinity count as zero.
            y: targets, cut at their bounds.
            refused: nothing; weights of records are refused.

        **Guarantee**: `loss_` for all attributes that follow from the data.

        Raises:
            ValueError: for tables of the wrong shape, missing bounds, weights.
            BudgetExceeded: if the ledger refuses; nothing was released then.
        """
        refuse_extras(self, refused)
        epsilon, delta = self._budget()
        table, targets = features_and_targets(self, X, y, numeric=True)
        made = self._units(table.shape[1])
        setting = self._setting(made, len(table))
        name, method, why = choose(self.method, setting, epsilon, delta)
        self._begin(method.loss)
        problem = Problem(setting, lambda: made.blocks(table, targets), len(table))
        found = method.fit(problem, self.generator)
        self._released = made, setting, found
        self.coef_, self.intercept_ = made.coefficients(found.coefficients)
        self.method_, self.why_ = found.method or name, f"{why}: {found.why}"
        self.refused_ = found.refused
        return self

    def coef_interval(self, level: float = 0.95) -> Matrix:
        """Return confidence intervals of the slopes, one row of lower and upper end per column.

        They follow from released numbers and public scales of noise, and cost nothing. Centres are
        estimates without a penalty, which `coef_` is not. Where noise hides a direction of the
        features they are infinite. With few records ``"auto"`` spends little on them: ask for
        ``method="refined"`` if they are what you want.

        Args:
            level: probability with which each interval covers its slope.

        **Guarantee**: what follows a release is a function of it, without further loss. Coverage
        is that of a linear model with even variances, for many records within the bounds
        (docs/theory/regression.md#intervals).

        Raises:
            ValueError: if the method releases no moments, or nothing tells how many records there
                are.
        """
        return self._intervals(level)[:-1]

    def intercept_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return a confidence interval of the intercept; see `coef_interval`.

        It follows from moments alone, as cut residuals that are skewed bend the intercept: it is
        wider than those of slopes, and its centre is not `intercept_`.

        Args:
            level: probability with which it covers the intercept.
        """
        low, high = self._intervals(level)[-1].tolist()
        return low, high

    @property
    def coef_interval_(self) -> Matrix:
        """Confidence intervals of the slopes at the level 0.95; see `coef_interval`."""
        return self.coef_interval()

    def _intervals(self, level: float) -> Matrix:
        check_is_fitted(self)
        if not 0 < validate.probability(level=level) < 1:
            raise ValueError(f"level must be between 0 and 1, got level={level!r}")
        made, setting, found = self._released
        if found.moments is None:
            raise _NoInterval(
                f"method must be one that releases moments, got {self.method_!r}: nothing tells "
                "how uncertain its coefficients are"
            )
        if setting.records is None and not setting.intercept:
            raise _NoInterval(
                "fit_intercept must be True, or adjacency 'replace': the number of records is "
                "neither public nor released otherwise"
            )
        records = setting.records or float(found.moments.design[-1, -1])
        functions, constant = made.functions()
        slopes = unpenalised(found.moments, found.measurements, records)
        # Targets are not cut like residuals, whose mean is not zero then if they are skewed.
        intercept = unpenalised(found.moments, found.measurements[:1], records)
        height = intercept.intervals(functions[-1:], level) + constant
        return np.vstack([slopes.intervals(functions[:-1], level), height])

    def _units(self, columns: int) -> Units:
        return units(
            columns,
            feature_norm=self.feature_norm,
            bounds=self.bounds,
            target_bound=self.target_bound,
            intercept=validate.flag(fit_intercept=self.fit_intercept),
        )

    def _alpha(self) -> float:
        return 0.0

    def _setting(self, made: Units, records: int) -> Setting:
        relation = self._relation(Adjacency.ADD_REMOVE, Adjacency.REPLACE)
        return Setting(
            made.half.size,
            made.intercept,
            relation,
            records if relation is Adjacency.REPLACE else None,
            made.penalties(self._alpha()) if self._alpha() else (),
            self._public(made),
            made.reach,
        )

    def _public(self, made: Units) -> Matrix | None:
        """Return the public records in public units."""
        if self.public_data is None:
            return None
        if not isinstance(self.public_data, tuple | list) or len(self.public_data) != 2:
            raise ValueError("public_data must be a pair, features and targets of public records")
        rows, targets = (real_numbers(one, "public_data") for one in self.public_data)
        if rows.ndim != 2 or rows.shape[1] != made.half.size or targets.shape != rows.shape[:1]:
            raise ValueError(
                f"public_data must be a table with {made.half.size} columns and as many targets as "
                f"rows, got shapes {rows.shape} and {targets.shape}"
            )
        return np.vstack([*made.blocks(rows, targets)])


class PrivateLinearRegression(_PrivateRegression):
    """Linear regression with differential privacy.

    Args:
        epsilon: epsilon of the promise.
        delta: probability delta of the promise, well below one over the number of records.
        feature_norm: public bound on the l2 norm of rows (after scaling by ``bounds``, if both are
            given); longer rows are scaled down to it.
        bounds: public bounds of features, a pair of lower and upper ones, each a number or one per
            column; entries beyond are cut. Columns are scaled by them. One of both must be given.
        target_bound: public bound on the size of targets, or a pair of lower and upper ones;
            targets beyond are cut.
        method: name of a method, or ``"auto"``.
        fit_intercept: whether there is an intercept; without one, zero is kept where it is.
        adjacency: neighbouring relation, ``"add_remove"`` or ``"replace"`` (the number of records
            is public then).
        ledger: budget that pays for the fit, such as a `taut.accounting.PrivacyFilter`.
        generator: source of the noise, by default the secure generator.
        public_data: features and targets of public records, for methods that compare on them.

    Attributes:
        coef_: slopes, one per column.
        intercept_: the intercept.
        loss_: privacy loss of the fit.
        promise_: what may be published about it.
        method_: name of the method that was used.
        why_: why it was, and what it chose: by public facts and released numbers alone.
        refused_: whether a test that is part of the method refused to release a model: coefficients
            are zero then, and the whole loss is spent.
        coef_interval_: 95 % confidence intervals of the slopes, by released numbers alone.
        n_features_in_: number of columns.
        feature_names_in_: names of columns, if they have some.

    **Guarantee**: ``loss_``, which keeps (epsilon, delta) under ``adjacency``, for all that the fit
    releases. Bounds must not be taken from the data.

    Example:
        >>> import numpy as np
        >>> from taut.estimators import PrivateLinearRegression
        >>> X = np.random.default_rng(0).uniform(-1, 1, (20_000, 2))
        >>> y = X @ [2.0, -1.0] + 0.5
        >>> model = PrivateLinearRegression(
        ...     epsilon=1.0, delta=1e-6, bounds=(-1, 1), target_bound=4.0
        ... ).fit(X, y)
        >>> bool(np.abs(model.coef_ - [2.0, -1.0]).max() < 0.2)
        True
        >>> print(model.promise_)
        epsilon <= 1.000 at delta = 1e-06 (add_remove, certified; at least 0.9999)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        feature_norm: float | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        target_bound: float | tuple[float, float] | None = None,
        method: str = "auto",
        fit_intercept: bool = True,
        adjacency: Adjacency | str = "add_remove",
        ledger: Ledger | None = None,
        generator: RandomSource | None = None,
        public_data: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.feature_norm = feature_norm
        self.bounds = bounds
        self.target_bound = target_bound
        self.method = method
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.ledger = ledger
        self.generator = generator
        self.public_data = public_data


class PrivateRidge(_PrivateRegression):
    """Ridge regression with differential privacy.

    Args:
        alpha: weight of the squared norm of ``coef_`` beside the sum of squared errors, as in
            ``sklearn.linear_model.Ridge``; the intercept has none. Noise may ask for more.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise, well below one over the number of records.
        feature_norm: see `PrivateLinearRegression`.
        bounds: see `PrivateLinearRegression`.
        target_bound: see `PrivateLinearRegression`.
        method: name of a method, or ``"auto"``.
        fit_intercept: whether there is an intercept.
        adjacency: neighbouring relation, ``"add_remove"`` or ``"replace"``.
        ledger: budget that pays for the fit.
        generator: source of the noise, by default the secure generator.
        public_data: features and targets of public records, for methods that compare on them.

    Attributes are those of `PrivateLinearRegression`.

    **Guarantee**: that of `PrivateLinearRegression`.

    Example:
        >>> import numpy as np
        >>> from taut.estimators import PrivateRidge
        >>> X = np.random.default_rng(0).uniform(-1, 1, (20_000, 2))
        >>> model = PrivateRidge(alpha=1e4, bounds=(-1, 1), target_bound=4.0)
        >>> slope = model.fit(X, 2 * X[:, 0]).coef_[0]
        >>> bool(0.4 < slope < 1.2)
        True
    """

    def __init__(
        self,
        alpha: float = 1.0,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        feature_norm: float | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        target_bound: float | tuple[float, float] | None = None,
        method: str = "auto",
        fit_intercept: bool = True,
        adjacency: Adjacency | str = "add_remove",
        ledger: Ledger | None = None,
        generator: RandomSource | None = None,
        public_data: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.feature_norm = feature_norm
        self.bounds = bounds
        self.target_bound = target_bound
        self.method = method
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.ledger = ledger
        self.generator = generator
        self.public_data = public_data

    def _alpha(self) -> float:
        return penalty_weight(self.alpha)
