"""``taut calibrate``: the least noise for a promise."""

from typing import Annotated

import typer

import taut
from taut.cli._page import Answer, mistakes_explained
from taut.cli._run_options import (
    DeltaOption,
    JsonOption,
    RunOptions,
    ToleranceOption,
    takes_options,
)


@takes_options
def calibrate(
    *,
    epsilon: Annotated[float, typer.Option(help="The epsilon to promise.")],
    delta: DeltaOption,
    options: RunOptions,
    tolerance: ToleranceOption = 1e-4,
    json: JsonOption = False,
) -> None:
    """Find the smallest noise, as sigma, that keeps a promised epsilon and delta.

    Example: taut calibrate --epsilon 3 --rate 0.01 --steps 10000 --delta 1e-5
    """
    with mistakes_explained():
        if delta == 0:
            raise ValueError(
                "no Gaussian noise keeps --delta 0, however much of it; give a delta above 0, "
                "usually well below 1 / (number of records)"
            )
        if options.steps == 0:
            raise ValueError("--steps must be at least 1: a run without steps needs no noise")
        run = options.run()
        found = taut.calibrate(run.loss, epsilon=epsilon, delta=delta, tolerance=tolerance)
        Answer(
            quantity="epsilon",
            bounds=found.epsilon,
            tolerance=tolerance,
            given={"delta": delta},
            loss=found.loss,
            sampler=run.sampler,
            sigma=found.value,
        ).print(as_json=json)
