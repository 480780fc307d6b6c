"""Logistic regression of two classes with l1 and l2 penalties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency
from taut.estimators._contract.estimator import Ledger, whole_or_nothing
from taut.estimators._contract.inputs import (
    features_and_targets,
    refuse_extras,
    refuse_other_labels,
)
from taut.estimators._contract.labels import class_numbers, public_classes
from taut.estimators._contract.linear import LinearClassifier
from taut.estimators._descent.model import DescentModel
from taut.noise import RandomSource

__all__ = ["PrivateSparseLogisticRegression"]

_CLIP = 0.5  # of a probability: what a record without a decision is wrong by


class PrivateSparseLogisticRegression(LinearClassifier, DescentModel):
    """Logistic regression of two classes with an l1 penalty, with differential privacy.

    It minimises the mean of log(1 + exp(-y (xᵀw + b))), y = ±1, plus
    alpha (l1_ratio |w|₁ + (1 - l1_ratio) |w|² / 2), by coordinate descent. Coefficients that the
    penalty outweighs are zero. For several classes, or rows of bounded length, see
    `PrivateLogisticRegression`.

    Args:
        alpha: weight of the penalties; the intercept has none.
        classes: the two labels. A record with another one counts as zero.
        l1_ratio: share of the l1 penalty.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise, well below one over the number of records.
        bounds: public bounds of features, a pair of lower and upper ones, each a number or one per
            column; entries beyond are cut.
        fit_intercept: whether there is an intercept.
        clip: error of a probability, for a feature of its usual size, at which the influence of a
            record is cut; None for 0.5.
        rate: length of a step, in units of one that never overshoots.
        passes: number of passes over all coefficients; None to choose by the number of records.
        noise: what noise is least for, ``"curvature"`` or ``"coefficient"``; see
            `PrivateElasticNet`.
        adjacency: neighbouring relation, ``"add_remove"`` or ``"replace"``.
        ledger: budget that pays for the fit.
        generator: source of the noise, by default the secure generator.

    Attributes:
        classes_: the two labels, in order.
        coef_: slopes, a table with one row.
        intercept_: the intercept, in a row of one.
        loss_: privacy loss of the fit.
        promise_: what may be published about it.
        n_iter_: number of passes.

    **Guarantee**: that of `PrivateElasticNet`.

    Example:
        >>> import numpy as np
        >>> from taut.estimators import PrivateSparseLogisticRegression
        >>> X = np.random.default_rng(0).uniform(-1, 1, (20_000, 3))
        >>> y = np.where(X[:, 0] > 0, "yes", "no")
        >>> model = PrivateSparseLogisticRegression(classes=["no", "yes"], bounds=(-1, 1)).fit(X, y)
        >>> bool(model.score(X, y) > 0.9)
        True
    """

    classes_: NDArray[Any]
    coef_: Matrix
    intercept_: Vector

    def __init__(
        self,
        alpha: float = 1e-3,
        *,
        classes: Sequence[Any] | None = None,
        l1_ratio: float = 1.0,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
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
        self.classes = classes
        self.l1_ratio = l1_ratio
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
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
            y: labels.
            extras: nothing; weights of records are refused.

        Raises:
            ValueError: for tables of the wrong shape, missing bounds or classes, weights.
            BudgetExceeded: if the ledger refuses; nothing was released then.
        """
        refuse_extras(self, extras)
        classes = public_classes(self.classes, exactly=2)
        table, labels = features_and_targets(self, X, y, numeric=False)
        refuse_other_labels(labels, classes)
        design, budget = self._arguments(table.shape[1])
        descent = self._descent(budget, table.shape[1], (_CLIP, _CLIP))
        numbers = class_numbers(labels, classes)
        found = self._fit(table, numbers.astype(np.float64), numbers >= 0, design, descent)
        slopes, intercept = design.coefficients(found.coefficients)
        self.classes_ = classes
        self.coef_, self.intercept_ = slopes[None, :], np.array([intercept])
        return self

    @property
    def _bend(self) -> float:
        return 0.25

    @staticmethod
    def _residual(products: Vector, targets: Vector) -> Vector:
        # scipy's function works entry by entry, whatever else is in the array.
        residual: Vector = expit(products) - targets
        return residual
