"""``taut delta``: the probability with which a promised epsilon fails."""

from typing import Annotated

import typer

import taut
from taut.cli._page import mistakes_explained
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
        bounds = taut.PrivacyLoss.delta_bounds
        options.answer(bounds, tolerance, epsilon=epsilon).print(as_json=json)
