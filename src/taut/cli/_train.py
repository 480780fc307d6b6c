"""``taut train`` and ``taut resume``: a training run from a file, and one that goes on."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut._rounding import round_down, round_up
from taut.cli._page import INTERRUPTED, mistakes_explained, print_json, print_rows
from taut.cli._run_options import JsonOption

if TYPE_CHECKING:
    from taut.runs import PreparedRun, RunOutcome

RunArgument = Annotated[Path, typer.Argument(help="The directory of the run.", metavar="RUN")]


def train(
    config: Annotated[Path, typer.Argument(help="A file in TOML.", metavar="CONFIG")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show the plan, train nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Begin a private training run that a file describes, and carry it to its end.

    The file has the sections data, model, plan, training and run. The run's directory then holds
    config.toml, plan.json, ledger.jsonl, metrics.csv, checkpoint.pt, model.pt and result.json.

    Example: taut train digits.toml
    """
    with mistakes_explained():
        from taut.runs import RunConfig
        from taut.runs import prepare as prepare_run
        from taut.runs import train as train_run

        read = RunConfig.from_toml(config)
        if dry_run:
            _print_plan(prepare_run(read), as_json=json)
            return
        _carry_out(lambda: train_run(read), read.directory, as_json=json)


def resume(run: RunArgument, *, json: JsonOption = False) -> None:
    """Go on with a run that was stopped or killed; what it has spent stays spent.

    Example: taut resume runs/digits
    """
    with mistakes_explained():
        from taut.runs import resume as resume_run

        _carry_out(lambda: resume_run(run), run, as_json=json)


def _carry_out(action: Callable[[], "RunOutcome"], directory: Path, *, as_json: bool) -> None:
    with _warnings_in_words(), _interrupts_explained(directory):
        outcome = action()
    result, evaluation = outcome.result, outcome.evaluation
    if as_json:
        held_out = None if evaluation is None else vars(evaluation)
        print_json({**result.to_dict(), "held_out": held_out, "directory": str(directory)})
        return
    rows = [
        ("epsilon", f"{round_up(result.epsilon.upper, 6)} (certified upper bound)"),
        ("", f"{round_down(result.epsilon.lower, 6)} (certified lower bound)"),
        ("delta", repr(result.delta)),
        ("adjacency", str(result.adjacency)),
        ("sampler", result.sampler),
        ("updates", f"{result.steps} of {result.plan.steps}, {result.counted_steps} counted"),
    ]
    if evaluation is not None:
        score = f"loss {evaluation.loss:.4f}"
        if evaluation.accuracy is not None:
            score = f"accuracy {evaluation.accuracy:.2%}, {score}"
        rows.append(("held out", f"{score} (not part of the promise)"))
    if not result.is_secure:
        rows.append(("note", "the noise came from a seed: an experiment, not a promise"))
    print_rows([*rows, ("files", str(outcome.directory))])


def _print_plan(prepared: "PreparedRun", *, as_json: bool) -> None:
    if as_json:
        print_json(prepared.plan.to_dict())
        return
    numbers = sum(p.numel() for p in prepared.model.parameters() if p.requires_grad)
    print(prepared.plan)
    print(f"model {prepared.config.model.name} with {numbers} trainable numbers")
    print(f"nothing was trained; the run would be kept in {prepared.config.directory}")


@contextmanager
def _interrupts_explained(directory: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print(f"Interrupted; go on with: taut resume {directory}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _warnings_in_words() -> Iterator[None]:
    """Write warnings as one line each, without the place in the library that gave them."""
    import warnings

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(f"Warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
