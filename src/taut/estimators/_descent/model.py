"""What linear models by coordinate descent share: arguments, one private fit, its attributes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency
from taut.estimators._contract.estimator import PrivateEstimator
from taut.estimators._contract.inputs import column_bounds, cut_size, penalty_weight
from taut.estimators._descent.budget import CURVATURE_SHARE, NOISE, Budget
from taut.estimators._descent.descent import Descent, Found
from taut.estimators._descent.design import Design

__all__ = ["DescentModel"]


class DescentModel(PrivateEstimator):
    """A linear model of which each coefficient is fitted in turn."""

    bounds: tuple[ArrayLike, ArrayLike] | None
    alpha: float
    l1_ratio: float
    fit_intercept: bool
    clip: float | None
    rate: float
    passes: int | None
    noise: str

    n_iter_: int

    def _arguments(self, columns: int) -> tuple[Design, Budget]:
        """Return the public bounds and the budget, checked."""
        low, high = column_bounds(self.bounds, columns)
        relation = self._relation(Adjacency.ADD_REMOVE, Adjacency.REPLACE)
        epsilon, delta = self._budget()
        if self.noise not in NOISE:
            raise ValueError(f"noise must be one of {', '.join(NOISE)}, got noise={self.noise!r}")
        intercept = validate.flag(fit_intercept=self.fit_intercept)
        return Design(low, high, intercept), Budget(epsilon, delta, CURVATURE_SHARE, relation)

    def _descent(self, budget: Budget, columns: int, usual: tuple[float, float]) -> Descent:
        """Return the algorithm, with everything but the loss checked here.

        Args:
            budget: what may be spent.
            columns: number of features.
            usual: where derivatives are cut unless ``clip`` says so, see `Descent`.
        """
        few, many = usual if self.clip is None else (self.clip, self.clip)
        alpha = penalty_weight(self.alpha)
        ratio = validate.probability(l1_ratio=self.l1_ratio)
        passes = self.passes
        weights = np.append(0.0, np.full(columns, alpha))
        rate = validate.positive(rate=self.rate)
        if rate >= 2:
            raise ValueError(f"rate must be below 2, where steps grow without end, got {rate!r}")
        return Descent(
            budget,
            self._residual,
            self._bend,
            (cut_size(few), cut_size(many)),
            weights * ratio,
            weights * (1 - ratio),
            bool(self.fit_intercept),
            rate,
            None if passes is None else validate.positive_integer(passes=passes),
            self.noise,
        )

    @property
    @abstractmethod
    def _bend(self) -> float:
        """A bound on the second derivative of the loss."""

    @staticmethod
    @abstractmethod
    def _residual(products: Vector, targets: Vector) -> Vector:
        """Return the derivative of the loss of every record by its product."""

    def _fit(
        self,
        X: Matrix,
        targets: Vector,
        whole: NDArray[np.bool_],
        design: Design,
        descent: Descent,
    ) -> Found:
        """Pay, and fit to records; those that are not whole count as zero."""
        self._begin(descent.budget.loss)
        whole = whole & np.isfinite(X).all(axis=1)
        public = descent.budget.adjacency is Adjacency.REPLACE
        found = descent.fit(
            design.columns(X, whole),
            np.where(whole, targets, 0.0),
            design.column_reaches,
            len(X) if public else None,
            self.generator,
        )
        self.n_iter_ = found.passes
        return found

    @abstractmethod
    def fit(self, X: Any, y: Any, **extras: Any) -> Self:
        """Fit the model."""
