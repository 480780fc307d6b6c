"""Audits of one training run each, on the linear recipe for MNIST, with a thousand canaries.

    python benchmarks/audit_one_run.py --markdown docs/results.md

Features get a hundred further inputs that are zero in every example, so that canaries have weights
of their own. White box: a canary is a gradient in one such weight, up or down by a coin, in the
batches that Poisson sampling gives it, and is scored by its log likelihood ratios over all noisy
gradients, for either sign: log odds, for the coin that decides about it is fair. Black box: a
canary is an input with one such feature and a label, and is scored by the final model's loss.
"""

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import numpy as np
import torch
from tables import write_part
from torch import nn
from torch.utils.data import TensorDataset
from training_data import Data, load
from training_recipes import RECIPES, Recipe

from taut.audit import CircuitBreaker, OneRunResult, RunCanaries, audit_one_run
from taut.comparison._markdown import markdown_table
from taut.training import Callback, Loading, Logs, Plan, PrivateTrainer
from taut.training.models import LinearProbe

CANARIES, CLASSES, UNUSED = 1_000, 10, 100
LOUD = 100.0  # of an input canary: its gradient is clipped until it is known by heart
EPSILON = 4.0
REMARK = """One run each at certified epsilon 4, delta 1e-5, add/remove one record, with 1,000
canaries that fair coins put in; statements hold with confidence 0.95. "lower bound" is on epsilon
at delta 1e-5: for gradients, which have signs, with guesses weighted by their log odds
([derivation](theory/one-run.md)), "by counting" with the signs known and without weights
([Steinke, Nasr and Jagielski 2023](bibliography.md#steinke-nasr-jagielski-2023)),
"not GDP below" on mu ([Mahloujifar, Melis and Chaudhuri 2024](bibliography.md#mahloujifar-2024));
the epsilon of that mu is an estimate. CPU time is that of the whole run; the breaker's share
is what a `CircuitBreaker` in the same run took of it."""


class GradientCanaries(Callback):
    """Inserts canaries into batches as Poisson sampling would, and sums their likelihood ratios."""

    def __init__(self, canaries: RunCanaries, plan: Plan, deviation: float) -> None:
        self.places = np.arange(CANARIES)
        self.canaries, self.plan, self.deviation = canaries, plan, deviation
        self.ratios = np.zeros((2, CANARIES))  # for the signs +1 and -1
        self.draw = np.random.default_rng()  # of its own in every run, as the coins are

    def on_batch_end(self, trainer: PrivateTrainer) -> None:
        drawn = self.canaries.included & (self.draw.random(CANARIES) < self.plan.rate)
        places = np.flatnonzero(drawn)
        weight = trainer.model.get_parameter("head.weight")
        gradients = torch.zeros(len(places), *weight.shape)
        rows, columns = places % CLASSES, weight.shape[1] - UNUSED + places // CLASSES
        signs = torch.from_numpy(self.canaries.signs[places].astype(np.float32))
        gradients[np.arange(len(places)), rows, columns] = signs
        trainer.insert({"head.weight": gradients})

    def on_step_end(self, trainer: PrivateTrainer, event: object) -> None:
        gradient = trainer.model.get_parameter("head.weight").grad
        sums = gradient[:, -UNUSED:].T.flatten().double().numpy() * self.plan.batch_size
        shift, rate = 1 / self.plan.noise_multiplier, self.plan.rate
        moved = shift * np.stack([sums, -sums]) / self.deviation - shift**2 / 2
        self.ratios += np.log1p(rate * np.expm1(moved))


class Timed(Callback):
    """Measures what a callback costs."""

    def __init__(self, inner: CircuitBreaker) -> None:
        self.inner, self.seconds = inner, 0.0

    def _measured(self, call, *arguments: object) -> None:
        begin = time.process_time()
        call(*arguments)
        self.seconds += time.process_time() - begin

    def on_fit_start(self, trainer: PrivateTrainer) -> None:
        self._measured(self.inner.on_fit_start, trainer)

    def on_batch_end(self, trainer: PrivateTrainer) -> None:
        self._measured(self.inner.on_batch_end, trainer)

    def on_step_end(self, trainer: PrivateTrainer, event: object) -> None:
        self._measured(self.inner.on_step_end, trainer, event)


def padded(features: torch.Tensor) -> torch.Tensor:
    """Return flat features with further ones that are zero."""
    flat = features.flatten(1)
    wide = torch.zeros(len(flat), flat.shape[1] + UNUSED, dtype=flat.dtype)
    wide[:, : flat.shape[1]] = flat
    return wide


