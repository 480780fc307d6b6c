"""``taut samplers``: one run under every sampler."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import taut
from taut._base.rounding import round_up
from taut.cli._page import mistakes_explained, print_json
from taut.cli._run_options import EXAMPLES, SIGMA, CapOption, DeltaOption, JsonOption, left_out

if TYPE_CHECKING:
    from rich.table import Table


_MaskRateOption = Annotated[
    float | None,
    typer.Option(
        help="Also show twice sampling with this probability of a coordinate, and the plain "
        "run of equal cost: other runs than the one that is asked for."
    ),
]
_ClipInfOption = Annotated[
    float | None,
    left_out("Twice sampling: bound on a coordinate, over the clipping norm.", "0.1"),
]
_DimensionOption = Annotated[
    int | None, left_out("Twice sampling: number of coordinates.", "1000000")
]


def samplers(
    *,
    sigma: Annotated[float, typer.Option(*SIGMA, help="Noise multiplier of a step.")],
    batch_size: Annotated[int, typer.Option(help="(Expected) number of records in a batch.")],
    examples: Annotated[int, typer.Option(*EXAMPLES, help="Number of records.")],
    steps: Annotated[int, typer.Option(help="Number of steps.")],
    delta: DeltaOption,
    cap: CapOption = None,
    mask_rate: _MaskRateOption = None,
    clip_inf: _ClipInfOption = None,
    dimension: _DimensionOption = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw epsilon against steps here.")] = None,
    json: JsonOption = False,
) -> None:
    """Compare what a run costs under every way of drawing its batches.

    Example: taut samplers --sigma 1 --batch-size 100 --examples 10000 --steps 1000 --delta 1e-5
    """
    with mistakes_explained():
        comparison = taut.compare_samplers(
            sigma,
            batch_size=batch_size,
            examples=examples,
            steps=steps,
            delta=delta,
            cap=cap,
            mask=_mask(mask_rate, clip_inf, dimension),
        )
        if json:
            print_json(comparison.to_dict())
        else:
            _print_tables(comparison)
        if plot is not None:
            from taut.report import plot_samplers

            plot_samplers(comparison, plot)


def _mask(
    rate: float | None, clip_inf: float | None, dimension: int | None
) -> "taut.accounting.Mask | None":
    if rate is not None:
        default = taut.accounting.Mask()
        bound = default.clip_inf if clip_inf is None else clip_inf
        return taut.accounting.Mask(
            rate, bound, default.dimension if dimension is None else dimension
        )
    if clip_inf is not None or dimension is not None:
        raise ValueError(
            "--clip-inf and --dimension are about twice sampling; add --mask-rate, such as "
            "--mask-rate 0.5"
        )
    return None


def _print_tables(comparison: "taut.accounting.SamplerComparison") -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.print(_table(comparison.runs))
    if comparison.others:
        console.print("\nOther runs than the one above:")
        console.print(_table(comparison.others))


def _table(runs: "tuple[taut.accounting.SampledRun, ...]") -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("epsilon", justify="right", no_wrap=True)
    table.add_column("sampler", no_wrap=True)
    table.add_column("adjacency", no_wrap=True)
    table.add_column("assumes", overflow="fold")
    for run in runs:
        table.add_row(round_up(run.epsilon.upper, 5), run.sampler, str(run.adjacency), run.assumes)
    return table
