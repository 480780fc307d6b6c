"""Whoever keeps a budget: what releases pay before they look at data."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from taut._base import validate
from taut.accounting._loss import PrivacyLoss

__all__ = ["Ledger", "charge"]


@runtime_checkable
class Ledger(Protocol):
    """Whatever takes losses: a `PrivacyFilter` refuses those beyond its budget.

    Every copy would have a budget of its own. A ledger of yours should refuse to be copied and
    pickled, as a `PrivacyFilter` does, or keep its accounts elsewhere, as a `BudgetFile` does.
    """

    def spend(self, loss: PrivacyLoss) -> None:
        """Take a loss, before anything is released, or raise."""
        ...


def charge(ledger: Ledger | None, loss: PrivacyLoss) -> None:
    """Have a loss taken by a ledger, if there is one, before anything is released.

    Args:
        ledger: who keeps the budget, or None if nobody does.
        loss: privacy loss of the release that follows.

    Raises:
        BudgetExceeded: if the ledger refuses.
        TypeError: if it is no ledger.

    Example:
        >>> import taut
        >>> from taut.accounting import charge
        >>> budget = taut.PrivacyFilter(epsilon=1.0, delta=1e-6)
        >>> charge(budget, taut.gaussian(sigma=10))
        >>> budget.remaining.fraction < 1
        True
    """
    if ledger is None:
        return
    if not isinstance(ledger, Ledger):
        raise validate.WrongType(
            f"ledger must have a method spend(loss), as PrivacyFilter has, "
            f"got {type(ledger).__name__}"
        )
    ledger.spend(loss)