def input_canaries(width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.arange(CANARIES)
    inputs = torch.zeros(CANARIES, width, dtype=dtype)
    inputs[places, width - UNUSED + places // CLASSES] = LOUD
    return inputs, places % CLASSES


def trained(
    recipe: Recipe, data: TensorDataset, callbacks: list[Callback], plan: Plan, width: int
) -> PrivateTrainer:
    model = LinearProbe(width, CLASSES)
    running = PrivateTrainer(
        model,
        nn.CrossEntropyLoss(reduction="none"),
        plan,
        optimizer=recipe.optimizer(model),
        scheduler=recipe.schedule(plan.steps),
        loading=Loading(max_physical_batch_size=recipe.physical_batch_size),
        logs=Logs(callbacks=callbacks, progress=False),
        ema=recipe.ema,
    )
    running.fit(data)
    return running


def plan_of(recipe: Recipe, examples: int) -> Plan:
    return recipe.plan(
        Data("", TensorDataset(torch.zeros(examples, 1)), TensorDataset(), CLASSES), EPSILON
    )


def white_box(
    recipe: Recipe, inputs: torch.Tensor, labels: torch.Tensor
) -> tuple[OneRunResult, float, float]:
    plan, canaries = plan_of(recipe, len(inputs)), RunCanaries.tossed(CANARIES, signed=True)
    watch = GradientCanaries(canaries, plan, plan.noise_multiplier * recipe.clip)
    breaker = Timed(CircuitBreaker())
    begin = time.process_time()
    trained(recipe, TensorDataset(inputs, labels), [watch, breaker], plan, inputs.shape[1])
    share = breaker.seconds / (time.process_time() - begin)
    scores = canaries.scored(watch.ratios[0], log_odds=True, opposite=watch.ratios[1])
    counted = audit_one_run(replace(scores, log_odds=False), delta=1e-5)
    return audit_one_run(scores, delta=1e-5, claimed=plan.loss), share, counted.epsilon_lower


@torch.no_grad()
def black_box(recipe: Recipe, inputs: torch.Tensor, labels: torch.Tensor) -> OneRunResult:
    canaries = RunCanaries.tossed(CANARIES)
    made, classes = input_canaries(inputs.shape[1], inputs.dtype)
    kept = torch.from_numpy(canaries.included.copy())
    both = TensorDataset(torch.cat([inputs, made[kept]]), torch.cat([labels, classes[kept]]))
    plan = plan_of(recipe, len(both))
    with torch.enable_grad():
        running = trained(recipe, both, [], plan, inputs.shape[1])
    outputs = running.model(made)
    losses = nn.functional.cross_entropy(outputs, classes, reduction="none")
    return audit_one_run(canaries.scored(-losses.numpy()), delta=1e-5, claimed=plan.loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=3, help="audits of each kind, one run each")
    parser.add_argument("--kind", default="", help="gradients or inputs; both by default")
    parser.add_argument("--markdown", type=Path, help="write the table into this file")
    arguments = parser.parse_args()
    recipe = RECIPES["mnist_linear"]
    train = load(recipe.dataset).train
    inputs, labels = padded(train.tensors[0]), train.tensors[1]
    rows = []
    kinds = {"gradients, white box": white_box, "inputs, black box": black_box}
    asked = [name for name in kinds if arguments.kind in name for _ in range(arguments.runs)]
    for name in asked:
        audit = kinds[name]
        begin = time.process_time()
        found, share = audit(recipe, inputs, labels), None
        counted = None
        if isinstance(found, tuple):
            found, share, counted = found
        spent = time.process_time() - begin
        print(f"{name}: {spent:.0f} CPU s, breaker {share}\n{found}", flush=True)
        rows.append(
            [
                name,
                f"{found.correct} of {found.guesses}",
                f"{found.epsilon_lower:.2f}",
                "" if counted is None else f"{counted:.2f}",
                f"{found.mu_lower:.2f}",
                f"{found.gaussian_epsilon:.2f}",
                "no" if found.passed else "yes",
                f"{spent:.0f}",
                "" if share is None else f"{share:.1%}",
            ]
        )
    heads = [
        "canaries",
        "right",
        "lower bound",
        "by counting",
        "not GDP below",
        "its epsilon",
        "claim refuted",
    ]
    table = "\n".join(markdown_table([*heads, "CPU s", "breaker"], rows, left=1))
    print(table)
    if arguments.markdown:
        part = f"## One-run audits\n\n{REMARK}\n\n{table}"
        write_part(arguments.markdown, "audit_one_run", part)


if __name__ == "__main__":
    main()
