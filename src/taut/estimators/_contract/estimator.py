"""The base of all estimators: what a fit promises, and who pays for it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import wraps
from typing import Any, Self, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator

from taut._base import validate
from taut.accounting import Adjacency, Ledger, PrivacyLoss, Promise, charge
from taut.errors import AdjacencyMismatch
from taut.noise import RandomSource

__all__ = ["Ledger", "PrivateEstimator", "whole_or_nothing"]

_Fit = TypeVar("_Fit", bound=Callable[..., Any])


def whole_or_nothing(fit: _Fit) -> _Fit:
    """Return a fit that leaves an estimator as it was where it raises, and is silent otherwise.

    A budget that is exhausted, or an interrupt, must not leave the columns or the loss of one fit
    beside the coefficients of another. What NumPy says of an operation, whether it warns or, where
    people ask for that, raises, would tell of a record.

    Args:
        fit: method that sets attributes.
    """

    @wraps(fit)
    def guarded(self: PrivateEstimator, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        try:
            with np.errstate(all="ignore"):
                return fit(self, *args, **kwargs)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return cast(_Fit, guarded)


class PrivateEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no annotations
    """An estimator whose fit is one private release.

    Subclasses take ``epsilon``, ``delta``, ``adjacency``, ``ledger`` and ``generator`` among
    their arguments, keep them as they are, and call `_begin` in ``fit`` once it is known what the
    fit will cost and before it draws any noise.

    Attributes:
        loss_: privacy loss of the last fit.
        promise_: what may be published about it, with the statement for ``taut verify``.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency | str
    ledger: Ledger | None
    generator: RandomSource | None

    loss_: PrivacyLoss
    promise_: Promise

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that NaN is neutralised, and that noise is never the same twice."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = True
        return tags

    def _more_tags(self) -> dict[str, bool]:
        """Say the same to scikit-learn before 1.6."""
        return {"allow_nan": True, "non_deterministic": True, "poor_score": True}

    def __sklearn_clone__(self) -> Self:
        """Return an estimator that is not fitted, spends the same budget and repeats no noise.

        scikit-learn copies parameters that are no estimators: every copy of a ledger would have
        the whole budget, and copies of a secure source the same bits. Those for experiments
        repeat themselves, as a ``random_state`` does.
        """
        shared: dict[str, Any] = {"ledger": self.ledger}
        if isinstance(self.generator, RandomSource) and self.generator.secure:
            shared["generator"] = self.generator
        bare = copy.copy(self)
        bare.__dict__.update(dict.fromkeys(shared))
        clone: Self = super(PrivateEstimator, bare).__sklearn_clone__()
        clone.__dict__.update(shared)
        return clone

    def _budget(self) -> tuple[float, float]:
        """Return epsilon and delta, checked."""
        epsilon = validate.positive(epsilon=self.epsilon)
        delta = validate.below_one(delta=self.delta)
        return epsilon, delta

    def _relation(self, *allowed: Adjacency) -> Adjacency:
        """Return the neighbouring relation; refuse one that the estimator has no proof for."""
        relation = Adjacency(self.adjacency)
        if allowed and relation not in allowed:
            names = " or ".join(repr(str(one)) for one in allowed)
            raise AdjacencyMismatch(
                f"adjacency must be {names} for {type(self).__name__}, got {str(relation)!r}"
            )
        return relation

    def _begin(self, loss: PrivacyLoss) -> None:
        """Pay for the fit and note what it promises, before anything is released.

        Raises:
            WrongType: if the generator is none of this package, of which nobody knows what it can.
            BudgetExceeded: if the ledger refuses.
        """
        if self.generator is not None:
            validate.instance(RandomSource, generator=self.generator)
        charge(self.ledger, loss)
        self.loss_ = loss
        secure = self.generator is None or self.generator.secure
        self.promise_ = Promise(loss, validate.below_one(delta=self.delta), is_secure=secure)
