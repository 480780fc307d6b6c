"""``taut samplers``: one run under every sampler."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

import taut
from taut._rounding import round_up
from taut.cli._page import json_numbers, mistakes_explained
from taut.cli._run_options import DeltaOption, JsonOption


def samplers(
    *,
    sigma: Annotated[float, typer.Option(help="Noise multiplier of a step.")],
    batch_size: Annotated[int, typer.Option(help="(Expected) number of records in a batch.")],
    population: Annotated[int, typer.Option(help="Number of records.")],
    steps: Annotated[int, typer.Option(help="Number of steps.")],
    delta: DeltaOption,
    mask_rate: Annotated[
        float, typer.Option(help="Twice sampling: probability of a coordinate.")
    ] = 0.5,
    clip_inf: Annotated[
        float, typer.Option(help="Twice sampling: bound on a coordinate, over the clipping norm.")
    ] = 0.1,
    dimension: Annotated[
        int, typer.Option(help="Twice sampling: number of coordinates.")
    ] = 1_000_000,
    plot: Annotated[Path | None, typer.Option(help="Also draw epsilon against steps here.")] = None,
    json: JsonOption = False,
) -> None:
    """Compare what a run costs under every way of drawing its batches.

    Example: taut samplers --sigma 1 --batch-size 100 --population 10000 --steps 1000 --delta 1e-5
    """
    with mistakes_explained():
        comparison = taut.compare_samplers(
            sigma,
            batch_size=batch_size,
            population=population,
            steps=steps,
            delta=delta,
            mask=taut.Mask(mask_rate, clip_inf, dimension),
        )
        if json:
            print(json_format.dumps(json_numbers(comparison.to_dict()), indent=2))
        else:
            _print_table(comparison)
        if plot is not None:
            from taut.report import plot_samplers

            plot_samplers(comparison, plot)


def _print_table(comparison: "taut.SamplerComparison") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("epsilon", justify="right", no_wrap=True)
    table.add_column("sampler", no_wrap=True)
    table.add_column("adjacency", no_wrap=True)
    table.add_column("assumes", overflow="fold")
    for run in comparison.runs:
        table.add_row(round_up(run.epsilon.upper, 5), run.sampler, str(run.adjacency), run.assumes)
    Console(highlight=False, markup=False, emoji=False).print(table)
