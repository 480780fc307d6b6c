"""``taut epsilon``: the privacy of a run."""

from taut.cli._page import Answer, mistakes_explained
from taut.cli._run_options import (
    DeltaOption,
    JsonOption,
    LossOption,
    RunOptions,
    SigmaOption,
    ToleranceOption,
    read_loss,
    takes_run,
)


@takes_run
def epsilon(
    *,
    delta: DeltaOption,
    sigma: SigmaOption = None,
    options: RunOptions,
    loss: LossOption = None,
    tolerance: ToleranceOption = 1e-3,
    json: JsonOption = False,
) -> None:
    """Certify the epsilon of a run, or of any privacy loss in a file.

    Example: taut epsilon --sigma 1 --rate 0.01 --steps 10000 --delta 1e-5
    """
    with mistakes_explained():
        total, drawn = read_loss(options, sigma=sigma, loss_file=loss)
        Answer(
            quantity="epsilon",
            bounds=total.epsilon_bounds(delta, tolerance=tolerance),
            tolerance=tolerance,
            given={"delta": delta},
            loss=total,
            sampler=drawn,
        ).print(as_json=json)
