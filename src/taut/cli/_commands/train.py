"""``taut train`` and ``taut resume``: a training run from a file, and one that goes on."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut._base.rounding import round_down, round_up
from taut.cli._page import (
    INTERRUPTED,
    TERMINATED,
    mistakes_explained,
    print_json,
    print_rows,
)
from taut.cli._run_options import AllowCodeOption, JsonOption

if TYPE_CHECKING:
    from taut.runs import PreparedRun, RunOutcome
    from taut.training import Callback

RunArgument = Annotated[Path, typer.Argument(help="The directory of the run.", metavar="RUN")]


_DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Check all that the first step checks, show the plan, train nothing."
    ),
]


def train(
    config: Annotated[Path, typer.Argument(help="A file in TOML.", metavar="CONFIG")],
    *,
    dry_run: _DryRunOption = False,
    allow_code: AllowCodeOption = None,
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
            with _warnings_in_words():
                prepared = prepare_run(read, allow_code=allow_code)
            _print_plan(prepared, as_json=json)
            return

        def begin(callback: "Callback") -> "RunOutcome":
            return train_run(read, allow_code=allow_code, callbacks=[callback])

        _carry_out(begin, read.directory, allow_code, as_json=json)


def resume(
    run: RunArgument, *, allow_code: AllowCodeOption = None, json: JsonOption = False
) -> None:
    """Go on with a run that was interrupted or killed; what it has spent stays spent.

    Example: taut resume runs/digits
    """
    with mistakes_explained():
        from taut.runs import resume as resume_run

        def go_on(callback: "Callback") -> "RunOutcome":
            return resume_run(run, allow_code=allow_code, callbacks=[callback])

        _carry_out(go_on, run, allow_code, as_json=json)


def _carry_out(
    action: Callable[["Callback"], "RunOutcome"],
    directory: Path,
    allow_code: str | None,
    *,
    as_json: bool,
) -> None:
    with _warnings_in_words(), _interrupts_explained(directory, allow_code) as callback:
        outcome = action(callback)
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
    print(f"model {prepared.config.model.name}, {numbers:,} trainable parameters")
    print(f"dry run: nothing was trained; the run directory would be {prepared.config.directory}")


@contextmanager
def _interrupts_explained(directory: Path, allow_code: str | None) -> Iterator["Callback"]:
    """Say where a run goes on, where it was stopped, and how to take it up again."""
    from taut.training import Callback, PrivateTrainer

    stopped = ""

    class Course(Callback):
        def on_fit_start(self, trainer: PrivateTrainer) -> None:
            if trainer.ledger is not None and trainer.ledger.steps:
                print(
                    _where(trainer.step, trainer.plan.steps, trainer.ledger.steps), file=sys.stderr
                )

        def on_interrupt(self, trainer: PrivateTrainer) -> None:
            nonlocal stopped
            stopped = f" after step {trainer.step} of {trainer.plan.steps}"

    try:
        yield Course()
    except KeyboardInterrupt:
        print(_how_to_go_on(stopped, directory, allow_code), file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except SystemExit as ended:
        if ended.code == TERMINATED:
            print(_how_to_go_on(stopped, directory, allow_code), file=sys.stderr)
        raise


def _where(step: int, steps: int, counted: int) -> str:
    lost = counted - step
    more = f"; {lost} further steps count, of which no checkpoint was written" if lost else ""
    return f"Going on after step {step} of {steps}{more}"


def _how_to_go_on(stopped: str, directory: Path, allow_code: str | None) -> str:
    from taut.training import RunDirectory

    if not RunDirectory(directory).config.exists():
        return "Interrupted before the first step: nothing was trained or spent"
    allowed = "" if allow_code is None else f" --allow-code {allow_code}"
    return f"Interrupted{stopped}; go on with: taut resume {directory}{allowed}"


@contextmanager
def _warnings_in_words() -> Iterator[None]:
    """Write warnings as one line each, without the place in the library that gave them."""
    import warnings

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(f"Warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
