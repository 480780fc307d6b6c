"""Logistic regression of any number of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency
from taut.estimators._contract.estimator import (
    Ledger,
    PrivateEstimator,
    whole_or_nothing,
)
from taut.estimators._contract.inputs import (
    cut_size,
    features_and_targets,
    refuse_extras,
    refuse_other_labels,
)
from taut.estimators._contract.labels import class_numbers, public_classes
from taut.estimators._contract.linear import LinearClassifier
from taut.estimators._contract.row_wise import in_blocks
from taut.estimators._logistic.gradient_descent import GradientDescent
from taut.noise import L2Ball, RandomSource

__all__ = ["PrivateLogisticRegression"]

_INTERCEPT = 0.3  # of the feature norm: the column of the intercept adds 4 % to the length of a row


class PrivateLogisticRegression(LinearClassifier, PrivateEstimator):
    """Logistic regression of any number of classes, with differential privacy.

    It takes steps along gradients of all records, each cut and with noise, and as many as noise
    allows: the less noise, the nearer to the model without a penalty. For columns with bounds of
    their own and two classes see `PrivateSparseLogisticRegression`.

    Args:
        classes: all labels that there may be. A record with another one counts as zero.
        feature_norm: public bound on the l2 norm of rows; longer rows are scaled down to it.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise, well below one over the number of records.
        fit_intercept: whether there are intercepts.
        clip: l2 norm of the error of a record's probabilities at which its influence is cut. An
            error has at most the norm 1.42, that of a record without a decision is from 0.7 to 1.
        steps: number of steps; None to choose by the number of records (a noisy one where it is
            private), between 20 and 100.
        adjacency: neighbouring relation, ``"add_remove"`` or ``"replace"`` (the number of records
            is public then).
        ledger: budget that pays for the fit, such as a `taut.accounting.PrivacyFilter`.
        generator: source of the noise, by default the secure generator.

    Attributes:
        classes_: all labels, in order.
        coef_: weights, one row per class; for two classes one row, of the second.
        intercept_: intercepts, as many.
        loss_: privacy loss of the fit.
        promise_: what may be published about it.
        n_iter_: number of steps.
        n_features_in_: number of columns.
        feature_names_in_: names of columns, if they have some.

    **Guarantee**: ``loss_``, that of Gaussian noise, keeps (epsilon, delta) under ``adjacency`` for
    all that the fit releases. One hundredth of mu² goes to the number of records, if that is
    private, the rest in equal parts to the gradients, whose number is fixed in view of it: exact
    sums of integers with noise on a public grid. Records with NaN or infinity, or a label that is
    no class, count nowhere. The norm must not be taken from the data.

    Example:
        >>> import numpy as np
        >>> from taut.estimators import PrivateLogisticRegression
        >>> y = np.random.default_rng(0).integers(0, 3, 6000)
        >>> X = np.eye(3)[y] + np.random.default_rng(1).normal(0, 0.3, (6000, 3))
        >>> model = PrivateLogisticRegression(classes=[0, 1, 2], feature_norm=1.5).fit(X, y)
        >>> bool(model.score(X, y) > 0.9)
        True
        >>> print(model.promise_)
        epsilon <= 1.000 at delta = 1e-06 (add_remove, certified; at least 0.9999)
    """

    classes_: NDArray[Any]
    coef_: Matrix
    intercept_: Vector
    n_iter_: int

    def __init__(
        self,
        *,
        classes: Sequence[Any] | None = None,
        feature_norm: float | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        fit_intercept: bool = True,
        clip: float = 0.7,
        steps: int | None = None,
        adjacency: Adjacency | str = "add_remove",
        ledger: Ledger | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        self.classes = classes
        self.feature_norm = feature_norm
        self.epsilon = epsilon
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.clip = clip
        self.steps = steps
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
            ValueError: for tables of the wrong shape, missing classes or norm, weights.
            BudgetExceeded: if the ledger refuses; nothing was released then.
        """
        refuse_extras(self, extras)
        classes = public_classes(self.classes)
        norm = self._norm()
        intercept = validate.flag(fit_intercept=self.fit_intercept)
        table, labels = features_and_targets(self, X, y, numeric=False)
        refuse_other_labels(labels, classes)
        descent = self._descent(len(classes))
        self._begin(descent.loss)
        numbers = class_numbers(labels, classes)
        numbers[~np.isfinite(table).all(axis=1)] = -1
        rows, shares = self._rows(table, numbers >= 0, norm, _INTERCEPT * intercept)
        weights, self.n_iter_ = descent.fit(rows, numbers, self.generator)
        self.classes_ = classes
        if len(classes) == 2:
            weights = weights[1:] - weights[:1]
        self.coef_ = weights[:, 1:] * (shares[1] / norm)
        self.intercept_ = weights[:, 0] * shares[0]
        return self

    def _norm(self) -> float:
        if self.feature_norm is None:
            raise ValueError(
                "feature_norm must be given, from public knowledge: rows that are longer are "
                "scaled down to it, and the data must not be asked"
            )
        norm = validate.positive(feature_norm=self.feature_norm)
        if not 1e-90 <= norm <= 1e90:
            raise ValueError(f"feature_norm must be within 1e90 of one, got {norm!r}")
        return norm

    def _descent(self, classes: int) -> GradientDescent:
        relation = self._relation(Adjacency.ADD_REMOVE, Adjacency.REPLACE)
        epsilon, delta = self._budget()
        clip = cut_size(self.clip)
        steps = self.steps
        if steps is not None:
            steps = validate.positive_integer(steps=steps)
        return GradientDescent(epsilon, delta, classes, min(clip, 1.5), steps, relation)

    def _rows(
        self, table: Matrix, whole: NDArray[np.bool_], norm: float, constant: float
    ) -> tuple[Matrix, tuple[float, float]]:
        """Return rows of length one at most, a constant before the features, and their units."""
        length = math.hypot(1.0, constant)
        rows = np.empty((len(table), table.shape[1] + 1))
        rows[:, 0] = constant / length
        ball, start = L2Ball(table.shape[1], norm), 0
        for block in in_blocks(table):  # copies of the whole table would take many times its memory
            part = slice(start, start + len(block))
            np.multiply(ball.clip(block), 1 / (norm * length), out=rows[part, 1:])
            start += len(block)
        rows[~whole] = 0.0
        return rows, (constant / length, 1 / length)
