"""``taut audit``: epsilon of a run from both sides."""

import dataclasses
from typing import Annotated

import typer

from taut.cli._commands.train import RunArgument
from taut.cli._page import NEGATIVE, mistakes_explained, print_json, print_rows
from taut.cli._run_options import JsonOption

_TrialsOption = Annotated[int, typer.Option(help="Simulated runs on each side.")]
_ConfidenceOption = Annotated[float, typer.Option(help="Probability that the lower bound holds.")]


def audit(
    run: RunArgument,
    *,
    trials: _TrialsOption = 100_000,
    confidence: _ConfidenceOption = 0.99,
    json: JsonOption = False,
) -> None:
    """Attack the mechanism that a run states, and show epsilon from both sides.

    The best attack on the worst pair of neighbours is simulated, from the plan and the steps that
    the ledger counts; the data are not read. The answer is kept in RUN/audit.json, for taut report.
    Exit code 1: the attack exceeds what is certified. Whether code carries out its plan is for
    taut.audit.refute_plan.

    Example: taut audit runs/digits
    """
    with mistakes_explained():
        from taut.audit import attack_plan
        from taut.training import RunDirectory, RunHistory

        if (run / "tuning.json").exists():
            raise ValueError(
                f"{run} holds a search, whose number of trials is secret: taut verify "
                f"{run / 'statement.json'} recomputes what it promises, and audits of a search are "
                "for taut.audit.audit_training"
            )
        files = RunDirectory(run)
        plan = files.read_plan()
        history = RunHistory.read(files.ledger)
        found = attack_plan(
            plan, steps=min(history.steps, plan.steps), trials=trials, confidence=confidence
        )
        found = dataclasses.replace(found, epsilon_upper=history.loss.epsilon(plan.delta))
        files.audit.write_text(found.to_json() + "\n", encoding="utf-8")
        if json:
            print_json(found.to_dict())
        else:
            print_rows(
                [
                    ("epsilon", str(found)),
                    ("attack", f"{trials} simulated runs on each side, confidence {confidence:g}"),
                    ("steps", f"{history.steps} counted"),
                    ("written", str(files.audit)),
                ]
            )
        if not found.passed:
            raise typer.Exit(NEGATIVE)
