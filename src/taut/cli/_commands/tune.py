"""``taut tune``: the best of several training runs, under one promise for all of them."""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut._base.rounding import round_down, round_up
from taut.cli._budget_options import (
    BudgetDeltaOption,
    BudgetEpsilonOption,
    LedgerOption,
    budget_in,
    left_in,
    refuse_budgets,
)
from taut.cli._page import INTERRUPTED, mistakes_explained, print_json, print_rows
from taut.cli._run_options import AllowCodeOption, JsonOption

if TYPE_CHECKING:
    from taut.runs import TuneConfig, TuningOutcome


def tune(
    config: Annotated[Path, typer.Argument(help="A file in TOML.", metavar="CONFIG")],
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check every setting, show what trials cost, train nothing."
        ),
    ] = False,
    allow_code: AllowCodeOption = None,
    ledger: LedgerOption = None,
    budget_epsilon: BudgetEpsilonOption = None,
    budget_delta: BudgetDeltaOption = None,
    json: JsonOption = False,
) -> None:
    """Try settings in secret and keep the best, with one promise for the whole search.

    The file is that of a run, whose [plan] has the promise for all trials, with a section [tune]
    that says what is tried. The same command goes on with a search that was interrupted or killed.
    A ledger pays once, before the first trial.

    Example: taut tune digits.toml
    """
    with mistakes_explained():
        from taut.runs import TuneConfig, prepare_tuning, tune_run

        read = TuneConfig.from_toml(config)
        promise = (budget_epsilon, budget_delta)
        if dry_run:
            refuse_budgets(ledger, promise)
            _print_plan(read, allow_code, as_json=json)
            return
        budget = None
        if ledger is not None or promise != (None, None):
            relation = str(prepare_tuning(read, allow_code=allow_code).loss.adjacency)
            budget = budget_in(ledger, promise, relation)
        print(
            "Searching; how many trials there are, and how they do, stays secret", file=sys.stderr
        )
        try:
            outcome = tune_run(read, allow_code=allow_code, ledger=budget)
        except KeyboardInterrupt:
            print(f"Interrupted; go on with: taut tune {config}", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        _print_outcome(outcome, as_json=json)
        if budget is not None and not json:
            print(left_in(budget))


def _print_plan(config: "TuneConfig", allow_code: str | None, *, as_json: bool) -> None:
    from taut.runs import prepare_tuning, tuning_options

    search = prepare_tuning(config, allow_code=allow_code)
    rows = tuning_options(config)
    if as_json:
        options = [
            {"trials": law.expected, "trial_epsilon": epsilon, "tried": tried}
            for law, epsilon, tried in rows
        ]
        print_json({"trial_epsilon": search.trial_epsilon, "options": options})
        return
    plan = config.base.plan
    print(f"epsilon = {plan.epsilon:g} at delta = {plan.delta:g} for the whole search")
    print(f"{'trials':>8}  {'epsilon of one':>14}  {'a setting is tried':>18}")
    for law, epsilon, tried in rows:
        alone = "" if epsilon is None else round_up(epsilon, 4)
        share = "" if math.isnan(tried) else f"{tried:.0%}"
        print(f"{law.expected:8g}  {alone:>14}  {share:>18}")
    print(f"trials are scored {config.scores}")
    print(f"dry run: nothing was trained; the search would be in {config.directory}")


def _print_outcome(outcome: "TuningOutcome", *, as_json: bool) -> None:
    tuned = outcome.tuned
    if as_json:
        print_json(
            {
                **tuned.statement,
                "is_secure": outcome.is_secure,
                "winner": None if tuned.setting is None else dict(tuned.setting),
                "score": None if tuned.setting is None else tuned.score,
                "scores": outcome.scores,
                "own_epsilon": tuned.own_epsilon.upper,
                "directory": str(outcome.directory),
            }
        )
        return
    winner = "none: no trial had a score"
    if tuned.setting is not None:
        winner = ", ".join(f"{key} = {value!r}" for key, value in tuned.setting.items())
    rows = [
        ("winner", winner),
        ("score", f"{tuned.score:.4g} (of the examples that chose it: optimistic)"),
        ("epsilon", f"{round_up(tuned.epsilon.upper, 6)} (certified upper bound, all trials)"),
        ("", f"{round_down(tuned.epsilon.lower, 6)} (certified lower bound)"),
        ("delta", repr(tuned.delta)),
        ("adjacency", str(tuned.loss.adjacency)),
        (
            "hidden",
            f"the winner alone would claim {round_up(tuned.own_epsilon.upper, 6)}: not a promise",
        ),
    ]
    rows.append(("scored", outcome.scores))
    if not outcome.is_secure:
        rows.append(("note", "randomness came from a seed: an experiment, not a promise"))
    statement = outcome.directory / "statement.json"
    print_rows([*rows, ("files", f"{outcome.directory}; check with: taut verify {statement}")])
