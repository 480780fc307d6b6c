"""``taut release``: statistics of a table, with noise, under one promise for all of them."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut._base.rounding import round_up
from taut.cli._budget_options import (
    BudgetDeltaOption,
    BudgetEpsilonOption,
    LedgerOption,
    budget_in,
    left_in,
    refuse_budgets,
)
from taut.cli._page import mistakes_explained, print_json, shown
from taut.cli._run_options import JsonOption, existing_file

if TYPE_CHECKING:
    from taut.accounting import Promise
    from taut.runs import ReleaseConfig

_TableArgument = Annotated[
    Path | None,
    typer.Argument(help="A .csv or .parquet file; may be left out of a dry run.", dir_okay=False),
]
_DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Check the file and the names of columns, show errors, read no record."
    ),
]
_RecordsOption = Annotated[
    int | None, typer.Option(help="Number of records that a dry run assumes.", show_default="10000")
]
_OutOption = Annotated[
    Path | None, typer.Option(help="New file for the results and the statement, in JSON.")
]

_ASSUMED = 10_000  # records of a dry run


def release(
    table: _TableArgument = None,
    *,
    spec: Annotated[Path, existing_file("What to release, in TOML.")],
    dry_run: _DryRunOption = False,
    records: _RecordsOption = None,
    out: _OutOption = None,
    ledger: LedgerOption = None,
    budget_epsilon: BudgetEpsilonOption = None,
    budget_delta: BudgetDeltaOption = None,
    json: JsonOption = False,
) -> None:
    """Publish counts, means, quantiles and covariances of a table, with noise.

    The file says what is promised, between which public bounds the columns lie, which cells they
    have, and what is wanted. Every run is a release of its own: running it twice costs twice,
    and a ledger keeps count.

    Example: taut release people.csv --spec release.toml --out result.json
    """
    with mistakes_explained():
        from taut.runs import ReleaseConfig

        config = ReleaseConfig.from_toml(spec)
        promise = (budget_epsilon, budget_delta)
        if dry_run:
            refuse_budgets(ledger, promise)
            if out is not None:
                raise ValueError("a dry run has no results; leave --out out")
            _print_expected(config, table, records, as_json=json)
            return
        if table is None:
            raise ValueError("name the table, a .csv or .parquet file, or ask for a --dry-run")
        if records is not None:
            raise ValueError(
                "--records is for --dry-run; a public number of records is in [promise] of the file"
            )
        config.check(table)  # before the file of a budget is made
        budget = budget_in(ledger, promise, config.promise.adjacency)
        found = config.release(table, out, ledger=budget)
        if json:
            print_json(config.to_dict(found))
            return
        print(shown(str(found)))
        print(shown(in_one_sentence(found.promise)))
        if budget is not None:
            print(left_in(budget))
        if out is not None:
            print(shown(f"written to {out}; check with: taut verify {out}"))


def in_one_sentence(promise: "Promise") -> str:
    """Return what is guaranteed, for people who know none of its terms."""
    factor = round_up(math.exp(min(promise.epsilon.upper, 700.0)), 4)
    done = "Adding or removing" if str(promise.loss.adjacency) == "add_remove" else "Replacing"
    but = f", except with probability {promise.delta:g}" if promise.delta > 0 else ""
    return (
        f"{done} any one record changes the probability of any result by a factor of at most "
        f"{factor}{but}."
    )


def _print_expected(
    config: "ReleaseConfig", table: Path | None, records: int | None, *, as_json: bool
) -> None:
    from taut.statistics import expected_errors

    if table is not None:
        config.check(table)
    arguments: dict[str, Any] = dict(config.arguments)
    public = arguments.pop("records")
    if public is not None and records not in (None, public):
        raise ValueError(f"the file says records = {public}; leave --records out")
    number = public if public is not None else _ASSUMED if records is None else records
    found = expected_errors(config.statistics, records=number, **arguments)
    if as_json:
        print_json(found.to_dict())
        return
    print(shown(str(found)))
    print(shown(in_one_sentence(found.promise)))
    print("dry run: nothing was released or spent")
