"""``taut delta``: the probability with which a promised epsilon fails."""

from typing import Annotated

import typer

from taut.cli._page import Answer, mistakes_explained
from taut.cli._run_options import JsonOption, LossOptions, ToleranceOption, takes_options


@takes_options
def delta(
    *,
    epsilon: Annotated[float, typer.Option(help="The promised epsilon.")],
    options: LossOptions,
    tolerance: ToleranceOption = 1e-3,
    json: JsonOption = False,
) -> None:
    """Certify the delta of a run at one epsilon, or of any privacy loss in a file.

    Example: taut delta --sigma 1 --rate 0.01 --steps 10000 --epsilon 2
    """
    with mistakes_explained():
        loss, sampler = options.read()
        Answer(
            quantity="delta",
            bounds=loss.delta_bounds(epsilon, tolerance=tolerance),
            tolerance=tolerance,
            given={"epsilon": epsilon},
            loss=loss,
            sampler=sampler,
        ).print(as_json=json)
