"""Privacy filters and odometers: losses that are chosen while outputs are already being seen.

A :class:`PrivacyLoss` is a guarantee for parameters fixed in advance. Who picks the next release,
or when to stop, from what came out so far needs a filter: it holds a budget, and refuses a release
that would exceed it. Proofs are in docs/theory/filters.md.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Never, Self

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut.accounting._adjacency import Adjacency
from taut.accounting._budgets.allowance import (
    BUDGET_FACTOR,
    best_order,
    gaussian_mu,
    positive_delta,
    renyi_budgets,
)
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.given import Approximate
from taut.accounting._mechanisms.noise import Gaussian
from taut.accounting._pairs.pair import CUMULANT_ERROR
from taut.errors import (
    AdjacencyMismatch,
    BudgetExceeded,
    InfeasibleBudget,
    UnsoundConfiguration,
)

__all__ = ["PrivacyFilter", "PrivacyOdometer", "Remaining"]

SCHEMA = "taut.privacy-filter/1"
_MOST_EPSILON = 1e100  # of a budget: squares of what it allows are doubles

_HIGHEST_ORDER = 1e100  # beyond it divergences are those of infinite order
# Any orders are sound. They share delta, which costs each log(10) / (order - 1). Spaced by a factor
# of two, one is near the best for small and for large epsilons.
_ODOMETER_ORDERS = (1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0, 129.0, 257.0)


class Remaining(NamedTuple):
    """What is left of a filter's budget.

    Attributes:
        fraction: share of the budget that is left, from 0 to 1.
        mu: sensitivity / sigma of the largest single Gaussian release that still fits.
    """

    fraction: float
    mu: float


class PrivacyFilter:
    """A budget (epsilon, delta) for losses chosen one after the other, each in view of all outputs.

    Args:
        epsilon: the promise, at least 0.
        delta: the promise, in (0, 1).
        kind: ``"gdp"`` for Gaussian releases only: exact, the most room. ``"renyi"`` for any loss
            with finite Renyi divergences.
        orders: the Renyi orders that count, fixed in advance; by default two: the one that leaves
            most room for Gaussian releases, and one at which pure losses add up by their epsilons.
            Several orders share delta: the budget holds while one of them fits.
        adjacency: the relation that every loss must be for.

    **Guarantee**: whatever is released through :meth:`spend` is (epsilon, delta)-DP under
    ``adjacency`` in total, even if every loss and the decision to stop depend on all outputs so
    far; they must not depend on private data otherwise. ``"gdp"``: Smith and Thakurta (2022),
    Koskela, Tobaben and Honkela (2023). ``"renyi"``: Feldman and Zrnic (2021); several orders by a
    union over which of them fits (docs/theory/filters.md). How much was spent is a function of the
    outputs, so it is public.

    Instances may be shared by threads.

    Example:
        >>> import taut
        >>> budget = taut.PrivacyFilter(epsilon=1.0, delta=1e-6)
        >>> budget.spend(taut.gaussian(sigma=10))
        >>> budget.can_spend(taut.gaussian(sigma=3))
        False
        >>> round(budget.remaining.fraction, 2)
        0.82
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        kind: str = "gdp",
        orders: Sequence[float] | None = None,
        adjacency: Adjacency | str = "add_remove",
    ) -> None:
        """Convert the promise into budgets of what adds up."""
        self._epsilon = validate.non_negative(epsilon=epsilon)
        if self._epsilon > _MOST_EPSILON:
            raise ValueError(
                f"epsilon must be at most {_MOST_EPSILON:g}, got epsilon={epsilon!r}; such a "
                "promise is none"
            )
        self._delta = positive_delta(delta=delta)
        self._adjacency = Adjacency(adjacency)
        if kind not in ("gdp", "renyi"):
            raise ValueError(f"kind must be 'gdp' or 'renyi', got kind={kind!r}")
        self._kind = kind
        if kind == "gdp":
            if orders is not None:
                raise ValueError("orders are for kind='renyi'; a Gaussian filter has none")
            self._orders = np.empty(0)
            self._budgets = np.array([gaussian_mu(self._epsilon, self._delta) ** 2 * BUDGET_FACTOR])
        else:
            self._orders = self._checked_orders(orders)
            share = self._delta / self._orders.size
            self._budgets = renyi_budgets(self._epsilon, share, self._orders)
            if not (self._budgets > 0).any():
                raise InfeasibleBudget(
                    f"no order proves epsilon={epsilon!r} at delta={delta!r}; take larger orders, "
                    "fewer of them, or kind='gdp' if all releases are Gaussian"
                )
        self._spent = np.zeros(self._budgets.size)
        self._lock = threading.Lock()

    def _checked_orders(self, orders: Sequence[float] | None) -> Vector:
        if orders is None:
            share = self._delta / 2
            if share == 0:  # of the smallest double, which no two can share
                return np.array([best_order(self._epsilon, self._delta)])
            # At the second one a pure loss costs its epsilon, and the budget is epsilon + share.
            return np.unique([best_order(self._epsilon, share), min(1 / share, _HIGHEST_ORDER)])
        return _checked_orders(orders)

    @property
    def epsilon(self) -> float:
        """The promised epsilon."""
        return self._epsilon

    @property
    def delta(self) -> float:
        """The promised delta."""
        return self._delta

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of everything that the filter will ever let through, to be added to others."""
        if self._kind == "gdp":
            mu = math.sqrt(float(self._budgets[0])) / BUDGET_FACTOR
            return PrivacyLoss([(Gaussian(1.0, mu), 1)], self._adjacency)
        return PrivacyLoss([(Approximate(self._epsilon, self._delta), 1)], self._adjacency)

    def can_spend(self, loss: PrivacyLoss) -> bool:
        """Return whether ``loss`` fits into what is left."""
        costs = self._costs(loss)
        with self._lock:
            return self._fits(costs)

    def __sklearn_clone__(self) -> Self:
        """Return the same budget: clones of an estimator share it, or it would be spent twice."""
        return self

    def __reduce__(self) -> Never:
        """Refuse copies and pickles, which would spend the same budget again."""
        _refuse_copies(self)

    def spend(self, loss: PrivacyLoss) -> None:
        """Take ``loss`` from the budget; call it before anything is released.

        Raises:
            BudgetExceeded: if it does not fit; the budget is unchanged then.
            UnsoundConfiguration: if a Gaussian filter is given another loss.
            AdjacencyMismatch: if the loss is for another relation.
        """
        costs = self._costs(loss)
        with self._lock:
            if not self._fits(costs):
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratios = costs / self._budgets
                # For the message alone, where no order has a budget.
                needed = float(np.min(ratios, where=self._budgets > 0, initial=math.inf))
                if math.isinf(needed):
                    raise BudgetExceeded(
                        f"{loss} has no finite Renyi divergence at the orders of this filter, so "
                        "that no room is enough; add its loss to others by hand, or take a method "
                        "whose noise is Gaussian or Laplace"
                    )
                raise BudgetExceeded(
                    f"{loss} needs {needed:.3g} of the budget and {self._left().fraction:.3g} is "
                    "left; release it with more noise, or stop here"
                )
            self._spent = _rounded_up(self._spent, costs)

    @property
    def remaining(self) -> Remaining:
        """What is left; a public number."""
        with self._lock:
            return self._left()

    @property
    def spent(self) -> float:
        """The fraction of the budget that is gone; a public number."""
        return 1 - self.remaining.fraction

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description, to resume from."""
        with self._lock:
            return {
                "schema": SCHEMA,
                "kind": self._kind,
                "epsilon": self._epsilon,
                "delta": self._delta,
                "orders": self._orders.tolist(),
                "adjacency": str(self._adjacency),
                "spent": self._spent.tolist(),
            }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PrivacyFilter:
        """Return the filter described by ``data``, with what it had spent.

        Restoring an old description refunds what was spent since, which is a breach of privacy.

        Raises:
            ValueError: if the description is malformed.
        """
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise ValueError(f"not a privacy filter: expected schema {SCHEMA!r}, got {found!r}")
        try:
            result = cls(
                data["epsilon"],
                data["delta"],
                kind=data["kind"],
                orders=data["orders"] or None,
                adjacency=data["adjacency"],
            )
            spent = np.asarray(data["spent"], dtype=float)
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"malformed privacy filter: {error!r}") from None
        if spent.shape != result._spent.shape or not (spent >= 0).all():
            raise ValueError("malformed privacy filter: spent must be numbers of at least 0")
        result._spent = spent
        return result

    def __repr__(self) -> str:
        """Return the promise and what is left."""
        promise = f"epsilon={self._epsilon:g}, delta={self._delta:g}, kind={self._kind!r}"
        return f"<PrivacyFilter {promise}: {self.remaining.fraction:.1%} left>"

    def _fits(self, costs: Vector) -> bool:
        return bool((_rounded_up(self._spent, costs) <= self._budgets).any())

    def _left(self) -> Remaining:
        rest = np.maximum(self._budgets - self._spent, 0.0)
        usable = self._budgets > 0
        fraction = float((rest[usable] / self._budgets[usable]).max(initial=0.0))
        squares = rest if self._kind == "gdp" else 2 * rest / self._orders
        return Remaining(fraction, math.sqrt(float(squares.max())))

    def _costs(self, loss: PrivacyLoss) -> Vector:
        _check_loss(loss, self._adjacency)
        if self._kind == "renyi":
            return _divergences(loss, self._orders)
        total = 0.0
        for release, count in loss.terms:
            if not isinstance(release, Gaussian):
                raise UnsoundConfiguration(
                    f"a Gaussian filter cannot account {release}; create it with "
                    "PrivacyFilter(..., kind='renyi'), which takes any loss with finite Renyi "
                    "divergences"
                )
            total += count * (release.sensitivity / release.sigma) ** 2
        return np.array([total / BUDGET_FACTOR])


