"""``taut check``: what the settings of other tools promise."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut.cli._page import (
    NEGATIVE,
    given_up_after,
    mistakes_explained,
    print_json,
    print_rows,
    shown,
)
from taut.cli._run_options import JsonOption, TimeoutOption, left_out

if TYPE_CHECKING:
    from rich.table import Table

    from taut.audit import CheckedSetting, SettingsCheck

_IN_FILE = "as the file says"

_FileArgument = Annotated[
    Path, typer.Argument(help="Settings in Python (never run), a notebook, JSON or TOML.")
]
_DeltaOption = Annotated[
    float | None, left_out("Probability with which the promise may fail.", _IN_FILE)
]
_ExamplesOption = Annotated[int | None, left_out("Number of training examples.", _IN_FILE)]
_BatchSizeOption = Annotated[int | None, left_out("Number of examples in a batch.", _IN_FILE)]
_EpochsOption = Annotated[float | None, left_out("Passes over the data.", _IN_FILE)]
_StepsOption = Annotated[int | None, left_out("Number of steps.", _IN_FILE)]
_ClientsOption = Annotated[int | None, left_out("Number of clients of a federation.", _IN_FILE)]
_RoundsOption = Annotated[int | None, left_out("Number of rounds of a federation.", _IN_FILE)]
_ParametersOption = Annotated[int | None, left_out("Number of values of a model.", _IN_FILE)]


def check(
    file: _FileArgument,
    *,
    delta: _DeltaOption = None,
    examples: _ExamplesOption = None,
    batch_size: _BatchSizeOption = None,
    epochs: _EpochsOption = None,
    steps: _StepsOption = None,
    clients: _ClientsOption = None,
    rounds: _RoundsOption = None,
    parameters: _ParametersOption = None,
    timeout: TimeoutOption = 120.0,
    json: JsonOption = False,
) -> None:
    """Read the privacy settings of another tool, and say what they promise.

    It reads arguments of Opacus, Flower, NVFLARE, JAX Privacy and TensorFlow Privacy, and events
    of dp-accounting. It shows certified bounds on epsilon for every way to read them, and what
    the statement lacks. Nothing in the file is executed.

    Exit code 0: the settings make a promise that is certified however they are read; 1: they do
    not, or something is missing; 2: they could not be read.

    Example: taut check train.py --examples 60000 --delta 1e-5
    """
    with mistakes_explained():
        from taut.audit import check_settings

        with given_up_after(timeout):
            found = check_settings(
                file,
                delta=delta,
                examples=examples,
                batch_size=batch_size,
                epochs=epochs,
                steps=steps,
                clients=clients,
                rounds=rounds,
                parameters=parameters,
            )
        if json:
            print_json(found.to_dict())
        else:
            _print(found)
        if not found.passes:
            raise typer.Exit(NEGATIVE)


def _print(found: "SettingsCheck") -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    for place, setting in enumerate(found.settings):
        if place:
            console.print()
        print_rows(_rows(setting))
        console.print(_table(setting))
        print_rows(_listed("false promise", setting.false_promises))
        print_rows(_listed("missing", setting.missing))


def _rows(setting: "CheckedSetting") -> list[tuple[str, str]]:
    claimed = [] if setting.claimed is None else [("claimed", f"epsilon {setting.claimed!r}")]
    return [
        ("tool", f"{setting.tool}, {setting.where}"),
        ("protects", f"one {setting.unit}"),
        *_listed("read", [f"{name} {text}" for name, text in setting.read.items()]),
        *claimed,
        ("delta", "not known" if setting.delta is None else repr(setting.delta)),
        ("promise", "certified" if setting.passes else "not certified"),
    ]


def _table(setting: "CheckedSetting") -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("epsilon >=", justify="right", no_wrap=True)
    table.add_column("<=", justify="right", no_wrap=True)
    table.add_column("read as", overflow="fold")
    table.add_column("adjacency", no_wrap=True)
    table.add_column("assumes", overflow="fold")
    for reading in setting.readings:
        name = f"{reading.name} (as the tool accounts)" if reading.accounted else reading.name
        table.add_row(*reading.shown, shown(name), str(reading.adjacency), shown(reading.assumes))
    return table


def _listed(word: str, texts: Iterable[str]) -> list[tuple[str, str]]:
    return [("" if place else word, text) for place, text in enumerate(texts)]
