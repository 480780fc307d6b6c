"""The application: which commands there are."""

import inspect
from collections.abc import Callable
from typing import Annotated

import typer
from rich.markup import escape

import taut
from taut.cli._commands.audit import audit
from taut.cli._commands.check import check
from taut.cli._commands.compare import compare
from taut.cli._commands.doctor import doctor
from taut.cli._commands.losses.calibrate import calibrate
from taut.cli._commands.losses.delta import delta
from taut.cli._commands.losses.epsilon import epsilon
from taut.cli._commands.losses.risk import risk
from taut.cli._commands.losses.samplers import samplers
from taut.cli._commands.matrix import matrix
from taut.cli._commands.noise import noise
from taut.cli._commands.plan import plan
from taut.cli._commands.release import release
from taut.cli._commands.report import report
from taut.cli._commands.train import resume, train
from taut.cli._commands.tune import tune
from taut.cli._commands.verify import verify

app = typer.Typer(
    name="taut",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"taut {taut.__version__}")
        raise typer.Exit


@app.callback()
def _taut(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Certified answers about differential privacy."""


def _help_of(command: Callable[..., object]) -> str:
    """Return the docstring of a command for terminals of any width, where [...] is no markup."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return escape("\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))


_COMMANDS = (
    epsilon,
    delta,
    risk,
    calibrate,
    samplers,
    noise,
    release,
    matrix,
    plan,
    train,
    resume,
    tune,
    report,
    audit,
    verify,
    check,
    doctor,
    compare,
)
for _command in _COMMANDS:
    app.command(help=_help_of(_command))(_command)
