"""Poisson batches and random allocation at equal compute: noise at equal epsilon, and accuracy.

    python benchmarks/training_samplers.py --markdown docs/results.md --figure docs/images

Both samplers have the same rate, steps, model, learning rate and clipping; only the draws and the
noise that they need differ. Runs are kept in --out, and not made again.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import torch
from tables import write_part
from training_data import load
from training_recipes import Recipe, cnn, probe, trainer

from taut.comparison._intervals import mean_interval
from taut.comparison._markdown import markdown_table
from taut.training import FlatClip, Plan

SAMPLERS = ("poisson", "allocation")
EPSILONS = (1.0, 3.0)
DELTA = 1e-5
RECIPES = {
    "linear, pixels": Recipe("mnist", probe, 600, 10, learning_rate=1.0, ema=0.98),
    "linear, features": Recipe("mnist_scattering", probe, 2_000, 10, learning_rate=4.0, ema=0.98),
    "CNN, 26k": Recipe("mnist", cnn, 1_200, 2, learning_rate=4.0, ema=0.9),
}
SETTINGS = ((600, 1), (600, 10), (600, 100), (60, 1), (60, 10), (6_000, 10), (6_000, 100))
"""Batch sizes out of 60,000 examples, and epochs, for which noise alone is compared."""
DRAWN = ((600, 1, "-"), (600, 10, "--"), (6_000, 10, ":"))
"""Batch sizes, epochs and line styles of the figure."""
SHOWN = (0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Epsilons of the figure."""
REMARK = """MNIST at delta 1e-5, add/remove one record. Noise is the least noise multiplier that
keeps the promise, and "less" what allocation saves of it. Learning rates were chosen for Poisson
batches, on training examples that were held out, and are equal for both samplers; accuracies are
on the test set, with 95% intervals over seeds. "Features" are scattering features. Three seeds show
no difference of accuracy.
These are experiments: their noise follows from seeds."""


def plan_of(recipe: Recipe, epsilon: float, sampler: str) -> Plan:
    return Plan(
        examples=60_000,
        batch_size=recipe.batch_size,
        epochs=recipe.epochs,
        epsilon=epsilon,
        delta=DELTA,
        clipping=FlatClip(recipe.clip),
        sampling=sampler,
    )


def accuracy(recipe: Recipe, plan: Plan, seed: int) -> float:
    """Train once, and return the accuracy on the test set."""
    data = load(recipe.dataset)
    running = trainer(recipe, data, plan, seed)
    running.fit(data.train)
    return running.evaluate(data.test).accuracy or 0.0


def remembered(path: Path, name: str, epsilon: float, sampler: str, seed: int) -> float:
    """Return the accuracy of a run that was made before, or make it and remember it."""
    recipe = RECIPES[name]
    settings = repr(vars(recipe) | {"model": recipe.model.__name__})
    key = {"name": name, "epsilon": epsilon, "sampler": sampler, "seed": seed, "of": settings}
    for line in path.read_text().splitlines() if path.exists() else []:
        run = json.loads(line)
        if all(run[field] == value for field, value in key.items()):
            return float(run["accuracy"])
    found = accuracy(recipe, plan_of(recipe, epsilon, sampler), seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(key | {"accuracy": found}) + "\n")
    return found


def trained(path: Path, seeds: list[int]) -> list[list[str]]:
    """Return the rows of runs that were trained."""
    rows = []
    for name, recipe in RECIPES.items():
        for epsilon in EPSILONS:
            cells = []
            for sampler in SAMPLERS:
                runs = [remembered(path, name, epsilon, sampler, seed) for seed in seeds]
                noise = plan_of(recipe, epsilon, sampler).noise_multiplier
                cells.append((noise, str(mean_interval(runs, 0.95))))
            (poisson, before), (allocated, after) = cells
            noises = [f"{poisson:.4f}", f"{allocated:.4f}", f"{1 - allocated / poisson:.1%}"]
            of = f"{recipe.epochs:g} x 60,000 in batches of {recipe.batch_size:,}"
            rows.append([name, of, f"{epsilon:g}", *noises, before, after])
    return rows


def noises() -> list[list[str]]:
    """Return the rows of noise at equal epsilon, for batches and epochs of many sizes."""
    rows = []
    for batch, epochs in SETTINGS:
        for epsilon in EPSILONS:
            recipe = Recipe("mnist", probe, batch, epochs, learning_rate=1.0)
            poisson, allocated = (
                plan_of(recipe, epsilon, sampler).noise_multiplier for sampler in SAMPLERS
            )
            saved = f"{1 - allocated / poisson:.1%}"
            settings = [f"{batch:,}", f"{epochs}", f"{epsilon:g}"]
            rows.append([*settings, f"{poisson:.4f}", f"{allocated:.4f}", saved])
    return rows


def draw(directory: Path) -> None:
    """Draw the noise at equal epsilon for both samplers, and what allocation saves of it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for batch, epochs, style in DRAWN:
        recipe = Recipe("mnist", probe, batch, epochs, learning_rate=1.0)
        poisson, allocated = (
            [plan_of(recipe, epsilon, sampler).noise_multiplier for epsilon in SHOWN]
            for sampler in SAMPLERS
        )
        name = (
            f"{epochs} epochs of {60_000 // batch} steps" if epochs > 1 else "1 epoch of 100 steps"
        )
        left.plot(SHOWN, poisson, color="0.6", linestyle=style)
        left.plot(SHOWN, allocated, color="black", linestyle=style, label=name)
        saved = [100 * (1 - a / p) for a, p in zip(allocated, poisson, strict=True)]
        right.plot(SHOWN, saved, color="black", linestyle=style, label=name)
    left.set(xlabel="ε", ylabel="noise multiplier", xscale="log", yscale="log")
    right.set(xlabel="ε", ylabel="less noise by allocation (%)", xscale="log", ylim=(0, None))
    right.legend(frameon=False, fontsize="small")
    left.set_title("grey: Poisson, black: allocation", fontsize="small")
    with mpl.rc_context({"svg.hashsalt": "taut", "svg.fonttype": "none"}):
        figure.savefig(directory / "sampler-noise.svg", metadata={"Date": None})


def main() -> None:
    """Train with both samplers, and print or write what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("build/training_samplers.jsonl"))
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write its part of the page")
    parser.add_argument("--figure", type=Path, metavar="DIRECTORY", help="draw noise and epsilon")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.figure:
        draw(options.figure)
    heads = ["noise, Poisson", "noise, allocation", "less"]
    accuracies = ["accuracy, Poisson", "accuracy, allocation"]
    tables = [
        markdown_table(
            ["model", "gradients", "epsilon", *heads, *accuracies],
            trained(options.out, options.seeds),
            left=2,
        ),
        markdown_table(["batch size", "epochs", "epsilon", *heads], noises(), left=0),
    ]
    text = "\n\n".join("\n".join(table) for table in tables)
    print(text)
    if options.markdown:
        title = "## Training: Poisson batches and random allocation"
        write_part(options.markdown, "training_samplers", f"{title}\n\n{REMARK}\n\n{text}")


if __name__ == "__main__":
    main()
