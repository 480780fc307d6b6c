"""``taut epsilon``: the privacy of a run."""

import taut
from taut.cli._page import mistakes_explained
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
        bounds = taut.PrivacyLoss.epsilon_bounds
        options.answer(bounds, tolerance, delta=delta).print(as_json=json)
