"""Individual privacy filters: a budget for every record, vectorised over millions of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut.accounting._budgets.allowance import BUDGET_FACTOR, budget_for
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.noise import Gaussian

__all__ = ["IndividualFilter"]

_DELETED_BALANCE = -1  # less than the least cost, zero, so that nothing is ever afforded
_BALANCE_BLOCK = 2**15  # records at a time: their balances and costs stay in a fast cache
_MOST_RECORDS = 10**9  # eight gigabytes of balances; counts beyond would fail without a name
_UNAFFORDABLE = 2.0**54  # units; more than any balance (below 2^53), and still exact


class IndividualFilter:
    """A budget for every record: a record takes part while its own costs fit, then stops.

    Args:
        budget: what each record may use up, as the sum of (its l2-norm in a noisy sum / sigma)^2
            / 2; or give ``epsilon`` and ``delta`` instead, see :func:`budget_for`.
        epsilon: the promise to every record.
        delta: the promise to every record.
        size: how many records there are at first.

    **Guarantee**: mu-GDP with mu = sqrt(2 budget), that is (epsilon, delta)-DP, under add/remove of
    one record, for Gaussian sum queries chosen adaptively without limit of their number (Feldman
    and Zrnic 2021; Koskela, Tobaben and Honkela 2023). A record's cost must follow from its own
    data and the outputs alone, and a record that does not take part must not influence the answer.
    Who takes part, how many, and every balance are **private**: only noisy sums may leave.

    Balances are integers in units of the budget's last binary digit and costs are rounded up, so
    nothing drifts. Instances may be shared by threads.

    Example:
        >>> from taut.accounting import IndividualFilter
        >>> people = IndividualFilter(epsilon=1.0, delta=1e-5, size=3)
        >>> people.charge([0.03, 0.01, 0.04])
        array([ True,  True, False])
        >>> people.charge(0.02)
        array([False,  True,  True])
    """

    def __init__(
        self,
        budget: float | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        size: int = 0,
    ) -> None:
        """Give every record the same balance."""
        promised = epsilon is not None and delta is not None
        if (budget is None) != promised or (epsilon is None) != (delta is None):
            raise ValueError("give either budget, or both epsilon and delta")
        if budget is None:
            assert epsilon is not None  # checked above
            assert delta is not None
            budget = budget_for(epsilon, delta)
        self._budget = validate.positive(budget=budget)
        self._unit = math.ulp(self._budget)  # a power of two, so scaling by it is exact
        self._full = int(self._budget / self._unit)
        count = _countable(size=validate.integer(size=size))
        self._balances = np.full(count, self._full, dtype=np.int64)
        self._lock = threading.Lock()

    @property
    def mu(self) -> float:
        """The Gaussian parameter of the promise to every record."""
        return math.sqrt(2 * self._budget)

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of everything that is released through this filter, ever."""
        return PrivacyLoss([(Gaussian(1.0, self.mu / BUDGET_FACTOR), 1)])

    def charge(
        self, costs: ArrayLike, indices: NDArray[np.intp] | Sequence[int] | None = None
    ) -> NDArray[np.bool_]:
        """Charge every record that can afford its cost, and return which can: **private**.

        Args:
            costs: one for all, or one per record; at least 0, infinite ones never fit.
            indices: the records concerned, each once; all by default.

        Returns:
            True for the records that take part, shape (records,) or shape of ``indices``.
        """
        values = real_numbers(costs, "costs")
        if values.size and not values.min() >= 0:
            raise ValueError("costs must be numbers of at least 0")
        with self._lock:
            if indices is None:
                return self._settle(self._balances, values)
            chosen = self._checked(indices)
            balances = self._balances[chosen]
            active = self._settle(balances, values)
            self._balances[chosen] = balances
            return active

    def _settle(self, balances: NDArray[np.int64], costs: Vector) -> NDArray[np.bool_]:
        """Subtract in place what fits; blocks keep the work in a fast cache."""
        if costs.shape not in ((), balances.shape):
            raise ValueError(
                f"costs must be one number or of shape {balances.shape}, got {costs.shape}"
            )
        active = np.empty(balances.shape, dtype=np.bool_)
        for start in range(0, balances.size, _BALANCE_BLOCK):
            part = slice(start, start + _BALANCE_BLOCK)
            units = self._units(costs[part] if costs.ndim else costs)
            np.greater_equal(balances[part], units, out=active[part])
            balances[part] -= units * active[part]
        return active

    def insert(self, count: int = 1, balances: ArrayLike | None = None) -> NDArray[np.intp]:
        """Add records and return their indices.

        A person who was deleted and comes back must resume the old balance, else every return adds
        a budget: pass ``balances``, at most the budget each.
        """
        number = _countable(count=validate.positive_integer(count=count))
        fresh = np.full(number, self._full, dtype=np.int64)
        if balances is not None:
            given = np.asarray(balances, dtype=float)
            if given.shape != (number,) or not ((given >= 0) & (given <= self._budget)).all():
                raise ValueError("balances must be one per record, between 0 and the budget")
            fresh = np.floor(given / self._unit).astype(np.int64)
        with self._lock:
            first = self._balances.size
            self._balances = np.append(self._balances, fresh)
        return np.arange(first, first + number)

    def delete(self, indices: NDArray[np.intp] | Sequence[int]) -> None:
        """Let records take part no more; the others keep their indices and balances."""
        with self._lock:
            self._balances[self._checked(indices)] = _DELETED_BALANCE

    def private_remaining(self) -> Vector:
        """Return what is left of every record's budget, 0 if deleted: **sensitive**.

        A balance tells when others asked about a record's neighbourhood. For persistence and for
        showing people their own; never to be published.
        """
        with self._lock:
            return np.maximum(self._balances, 0) * self._unit

    def __repr__(self) -> str:
        """Return the promise; the number of records and their balances are private."""
        return f"<IndividualFilter budget={self._budget:.6g}: balances are private>"

    def _units(self, costs: Vector) -> NDArray[np.int64]:
        """Return costs in units, rounded up; what is beyond every balance stays representable."""
        with np.errstate(over="ignore"):
            rounded = np.ceil(np.minimum(costs / self._unit, _UNAFFORDABLE))
        units: NDArray[np.int64] = rounded.astype(np.int64)
        return units

    def _checked(self, indices: NDArray[np.intp] | Sequence[int]) -> NDArray[np.intp]:
        chosen = np.asarray(indices)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise ValueError("indices must be a vector of integers")
        chosen = chosen.astype(np.intp, copy=False)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < self._balances.size):
            raise ValueError("indices must lie between 0 and the number of records")
        seen = np.zeros(self._balances.size, dtype=np.bool_)
        seen[chosen] = True
        if np.count_nonzero(seen) != chosen.size:
            raise ValueError("indices must name each record once; add up the costs of a record")
        return chosen


def _countable(**argument: int) -> int:
    ((name, number),) = argument.items()
    if number > _MOST_RECORDS:
        raise ValueError(
            f"{name} must be at most {_MOST_RECORDS:,} records, whose balances are held in "
            f"memory, got {name}={number!r}"
        )
    return number
