"""Gaussian naive Bayes with a promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from taut._base.arrays import Matrix, Vector, real_numbers
from taut.accounting import Adjacency
from taut.estimators._columns.moments import ColumnMoments, columns_release
from taut.estimators._contract.estimator import (
    Ledger,
    PrivateEstimator,
    whole_or_nothing,
)
from taut.estimators._contract.inputs import (
    column_bounds,
    features,
    features_and_targets,
    refuse_extras,
    refuse_other_labels,
)
from taut.estimators._contract.labels import class_numbers, public_classes
from taut.estimators._contract.row_wise import projected
from taut.noise import RandomSource

__all__ = ["PrivateGaussianNB"]


class PrivateGaussianNB(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Gaussian naive Bayes: columns are normal and independent within every class.

    Args:
        classes: all labels that there may be, public. Records with others are counted nowhere, and
            a class without records is an answer like any other.
        bounds: public pair (lower, upper), of numbers or of one number per column; entries beyond
            are clipped.
        priors: public probabilities of the classes, in the order of ``classes``; by default from
            their noisy counts.
        epsilon: epsilon of the promise.
        delta: probability delta of the promise; 0 for a pure one.
        adjacency: ``"add_remove"``.
        ledger: budget that the fit is charged to.
        generator: source of the noise, by default the secure generator.

    Attributes:
        classes_: the classes, sorted.
        class_count_: number of records of each, with noise, at least zero.
        class_prior_: probability of each, never zero.
        theta_: mean of every column in every class, within its bounds.
        var_: variance, at least the error that noise makes of it.
        loss_: privacy loss of the fit.
        promise_: what may be published about it.

    **Guarantee**: `loss_`, for add/remove. Count, sums and sums of squares of a class are one
    release, with the noise of least error among all mechanisms for such a box. One record is in
    one class, so that releases of others do not see it: all of them cost what one does. Rows with
    NaN or infinity are counted nowhere.

    Raises:
        ValueError: if classes or bounds are missing or do not fit, or labels are measurements by
            their type.

    Example:
        >>> import numpy as np
        >>> from taut.estimators import PrivateGaussianNB
        >>> rng = np.random.default_rng(0)
        >>> y = rng.choice(["cat", "dog"], 5000)
        >>> X = rng.normal(np.where(y == "cat", -1.0, 1.0), 0.5)[:, None]
        >>> fitted = PrivateGaussianNB(classes=["cat", "dog"], bounds=(-3, 3)).fit(X, y)
        >>> fitted.predict([[-1.0], [1.0]]).tolist()
        ['cat', 'dog']
    """

    def __init__(
        self,
        *,
        classes: Sequence[Any] | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        priors: ArrayLike | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        adjacency: Adjacency | str = "add_remove",
        ledger: Ledger | None = None,
        generator: RandomSource | None = None,
    ) -> None:
        self.classes = classes
        self.bounds = bounds
        self.priors = priors
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.ledger = ledger
        self.generator = generator

    @whole_or_nothing
    def fit(self, X: Any, y: Any, **extras: object) -> Self:
        """Release counts, means and variances of every class.

        Args:
            X: table, one row per record.
            y: labels, one per record.
            **extras: refused; weights with the reason.
        """
        refuse_extras(self, extras)
        classes = public_classes(self.classes)
        priors = self._public_priors(len(classes))
        table, labels = features_and_targets(self, X, y, numeric=False)
        refuse_other_labels(labels, classes)
        self._relation(Adjacency.ADD_REMOVE)
        lower, upper = column_bounds(self.bounds, table.shape[1])
        epsilon, delta = self._budget()
        release = columns_release(lower, upper, epsilon=epsilon, delta=delta)
        self._begin(release.loss)
        numbers = class_numbers(labels, classes)
        found = [
            release.release(table[numbers == number], self.generator)
            for number in range(len(classes))
        ]
        self.classes_: NDArray[Any] = classes
        self._note(found, priors)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every row."""
        joint = self._joint_log_likelihood(X)
        labels: NDArray[Any] = self.classes_[joint.argmax(axis=1)]
        return labels

    def predict_log_proba(self, X: Any) -> Matrix:
        """Return logarithms of the probabilities of all classes, one row per row."""
        joint = self._joint_log_likelihood(X)
        result: Matrix = joint - logsumexp(joint, axis=1, keepdims=True)
        return result

    def predict_proba(self, X: Any) -> Matrix:
        """Return the probabilities of all classes, one row per row."""
        return np.exp(self.predict_log_proba(X))

    def _note(self, found: list[ColumnMoments], priors: Vector | None) -> None:
        self.class_count_: Vector = np.array([moments.count for moments in found])
        self.theta_: Matrix = np.array([moments.means for moments in found])
        self.var_: Matrix = np.array([moments.variances for moments in found])
        if priors is None:
            # One record more in each class: no noise may rule a class out.
            priors = (self.class_count_ + 1) / (self.class_count_ + 1).sum()
        self.class_prior_: Vector = priors

    def _public_priors(self, classes: int) -> Vector | None:
        if self.priors is None:
            return None
        priors = real_numbers(self.priors, "priors")
        fit = priors.shape == (classes,) and (priors > 0).all()
        if not fit or not np.isclose(priors.sum(), 1.0):
            raise ValueError(
                f"priors must be {classes} positive probabilities that sum to 1, one per class, "
                f"got priors={self.priors!r}"
            )
        return priors[np.argsort(np.asarray(self.classes))]  # as classes are sorted

    def _joint_log_likelihood(self, X: Any) -> Matrix:
        check_is_fitted(self)
        table = features(self, X, reset=False)
        ones = np.ones((table.shape[1], 1))
        with np.errstate(all="ignore"):
            joint = np.stack(
                [
                    prior
                    - 0.5 * np.log(2 * np.pi * variance).sum()
                    - 0.5 * projected(((table - mean) / np.sqrt(variance)) ** 2, ones)[:, 0]
                    for prior, mean, variance in zip(
                        np.log(self.class_prior_), self.theta_, self.var_, strict=True
                    )
                ],
                axis=1,
            )
        # Rows that are no finite numbers say nothing: they get the prior.
        broken = ~np.isfinite(joint).all(axis=1, keepdims=True)
        return np.where(broken, np.log(self.class_prior_), joint)