class PrivacyOdometer:
    """A running bound on epsilon for losses chosen one after the other, without a budget.

    Args:
        delta: probability delta of the guarantee, in (0, 1).
        orders: the Renyi orders that count, fixed in advance; they share delta. By default ten from
            1.5 to 257, so that the bound is useful for epsilons from small to large.
        adjacency: the relation that every loss must be for.

    **Guarantee**: with probability at least 1 - ``delta`` over the outputs, the log-likelihood
    ratio of everything released stays below :attr:`epsilon` at all times at once, in each
    direction, so it may be read and acted upon at any time (Ville's inequality; Whitehouse et al.
    2023; definition of Rogers, Roth, Ullman and Vadhan 2016). Proof in docs/theory/filters.md. If a
    target is known in advance, a :class:`PrivacyFilter` allows more.

    Example:
        >>> import taut
        >>> odometer = taut.PrivacyOdometer(delta=1e-6)
        >>> for _ in range(10):
        ...     odometer.spend(taut.gaussian(sigma=20))
        >>> round(odometer.epsilon, 2)
        0.92
    """

    def __init__(
        self,
        delta: float,
        *,
        orders: Sequence[float] | None = None,
        adjacency: Adjacency | str = "add_remove",
    ) -> None:
        """Start at zero."""
        self._delta = positive_delta(delta=delta)
        self._orders = _checked_orders(_ODOMETER_ORDERS if orders is None else orders)
        self._adjacency = Adjacency(adjacency)
        self._spent = np.zeros(self._orders.size)
        self._lock = threading.Lock()

    def __sklearn_clone__(self) -> Self:
        """Return the same budget: clones of an estimator share it, or it would be spent twice."""
        return self

    def __reduce__(self) -> Never:
        """Refuse copies and pickles, which would spend the same budget again."""
        _refuse_copies(self)

    def spend(self, loss: PrivacyLoss) -> None:
        """Add ``loss``; call it before anything is released."""
        _check_loss(loss, self._adjacency)
        costs = _divergences(loss, self._orders)
        with self._lock:
            self._spent = _rounded_up(self._spent, costs)

    @property
    def epsilon(self) -> float:
        """The bound so far, infinite if a loss had no finite divergence; a public number."""
        with self._lock:
            if not self._spent.any():
                return 0.0
            room = math.log(self._orders.size / self._delta) / (self._orders - 1)
            return float((self._spent + room).min())

    def __repr__(self) -> str:
        """Return the bound so far."""
        return f"<PrivacyOdometer delta={self._delta:g}: epsilon={self.epsilon:.4g} so far>"


