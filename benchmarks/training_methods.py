"""Ways to train, side by side on real data: equal privacy, equal compute, equally tuned.

    python benchmarks/training_methods.py --only mnist --epsilon 3 --arms plain group --seeds 3

Every arm chooses its learning rate on training examples that are held out; then all of them are
trained on the whole training set and judged on the test set. Runs are kept in --out: a benchmark
that was stopped goes on where it was. The goal is a ranking, so all arms share the recipe's model,
clipping norm, schedule and average of weights, and one batch size: with a part of the recipe's
gradients, a smaller one.
"""

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import torch
from tables import write_part
from torch import nn
from torch.optim import SGD
from torch.utils.data import Subset, TensorDataset
from training_data import Data, load
from training_recipes import RECIPES, Recipe

from taut.comparison import Comparison, Settings, Task, compare
from taut.comparison._intervals import mean_interval
from taut.comparison._markdown import markdown_table
from taut.report import plot_comparison

DELTA = 1e-5
EPSILONS = (1.0, 3.0, 8.0)
BUDGETS = {
    "mnist": (0.08, 1.0),
    "fashion_mnist": (0.08, 2.0),
    "cifar10": (0.06, 2.0),
    "cifar10_cnn": (0.05, 1.0),
    "dbpedia": (1.0, 1.0),
}
"""Of a recipe: the share of its gradients, and what multiplied its learning rate best at epsilon 3,
around which others are tried. Two cores take two hours for all of it."""
PUBLIC = {
    "mnist": "fashion_mnist",
    "fashion_mnist": "mnist",
    "dbpedia": "ag_news",
    "cifar10_scattering": "leaves_scattering",
}
"""Whose inputs serve as public ones, with labels at random."""
PUBLIC_EXAMPLES = 300
HEAD = (
    "Equal privacy and equal compute for every way: the same promise, rate, steps, clipping norm, "
    "model, schedule and average of weights. Learning rates were chosen on training examples that "
    "were held out. Intervals of means are 95% each; those of differences, taken on equal seeds, "
    "95% together. Noise is the root of its expected squared length on the mean gradient."
)
OVERVIEW = (
    "The last line: the mean over datasets and promises of the differences on equal seeds, with "
    "Student's 95% interval over these lines, for each arm by itself. Lines with the same dataset "
    "have examples and seeds in common, so that the interval may be too narrow. Budgets are small, "
    "a part of what the recipes spend, and accuracies are below those of the recipes; the ranking "
    "is what is looked for."
)


@dataclass(frozen=True)
class Cell:
    """What was found on one dataset for one promise."""

    name: str
    epsilon: float
    found: Comparison
    last: str

    @property
    def section(self) -> str:
        head, found = f"### {self.name}, epsilon {self.epsilon:g}", self.found
        return "\n\n".join([head, f"{found.settings}.", found.table(), *found.notes, self.last])


@cache
def public_examples(name: str, classes: int) -> TensorDataset:
    """Return inputs of another dataset, with random labels."""
    source = load(PUBLIC[name]).train
    images = torch.stack([source[i][0] for i in range(PUBLIC_EXAMPLES)])
    draw = torch.Generator().manual_seed(0)
    return TensorDataset(images, torch.randint(classes, (len(images),), generator=draw))


def task_of(recipe: Recipe, data: Data, steps: int) -> Task:
    return Task(
        model=lambda: recipe.model(data),
        loss_fn=nn.CrossEntropyLoss(),
        train=data.train,
        test=data.test,
        public=public_examples(data.name, data.classes),
        optimizer=lambda p, rate: SGD(p, lr=rate, momentum=recipe.momentum),
        trainer={
            "scheduler": recipe.schedule(steps),
            "ema": recipe.ema,
            "max_physical_batch_size": recipe.physical_batch_size,
        },
    )


def factors(name: str, epsilon: float) -> list[float]:
    """Return what multiplies the recipe's learning rate: less noise allows larger ones."""
    if epsilon == 3:
        return [0.5, 1.0, 2.0]
    return [BUDGETS[name][1] * factor for factor in ((0.5, 1.0) if epsilon < 3 else (1.0, 2.0))]


def tried(name: str, epsilon: float, options: argparse.Namespace) -> list[float]:
    """Return the learning rates that every arm is tuned over."""
    given = options.factors or factors(name, epsilon)
    return [factor * RECIPES[name].learning_rate for factor in given]


