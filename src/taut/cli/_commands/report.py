"""``taut report``: what a run promises, for those who publish it and for those who review it."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.cli._commands.train import RunArgument
from taut.cli._page import mistakes_explained, print_json, print_rows
from taut.cli._run_options import JsonOption, left_out

if TYPE_CHECKING:
    from taut.accounting import PrivacyLoss

_UnitOption = Annotated[
    str | None,
    left_out("What one example stands for, such as patient.", "unit of config.toml, else example"),
]
_TitleOption = Annotated[str | None, left_out("What the report is about.", "Privacy report")]
_OwnerOption = Annotated[
    str | None, typer.Option(help="Person or team that answers for the report.")
]
_OutputOption = Annotated[Path | None, left_out("Where to write.", "RUN/report")]


def report(
    run: RunArgument,
    *,
    unit: _UnitOption = None,
    title: _TitleOption = None,
    owner: _OwnerOption = None,
    dataset: Annotated[str | None, typer.Option(help="Name of the data.")] = None,
    output: _OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Write the privacy report of a run: a page, a text, a section for a model card, and JSON.

    Example: taut report runs/digits --unit image --title "Handwritten digits" --owner "Team A"
    """
    with mistakes_explained():
        from taut.audit import RunAttack
        from taut.report import privacy_report
        from taut.training import RunDirectory

        files = RunDirectory(run)
        search = run / "statement.json" if (run / "tuning.json").exists() else None
        kept = files.audit.read_text(encoding="utf-8") if files.audit.exists() else None
        found = privacy_report(
            run if search is None else _loss_of_search(search),
            _unit(files.config) if unit is None else unit,
            **({} if search is None else _words_of_search(search)),
            title="Privacy report" if title is None else title,
            owner=owner,
            dataset=dataset,
            files=[files.model] if files.model.exists() else [],
            attack=None if kept is None else RunAttack.from_json(kept),
        )
        directory = files.report if output is None else output
        page = found.write(directory)
        if json:
            print_json({**found.to_dict(), "page": str(page)})
        else:
            print_rows([("statement", found.statement), ("page", str(page))])


def _loss_of_search(statement: Path) -> "PrivacyLoss":
    """Return the loss of a search, if its statement is true, or would be but for a seed."""
    from taut.audit import verify_statement

    claim = json_module.loads(statement.read_text(encoding="utf-8"))
    claim.pop("is_secure", None)  # the description says it
    verification = verify_statement(claim)
    if not verification.holds:
        raise ValueError(f"{statement} claims what its loss does not keep; see taut verify")
    return verification.loss


def _words_of_search(statement: Path) -> dict[str, Any]:
    """Return delta and a description of a search; its loss says how many trials there may be."""
    claim = json_module.loads(statement.read_text(encoding="utf-8"))
    seeded = claim.get("is_secure", True) is not True
    return {
        "delta": claim["delta"],
        "description": (
            ("As an experiment only, with randomness from a seed. " if seeded else "")
            + "The best of a secret number of training runs on the private examples, chosen by its "
            "score. The loss is that of the whole search; the one of the published run alone "
            "would hide that others were tried."
        ),
    }


def _unit(config: Path) -> str:
    if not config.exists():
        return "example"
    from taut.runs import RunConfig

    return RunConfig.from_toml(config).run.unit