def _divergences(loss: PrivacyLoss, orders: Vector) -> Vector:
    """Return upper bounds on the Renyi divergences of a loss."""
    if not loss.terms:
        return np.zeros(orders.size)
    # No divergence exceeds the pure epsilon, which has no error that would have to be covered.
    pure = loss.epsilon(delta=0.0)
    found = (max(loss.rdp(order), 0.0) * (1 + CUMULANT_ERROR) for order in orders.tolist())
    return np.array([min(one, pure) for one in found])


def _rounded_up(total: Vector, costs: Vector) -> Vector:
    """Return a sum that is not below the true one."""
    with np.errstate(over="ignore"):  # infinite is above what doubles hold
        return np.where(costs > 0, np.nextafter(total + costs, math.inf), total)


def _check_loss(loss: PrivacyLoss, adjacency: Adjacency) -> None:
    if not isinstance(loss, PrivacyLoss):
        raise TypeError(f"loss must be a PrivacyLoss, got loss={loss!r}")
    if loss.terms and loss.adjacency is not adjacency:
        raise AdjacencyMismatch(
            f"the budget is for adjacency={str(adjacency)!r} and the loss for "
            f"{str(loss.adjacency)!r}; make both for the same relation"
        )


def _checked_orders(orders: Sequence[float]) -> Vector:
    at = real_numbers(orders, "orders")
    if at.ndim != 1 or at.size == 0 or not (at > 1).all() or not np.isfinite(at).all():
        raise ValueError(f"orders must be finite numbers above 1, at least one, got {orders!r}")
    return np.unique(at)


def _refuse_copies(budget: object) -> Never:
    raise TypeError(
        f"a {type(budget).__name__} is not copied or pickled, as each copy would spend the same "
        "budget: fit in one process (n_jobs=1), or give a BudgetFile, which processes share; to "
        "save a fitted estimator, call set_params(ledger=None) first"
    )
