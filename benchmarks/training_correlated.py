"""Independent and correlated noise at equal privacy and equal compute: accuracy of small models.

    python benchmarks/training_correlated.py --markdown docs/results.md

All arms have the same examples, steps, model, learning rate and clipping; sampling and noise alone
differ. Seeds are paired: every arm begins with the same weights. Runs are kept in --out, and not
made again.
"""

import argparse
import json
import os
import time
from functools import cache
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import torch
from tables import write_part
from torch.utils.data import TensorDataset
from training_data import Data, cache_file, load, scattering_transform
from training_recipes import Recipe, cnn, probe, trainer

from taut.comparison._intervals import mean_interval
from taut.comparison._markdown import markdown_table
from taut.matrix import FixedOrder, Workload, banded_inverse
from taut.training import FlatClip, Plan
from taut.training.features import featurise

EXAMPLES, TEST, DELTA, EPSILONS = 10_000, 5_000, 1e-5, (1.0, 4.0, 8.0)
RECIPES = {
    "Fashion-MNIST, linear on features": Recipe(
        "fashion_mnist_scattering", probe, 500, 10, learning_rate=4.0, ema=0.98
    ),
    "CIFAR-10, linear on features": Recipe(
        "cifar10_scattering", probe, 500, 10, learning_rate=2.0, ema=0.98
    ),
    "Fashion-MNIST, CNN": Recipe("fashion_mnist", cnn, 500, 6, learning_rate=4.0, ema=0.95),
}
ARMS = ("independent, poisson", "independent, allocation", "banded", "blt", "inverse")
INVERSE_BANDS = 16  # with which the inverse of these lengths has its least error, within a per cent
REMARK = f"""{EXAMPLES:,} training and {TEST:,} test examples of each dataset, delta {DELTA:g},
batches of 500, 10 epochs (6 for the CNN, where it is listed): small budgets, so that all runs take
minutes. "independent" is plain noise, add/remove one record; the others are correlated, zero-out:
"banded" has the number of bands that `Plan(noise="best", sampling="cyclic_allocation")` finds,
"blt" four buffers and "inverse" 16 bands of an inverse, both in a fixed order, without
amplification. Learning rates are those of the recipes, chosen for Poisson batches, and equal for
all arms. Accuracies are on test examples, with 95% intervals over three seeds; differences to
Poisson batches are over paired seeds, which share the weights at the start. These are experiments:
their noise follows from seeds."""


@cache
def small(name: str) -> Data:
    """Return the first training and test examples of a dataset, with features computed once."""
    source = name.removesuffix("_scattering")
    images = load(source)
    parts = [
        TensorDataset(*images.train[:EXAMPLES]),
        TensorDataset(*images.test[:TEST]),
    ]
    if name != source:
        path = cache_file(f"{name}_{EXAMPLES}_{TEST}.pt")
        if not path.exists():
            transform = scattering_transform(source, images.shape)
            torch.save([featurise(part, transform).tensors for part in parts], path)
        parts = [TensorDataset(*tensors) for tensors in torch.load(path)]
    return Data(name, *parts, images.classes, images.note)


@cache
def plan_of(recipe: Recipe, epsilon: float, arm: str) -> Plan:
    arguments = {
        "examples": EXAMPLES,
        "batch_size": recipe.batch_size,
        "epochs": recipe.epochs,
        "epsilon": epsilon,
        "delta": DELTA,
        "clipping": FlatClip(recipe.clip),
    }
    if arm.startswith("independent"):
        return Plan(**arguments, sampling=arm.partition(", ")[2])
    if arm == "banded":
        return Plan(**arguments, noise="best", sampling="cyclic_allocation")
    if arm == "blt":
        return Plan(**arguments, noise="blt")
    epoch = EXAMPLES // recipe.batch_size
    steps = round(epoch * recipe.epochs)
    encoder = banded_inverse(Workload(steps), min(INVERSE_BANDS, steps), FixedOrder(epoch))
    return Plan(**arguments, noise=encoder)


def accuracy(recipe: Recipe, plan: Plan, seed: int) -> float:
    """Train once, and return the accuracy on the test set."""
    data = small(recipe.dataset)
    running = trainer(recipe, data, plan, seed)
    running.fit(data.train)
    return running.evaluate(data.test).accuracy or 0.0


def remembered(path: Path, name: str, epsilon: float, arm: str, seed: int) -> dict:
    """Return a run that was made before, or make it and remember it."""
    recipe = RECIPES[name]
    settings = repr(vars(recipe) | {"model": recipe.model.__name__, "of": EXAMPLES})
    key = {"name": name, "epsilon": epsilon, "arm": arm, "seed": seed, "of": settings}
    for line in path.read_text().splitlines() if path.exists() else []:
        run = json.loads(line)
        if all(run[field] == value for field, value in key.items()):
            return run
    plan = plan_of(recipe, epsilon, arm)
    begun = time.process_time()
    found = {"accuracy": accuracy(recipe, plan, seed), "sampler": plan.sampling.name}
    bands = None if plan.encoder is None else getattr(plan.encoder, "bands", ())
    run = key | found | {"bands": bands and len(bands), "seconds": time.process_time() - begun}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(run) + "\n")
    return run


def rows(path: Path, seeds: list[int], names: list[str]) -> list[list[str]]:
    """Return one row for every model, epsilon and arm."""
    found = []
    for name in names:
        for epsilon in EPSILONS:
            runs = {arm: [remembered(path, name, epsilon, arm, s) for s in seeds] for arm in ARMS}
            usual = [run["accuracy"] for run in runs[ARMS[0]]]
            for arm in ARMS:
                reached = [run["accuracy"] for run in runs[arm]]
                gains = [a - b for a, b in zip(reached, usual, strict=True)]
                gain = "" if arm == ARMS[0] else str(mean_interval(gains, 0.95))
                first = runs[arm][0]
                words = f"{arm} ({first['bands']} bands)" if arm == "banded" else arm
                cells = [words, first["sampler"], str(mean_interval(reached, 0.95)), gain]
                found.append([name, f"{epsilon:g}", *cells])
                print(" | ".join(found[-1]), flush=True)
    return found


def main() -> None:
    """Train all arms, and print or write their accuracies."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--models", nargs="+", choices=sorted(RECIPES), default=list(RECIPES))
    parser.add_argument("--out", type=Path, default=Path("build/training_correlated.jsonl"))
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write its part of the page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    titles = ["model", "epsilon", "noise", "sampling", "accuracy", "more than Poisson"]
    found = rows(options.out, options.seeds, options.models)
    table = "\n".join(markdown_table(titles, found, left=4))
    print(table)
    if options.markdown:
        text = f"## Correlated noise\n\n{REMARK}\n\n{table}"
        write_part(options.markdown, "training_correlated", text)


if __name__ == "__main__":
    main()