def compared(
    name: str,
    data: Data,
    epsilon: float,
    options: argparse.Namespace,
    rates: Mapping[str, float] | list[float],
    seeds: list[int],
    part: str,
) -> Comparison:
    recipe = RECIPES[name]
    # A part of the compute is a part of the steps and of the batch alike.
    share = BUDGETS[name][0] if options.share is None else options.share
    batch_size = round(math.sqrt(share) * recipe.batch_size)
    settings = Settings(
        examples=len(data.train),
        batch_size=min(batch_size, len(data.train)),
        gradients=round(share * recipe.epochs * len(data.train)),
        epsilon=epsilon,
        delta=DELTA,
        norm=recipe.clip,
    )
    place = options.out / f"{name}-{epsilon:g}" / part
    found = compare(
        task_of(recipe, data, settings.steps),
        settings,
        arms=options.arms,
        seeds=seeds,
        learning_rates=rates,
        out_dir=place,
    )
    plot_comparison(found, place / "comparison.svg")
    return found


def tuned_and_compared(name: str, epsilon: float, options: argparse.Namespace) -> Cell:
    """Return what was found on one dataset for one promise."""
    recipe = RECIPES[name]
    data = first_examples(load(recipe.dataset), options.examples)
    rates = tried(name, epsilon, options)
    # A seed of its own: noise that favoured a learning rate must not be counted for it again.
    tuned = compared(name, data.for_tuning(), epsilon, options, rates, [1_000], "tuning")
    seeds = list(range(options.seeds))
    found = compared(name, data, epsilon, options, tuned.chosen, seeds, "comparison")
    # Of two rates each is at an end, which says nothing.
    edge = [row.arm for row in tuned.results if row.is_at_edge and len(rates) > 2]
    note = f" At the edge of the learning rates: {', '.join(edge)}." if edge else ""
    last = f"{found.recommendation} {data.note}{note}".strip()
    return Cell(name, epsilon, found, last)


def overview(cells: Sequence[Cell]) -> str:
    """Return the accuracies of all arms, and their mean difference to the reference."""
    arms = list(dict.fromkeys(row.arm for cell in cells for row in cell.found.results))
    header = ["dataset", "epsilon", *arms]
    rows = []
    for cell in cells:
        values = {row.arm: str(row.value) for row in cell.found.results}
        rows.append([cell.name, f"{cell.epsilon:g}", *(values.get(arm, "") for arm in arms)])
    gains = []
    for arm in arms:
        found = [row.difference for cell in cells for row in cell.found.results if row.arm == arm]
        means = [difference.mean for difference in found if difference is not None]
        gains.append(str(mean_interval(means, 0.95)) if len(means) > 1 else "")
    reference = next(row.arm for row in cells[0].found.results if row.difference is None)
    rows.append([f"mean difference to {reference}", "all", *gains])
    return "\n".join(markdown_table(header, rows, left=2))


def first_examples(data: Data, count: int | None) -> Data:
    """Return the first examples alone, to try things out."""
    if count is None:
        return data
    train = Subset(data.train, range(count))
    test = Subset(data.test, range(min(count, len(data.test))))
    return Data(data.name, train, test, data.classes, f"The first {count} examples. {data.note}")


def main() -> None:
    """Compare on every dataset asked for, and print or write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=sorted(BUDGETS), default=list(BUDGETS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="all by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--factors",
        nargs="+",
        type=float,
        help="learning rates that every arm is tuned over, over that of the recipe",
    )
    parser.add_argument("--share", type=float, help="of the recipe's gradients; 1 for all of them")
    parser.add_argument("--examples", type=int, help="the first so many alone")
    parser.add_argument("--out", type=Path, default=Path("build/training_methods"))
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write its part of the page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = []
    for name in options.only:
        for epsilon in options.epsilon:
            cells.append(tuned_and_compared(name, epsilon, options))
            print(cells[-1].section, end="\n\n", flush=True)
    summary = overview(cells)
    print(summary)
    if options.markdown:
        sections = [cell.section for cell in cells]
        text = ["## Ways to train", HEAD, Comparison.experiment, summary, OVERVIEW, *sections]
        write_part(options.markdown, "training_methods", "\n\n".join(text))


if __name__ == "__main__":
    main()
