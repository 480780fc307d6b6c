"""``taut epsilon``: the privacy of a run."""

from taut.cli._page import Answer, mistakes_explained
from taut.cli._run_options import (
    AdjacencyOption,
    BatchSizeOption,
    DeltaOption,
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


def epsilon(
    *,
    delta: DeltaOption,
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
    """Certify the epsilon of a run, or of any privacy loss in a file.

    Example: taut epsilon --sigma 1 --rate 0.01 --steps 10000 --delta 1e-5
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
            quantity="epsilon",
            bounds=total.epsilon_bounds(delta, tolerance=tolerance),
            tolerance=tolerance,
            given={"delta": delta},
            loss=total,
            sampler=drawn,
        ).print(as_json=json)
