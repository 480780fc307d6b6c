"""``taut delta``: the probability with which a promised epsilon fails."""

from typing import Annotated

import typer

from taut.cli._page import Answer, mistakes_explained
from taut.cli._run_options import (
    AdjacencyOption,
    BatchSizeOption,
    EpochsOption,
    ExamplesOption,
    JsonOption,
    LossOption,
    RateOption,
    RunOptions,
    SamplerOption,
    SigmaOption,
    StepsOption,
    ToleranceOption,
    read_loss,
)


def delta(
    *,
    epsilon: Annotated[float, typer.Option(help="The promised epsilon.")],
    sigma: SigmaOption = None,
    rate: RateOption = None,
    steps: StepsOption = None,
    epochs: EpochsOption = None,
    sampler: SamplerOption = None,
    batch_size: BatchSizeOption = None,
    examples: ExamplesOption = None,
    adjacency: AdjacencyOption = None,
    loss: LossOption = None,
    tolerance: ToleranceOption = 1e-3,
    json: JsonOption = False,
) -> None:
    """Certify the delta of a run at one epsilon, or of any privacy loss in a file.

    Example: taut delta --sigma 1 --rate 0.01 --steps 10000 --epsilon 2
    """
    with mistakes_explained():
        options = RunOptions(
            steps=steps,
            epochs=epochs,
            sampler=sampler,
            rate=rate,
            batch_size=batch_size,
            examples=examples,
            adjacency=adjacency,
        )
        total, drawn = read_loss(options, sigma=sigma, loss_file=loss)
        Answer(
            quantity="delta",
            bounds=total.delta_bounds(epsilon, tolerance=tolerance),
            tolerance=tolerance,
            given={"epsilon": epsilon},
            loss=total,
            sampler=drawn,
        ).print(as_json=json)
