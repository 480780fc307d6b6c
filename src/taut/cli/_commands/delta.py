"""``taut delta``: the probability with which a promised epsilon fails."""

from typing import Annotated

import typer

from taut.cli._page import Answer, mistakes_explained
from taut.cli._run_options import (
    JsonOption,
    LossOption,
    RunOptions,
    SigmaOption,
    ToleranceOption,
    read_loss,
    takes_run,
)


@takes_run
def delta(
    *,
    epsilon: Annotated[float, typer.Option(help="The promised epsilon.")],
    sigma: SigmaOption = None,
    options: RunOptions,
    loss: LossOption = None,
    tolerance: ToleranceOption = 1e-3,
    json: JsonOption = False,
) -> None:
    """Certify the delta of a run at one epsilon, or of any privacy loss in a file.

    Example: taut delta --sigma 1 --rate 0.01 --steps 10000 --epsilon 2
    """
    with mistakes_explained():
        total, drawn = read_loss(options, sigma=sigma, loss_file=loss)
        Answer(
            quantity="delta",
            bounds=total.delta_bounds(epsilon, tolerance=tolerance),
            tolerance=tolerance,
            given={"epsilon": epsilon},
            loss=total,
            sampler=drawn,
        ).print(as_json=json)
