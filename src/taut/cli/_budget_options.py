"""The options that name a budget from which a command pays."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from taut.accounting import BudgetFile

LedgerOption = Annotated[
    Path | None,
    typer.Option(
        help="File of a budget, in JSON: what is spent is paid from it, or refused.", dir_okay=False
    ),
]
BudgetEpsilonOption = Annotated[
    float | None,
    typer.Option(help="Epsilon of the budget, for the first use of its file."),
]
BudgetDeltaOption = Annotated[
    float | None,
    typer.Option(help="Probability delta of the budget, for the first use of its file."),
]


def refuse_budgets(path: Path | None, promise: tuple[float | None, float | None]) -> None:
    """Refuse the options of a budget where nothing is spent."""
    if path is not None or promise != (None, None):
        raise ValueError("a dry run spends nothing; leave --ledger and --budget-* out")


def budget_in(
    path: Path | None, promise: tuple[float | None, float | None], adjacency: str
) -> BudgetFile | None:
    """Return the budget in a file, None without one; a file that is not there yet is made."""
    from taut.accounting import BudgetFile

    epsilon, delta = promise
    if path is None:
        if promise != (None, None):
            raise ValueError(
                "--budget-epsilon and --budget-delta are for a --ledger; name its file"
            )
        return None
    if not path.exists():
        if epsilon is None or delta is None:
            raise ValueError(
                f"there is no file {str(path)!r}; say what all releases together may cost, with "
                "--budget-epsilon and --budget-delta"
            )
        with suppress(FileExistsError):  # another process has made it meanwhile
            BudgetFile.create(path, epsilon=epsilon, delta=delta, adjacency=adjacency)
    found = BudgetFile(path)
    for name, given, kept in (("epsilon", epsilon, found.epsilon), ("delta", delta, found.delta)):
        if given is not None and given != kept:
            raise ValueError(
                f"{path} has the budget {name} = {kept:g}, got --budget-{name} {given:g}; a budget "
                "that was promised is not changed: leave the option out"
            )
    return found


def left_in(budget: BudgetFile) -> str:
    """Return what is left of a budget, in a line."""
    left = f"{budget.remaining.fraction:.1%}"
    return f"{left} is left of epsilon = {budget.epsilon:g} at delta = {budget.delta:g}"
