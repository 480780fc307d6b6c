"""What fitted linear models say of new rows, whichever way their coefficients were found."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from taut._base.arrays import Matrix, Vector
from taut.estimators._contract.inputs import features
from taut.estimators._contract.row_wise import projected

__all__ = ["LinearClassifier", "LinearRegressor"]


class LinearRegressor(RegressorMixin):  # type: ignore[misc]  # scikit-learn has no annotations
    """Predicts from ``coef_``, one slope per column, and a number ``intercept_``."""

    def predict(self, X: Any) -> Vector:
        """Return the values of the model, one per row.

        Args:
            X: table of features.
        """
        values: Vector = _scores(self, X)[:, 0]
        return values

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that noise hides what a few records say."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class LinearClassifier(ClassifierMixin):  # type: ignore[misc]
    """Predicts from ``coef_`` and ``intercept_``: a row per class, or one for the second of two."""

    classes_: NDArray[Any]

    def decision_function(self, X: Any) -> Matrix:
        """Return scores, one row per row and one column per class; for two classes one number each.

        Args:
            X: table of features.
        """
        scores = _scores(self, X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Matrix:
        """Return the probability of every class, one row per row.

        Args:
            X: table of features.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            second = expit(scores)
            return np.column_stack([1 - second, second])
        result: Matrix = softmax(scores, axis=1)
        return result

    def predict_log_proba(self, X: Any) -> Matrix:
        """Return logarithms of the probabilities of all classes, one row per row.

        Args:
            X: table of features.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([log_expit(-scores), log_expit(scores)])
        result: Matrix = log_softmax(scores, axis=1)
        return result

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class of every row.

        Args:
            X: table of features.
        """
        scores = self.decision_function(X)
        numbers = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        found: NDArray[Any] = self.classes_[numbers]
        return found

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that noise hides what a few records say."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


def _scores(estimator: BaseEstimator, X: Any) -> Matrix:
    """Return products of rows and coefficients, each row by itself; what overflows is no error."""
    check_is_fitted(estimator)
    table = features(estimator, X, reset=False)
    slopes = np.atleast_2d(estimator.coef_)
    with np.errstate(all="ignore"):
        scores: Matrix = projected(table, slopes.T) + estimator.intercept_
    return scores
