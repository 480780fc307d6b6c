"""``taut matrix``: encoders and samplers of correlated noise, ranked at one promise."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from taut.cli._page import mistakes_explained, print_json
from taut.cli._run_options import DeltaOption, JsonOption


def matrix(
    *,
    steps: Annotated[int, typer.Option(help="Number of steps.")],
    epochs: Annotated[float, typer.Option(help="Passes over the data; an epoch has whole steps.")],
    epsilon: Annotated[float, typer.Option(help="Promise that every row keeps.")],
    delta: DeltaOption,
    sampler: Annotated[
        list[str] | None,
        typer.Option(
            help="poisson, allocation, cyclic_poisson, balls_in_bins or fixed_order; again for "
            "several.",
            show_default="all of them",
        ),
    ] = None,
    bands: Annotated[
        list[int] | None,
        typer.Option(help="Number of bands; again for several.", show_default="searched for"),
    ] = None,
    goal: Annotated[
        str, typer.Option(help="Error to rank by: root_mean_square or maximum.")
    ] = "root_mean_square",
    momentum: Annotated[float, typer.Option(help="Momentum of the learner, in [0, 1).")] = 0.0,
    weight_decay: Annotated[
        float, typer.Option(help="Share of the weights that is lost in a step.")
    ] = 0.0,
    plot: Annotated[Path | None, typer.Option(help="Also draw errors against bands here.")] = None,
    json: JsonOption = False,
) -> None:
    """Rank correlated noise and ways to draw batches by the error of running sums.

    Example: taut matrix --steps 512 --epochs 8 --epsilon 2 --delta 1e-6
    """
    from taut.matrix import Workload, optimize

    chosen: dict[str, Any] = {"bands": bands or None, "goal": goal}
    if sampler:
        chosen["samplers"] = [name.strip().lower().replace("-", "_") for name in sampler]
    with mistakes_explained():
        workload = Workload(steps, momentum=momentum, weight_decay=weight_decay)
        with _watched() as progress:
            ranking = optimize(
                workload, epochs=epochs, epsilon=epsilon, delta=delta, progress=progress, **chosen
            )
        if json:
            print_json(ranking.to_dict())
        else:
            typer.echo(str(ranking))
        if plot is not None:
            from taut.report import plot_ranking

            plot_ranking(ranking, plot)


@contextmanager
def _watched() -> Iterator[Callable[[int, int, str], None] | None]:
    """Show on a terminal how far a search is."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, text: bar.update(
            task, completed=done, total=total, description=text
        )
