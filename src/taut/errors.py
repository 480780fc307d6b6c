"""The exceptions that taut raises on purpose.

::

    TautError
    ├── AdjacencyMismatch       two relations in one sum
    ├── UnsoundConfiguration    a theorem's assumption does not hold
    │   └── RunInUse            another process counts the same run
    ├── ClaimRefuted            what a run released contradicts what it promises
    ├── BudgetExceeded          a release would spend more than the budget
    └── InfeasibleBudget        no parameter in the searched range meets the target

Arguments that make no sense at all (a negative sigma, a probability of 3) raise ``ValueError`` or
``TypeError`` instead. To handle everything that concerns privacy rather than typing mistakes::

    try:
        total = training + counts
    except taut.errors.TautError as error:
        print(error)  # says what is wrong and what to do about it
"""

from __future__ import annotations

__all__ = [
    "AdjacencyMismatch",
    "BudgetExceeded",
    "ClaimRefuted",
    "InfeasibleBudget",
    "RunInUse",
    "TautError",
    "UnsoundConfiguration",
]


class TautError(Exception):
    """Base of every error that concerns a privacy guarantee."""


class AdjacencyMismatch(TautError):
    """Losses for different neighbouring relations were put into one sum."""


class UnsoundConfiguration(TautError):
    """The requested combination has no valid theorem; the message names the way out."""


class RunInUse(UnsoundConfiguration):
    """Another process has the ledger of the run open; wait for it, or end it."""


class ClaimRefuted(TautError):
    """Evidence from a run contradicts the bound that is certified for it; the run was stopped."""


class BudgetExceeded(TautError):
    """A release would push the total loss over its budget; nothing was released."""


class InfeasibleBudget(TautError):
    """No admissible parameter meets the privacy target; the message names the knob that helps."""
