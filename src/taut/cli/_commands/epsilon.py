"""``taut epsilon``: the privacy of a run."""

from taut.cli._page import Answer, mistakes_explained
from taut.cli._run_options import (
    DeltaOption,
    JsonOption,
    LossOptions,
    ToleranceOption,
    takes_options,
)


@takes_options
def epsilon(
    *,
    delta: DeltaOption,
    options: LossOptions,
    tolerance: ToleranceOption = 1e-3,
    json: JsonOption = False,
) -> None:
    """Certify the epsilon of a run, or of any privacy loss in a file.

    Example: taut epsilon --sigma 1 --rate 0.01 --steps 10000 --delta 1e-5
    """
    with mistakes_explained():
        loss, sampler = options.read()
        Answer(
            quantity="epsilon",
            bounds=loss.epsilon_bounds(delta, tolerance=tolerance),
            tolerance=tolerance,
            given={"delta": delta},
            loss=loss,
            sampler=sampler,
        ).print(as_json=json)
