"""A private classifier of handwritten digits, from a plan to a report. Run it with `make demo`.

The digits come with scikit-learn: 1,797 images of 8 by 8 pixels, of which 1,437 are treated as
private. Everything is as it would be in earnest, the randomness included, so accuracies differ a
little from run to run.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.padding import Padding
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset, random_split

from taut.report import privacy_report
from taut.training import Callback, FlatClip, Logs, Plan, PrivateTrainer, StepEnd

EPSILON, DELTA = 3.0, 1e-5
PRIVATE = 1_437

console = Console(highlight=False)


def say(text: str) -> None:
    """Print a paragraph."""
    console.print(Padding(text, (0, 2)))


class Announce(Callback):
    """Prints epsilon and accuracy a few times during training."""

    def __init__(self, held_out: TensorDataset, lines: int) -> None:
        self.held_out, self.lines = held_out, lines

    def on_step_end(self, trainer: PrivateTrainer, event: StepEnd) -> None:
        if event.step % max(event.steps // self.lines, 1) and event.step != event.steps:
            return
        accuracy = trainer.evaluate(self.held_out).accuracy or 0.0
        spent = math.ceil(100 * trainer.plan.epsilon_at(event.step)) / 100  # never less than it is
        bar = "█" * round(10 * spent / EPSILON)
        say(
            f"step {event.step:3d}/{event.steps}  epsilon spent {spent:4.2f} of {EPSILON:g} "
            f"{bar:<10}  accuracy {accuracy:6.1%}"
        )


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Return private images, and images that were held out."""
    data = load_digits()
    pixels = torch.tensor(data.data, dtype=torch.float32) / 16
    whole = TensorDataset(pixels, torch.tensor(data.target))
    private, held_out = random_split(
        whole, [PRIVATE, len(whole) - PRIVATE], torch.Generator().manual_seed(0)
    )
    return private, held_out


def planned(epochs: float) -> Plan:
    return Plan(
        examples=PRIVATE,
        batch_size=512,
        epochs=epochs,
        epsilon=EPSILON,
        delta=DELTA,
        clipping=FlatClip(1.0),
    )


def forget(run_dir: Path) -> None:
    """Remove an earlier run of the demo, and nothing else."""
    if run_dir.exists() and any(run_dir.iterdir()) and not (run_dir / "plan.json").exists():
        sys.exit(f"{run_dir} holds something else than a run; choose another --run-dir")
    shutil.rmtree(run_dir, ignore_errors=True)


def command() -> str:
    """Return how the taut command is called from here."""
    beside = Path(sys.executable).with_name("taut")
    if shutil.which("taut") or not beside.exists():
        return "taut"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


def main(arguments: Sequence[str] | None = None) -> float:
    """Plan, train, state the promise and write the report; return the accuracy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=float, default=100)
    parser.add_argument("--run-dir", type=Path, default=Path("build/demo"))
    parser.add_argument("--report", type=Path, default=Path("report"))
    chosen = parser.parse_args(arguments)
    forget(chosen.run_dir)
    private, held_out = digits()

    console.rule("1. Plan: what is promised, before any image is looked at")
    plan = planned(chosen.epochs)
    say(
        f"{plan.examples} private images, {plan.steps} steps with about {plan.batch_size:.0f} of "
        f"them each. For epsilon {EPSILON:g} and delta {DELTA:g} every step needs noise "
        f"{plan.noise_multiplier:.1f} times as large as what one image can contribute."
    )

    console.rule("2. Train: clip every image's gradient, add noise, count what was spent")
    model = nn.Linear(64, 10)
    trainer = PrivateTrainer(
        model,
        nn.CrossEntropyLoss(reduction="none"),
        plan,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.9),
        ema=0.95,
        run_dir=chosen.run_dir,
        logs=Logs(callbacks=[Announce(held_out, lines=10)], progress=False),
    )
    result = trainer.fit(private)
    accuracy = trainer.evaluate(held_out).accuracy or 0.0

    console.rule("3. The certified statement")
    say(result.statement)

    console.rule("4. What that means")
    found = math.ceil(1000 * (1 - result.loss.tradeoff(fpr=0.05))) / 10  # a bound is rounded up
    factor, odds = math.ceil(10 * math.exp(EPSILON)) / 10, round(1 / DELTA)
    say(
        "The model gives little away about any one image: had it been left out, whatever came of "
        f"the training would have been at most {factor:.1f} times more or less likely (that is "
        f"epsilon: e to the power of {EPSILON:g}), but for a chance of 1 in {odds:,} (that is "
        "delta)."
    )
    say(
        "Suppose somebody knows every other image, sees every step of the training, and wants to "
        "find out whether one particular image was used. If they wrongly accuse 5 of 100 images "
        f"that were not used, they recognise at most {found:.1f} % of those that were. Without the "
        "model they would recognise 5 %. This holds for every image, whatever they compute."
    )
    where = privacy_report(chosen.run_dir, unit="image", title="Handwritten digits").write(
        chosen.report
    )
    console.rule("5. The report")
    say(
        f"Accuracy on {len(held_out)} images that were held out: {accuracy:.1%}. Open {where} in a "
        f"browser. To compute the promise again: {command()} verify {chosen.report}/statement.json"
    )
    return accuracy


if __name__ == "__main__":
    main(sys.argv[1:])
