"""``taut noise``: the least noise for a vector of which every coordinate's sensitivity is known."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut._base.rounding import round_down, round_up
from taut.cli._page import mistakes_explained, print_json
from taut.cli._run_options import JsonOption

if TYPE_CHECKING:
    from rich.table import Table

    from taut.noise import NoiseMechanism, Recommendation


_DeltaOption = Annotated[
    float, typer.Option(help="Delta of the guarantee; 0 asks for pure privacy.")
]
_ObjectiveOption = Annotated[str, typer.Option(help="Error to minimise: total, worst or relative.")]
_PowerOption = Annotated[float, typer.Option(help="Exponent of the error: 2 squared, 1 absolute.")]
_ReplaceOneOption = Annotated[
    bool, typer.Option(help="Protect replacing a record; the widths are those of one record.")
]


def noise(
    profile: Annotated[Path, typer.Argument(help="CSV with a column 'width', or JSON; see below.")],
    *,
    epsilon: Annotated[float, typer.Option(help="Epsilon of the guarantee.")],
    delta: _DeltaOption = 0.0,
    objective: _ObjectiveOption = "total",
    power: _PowerOption = 2.0,
    replace_one: _ReplaceOneOption = False,
    plot: Annotated[Path | None, typer.Option(help="File to draw the comparison in.")] = None,
    json: JsonOption = False,
) -> None:
    """Rank all mechanisms for a vector by their error, and print what the best is made of.

    The profile is a CSV file with the columns width (or lower and upper), name and weight (the last
    two are optional), or JSON: a list of widths, or {"cells": 50}, {"ranges": {"age": [18, 90]}},
    {"widths": [...], "l2": 1.0}, {"ranks": [...], "l2": [...]}, {"dimension": 10, "radii": {"2":
    1.0}}, {"vectors": [[...]]}, or {"parts": [...]} with several of them.

    Example: taut noise columns.csv --epsilon 1 --delta 1e-6
    """
    with mistakes_explained():
        from taut.cli._profile_file import read_profile
        from taut.noise import recommend

        read = read_profile(profile)
        found = recommend(
            read.sensitivity.differences() if replace_one else read.sensitivity,
            epsilon,
            delta,
            objective=objective,
            weights=read.weights,
            power=power,
        )
        if json:
            print_json({**found.to_dict(), "names": read.names})
        else:
            _print_tables(found, read.names)
        if plot is not None:
            from taut.report import plot_noise

            plot_noise(found, plot)


_MOST_SCALES = 40


def _print_tables(found: "Recommendation", names: Sequence[str] | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("error", "x best"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("mechanism", no_wrap=True)
    table.add_column("guarantee", overflow="fold")
    for option in found.options:
        ratio = f"{option.error / found.best.error:.3f}"
        table.add_row(f"{option.error:.6g}", ratio, option.name, option.guarantee)
    console.print(table)
    console.print()
    for reason in found.reasons:
        console.print(reason)
    if found.sensitivity.dimension <= _MOST_SCALES:
        console.print()
        console.print(_settings(found.best.mechanism, names))
    if found.left_out:
        console.print()
        for name, reason in found.left_out.items():
            console.print(f"Left out: {name}: {_first_clause(reason)}.")


def _settings(mechanism: "NoiseMechanism", names: Sequence[str] | None) -> "Table":
    """Return what the mechanism is made of, one row per coordinate."""
    from rich.table import Table

    from taut.noise import GroupedNoise, StaircaseNoise

    rows = Table(box=None, padding=(0, 2, 0, 0))
    rows.add_column("coordinate")
    grouped = isinstance(mechanism, GroupedNoise)
    titles = ("group", "epsilon of the group") if grouped else ("scale",)
    for title in titles:
        rows.add_column(title, justify="right")
    cells: dict[int, tuple[str, ...]] = {}
    if isinstance(mechanism, GroupedNoise):
        for number, (group, budget) in enumerate(
            zip(mechanism.groups, mechanism.budgets, strict=True), 1
        ):
            text = round_down(float(budget), 6)
            cells |= {int(place): (str(number), text) for place in group}
    else:
        scales = getattr(mechanism, "scales", ())
        cells = {place: (round_up(float(scale), 6),) for place, scale in enumerate(scales)}
    for place in sorted(cells):
        rows.add_row(names[place] if names else str(place), *cells[place])
    if isinstance(mechanism, StaircaseNoise):
        rows.caption = f"gamma = {mechanism.gamma:.6g}"
        rows.caption_justify = "left"
    return rows


def _first_clause(reason: str) -> str:
    return reason.split(";")[0].rstrip(".")
