"""Ways to train, side by side on real data: equal privacy, equally many gradients, equally tuned.

    python benchmarks/training_methods.py --markdown docs/results.md

Every arm chooses its learning rate on training examples that are held out, by one rule: from one
start it climbs by factors of two until the best lies inside. Then all of them are trained on the
whole training set, with eight seeds, and judged on the test set. Runs are kept in --out: a
benchmark that was stopped goes on where it was. The goal is a ranking, so all arms share the
recipe's model, clipping norm, schedule and average of weights, and one batch size: with a part of
the recipe's gradients, a smaller one.
"""

import argparse
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any, TypeAlias

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import torch
from tables import write_part
from torch import nn
from torch.optim import SGD
from torch.utils.data import Subset, TensorDataset
from training_data import Data, load
from training_recipes import RECIPES, Recipe

from taut.comparison import ArmResult, Comparison, Settings, Task, compare
from taut.comparison._intervals import difference_interval, mean_interval
from taut.comparison._markdown import markdown_table
from taut.comparison._summary import best_learning_rate
from taut.training import Loading

DELTA = 1e-5
EPSILONS = (1.0, 3.0, 8.0)
SEEDS = 8
"""For every cell, whatever its first runs look like: intervals hold only for numbers of seeds that
were fixed before."""
TUNING_SEED = 1_000
"""Not one to compare with: noise that favoured a learning rate must not be counted again."""
EXTENSIONS = 8
"""How often the learning rates of an arm may be extended; none needs more than four."""


@dataclass(frozen=True)
class Budget:
    """What a comparison takes of a recipe, so that all of them fit into two hours of one core."""

    share: float
    """Of the gradients of the recipe."""
    start: float
    """Of the learning rate of the recipe: where the search begins at epsilon 3."""
    splits: int = 1
    """How often a sixth of the training set is held out: more where that are few examples, which
    choose among near learning rates by chance."""
    dataset: str | None = None
    """In place of that of the recipe."""


BUDGETS = {
    "dbpedia": Budget(1.0, 2.0, splits=4),
    "fashion_mnist": Budget(0.0075, 1.0),
    "mnist": Budget(0.004, 1.0),
    "cifar10_cnn": Budget(0.01, 1.0),
    "cifar10": Budget(0.0075, 2.0, dataset="cifar10_scattering_pooled"),
}
ARMS = ("plain", "group", "hybrid", "mix", "twice")
START = {1.0: 0.5, 3.0: 1.0, 8.0: 2.0}
"""By what the start is multiplied for a promise: less noise allows larger learning rates."""
PUBLIC = {
    "mnist": "fashion_mnist",
    "fashion_mnist": "mnist",
    "dbpedia": "ag_news",
    "cifar10_scattering": "leaves_scattering",
    "cifar10_scattering_pooled": "leaves_scattering_pooled",
}
"""Whose inputs serve as public ones, with labels at random."""
PUBLIC_EXAMPLES = 300
HEAD = (
    "Equal privacy and equally many gradients for every way: the same promise, rate, steps, "
    "clipping norm, model, schedule and average of weights. That is not equal time: CPU seconds of "
    "a run, on one thread and beside other work, are given. Learning rates were chosen on training "
    "examples that were held out, by one rule: every arm begins at the same one and goes on by "
    "factors of two until its best lies inside of those it tried. Every cell has {seeds} seeds, "
    "a number that was fixed before. Intervals of means are 95% each; those of differences, "
    "taken on equal seeds, 95% together for all arms of a cell. They are about seeds, "
    "for the test set at hand and the learning rates that were chosen: that choice is subject to "
    "chance as well. "
    "Noise is the root of its expected squared length on the mean gradient."
)
OVERVIEW = (
    "*group* is *plain* where the model is one layer. The last lines: how often an arm is better "
    "and worse than {reference} beyond its interval, among how many cells, where better means at "
    "the learning rate that {reference} chose, at half and at twice of it; the mean over datasets "
    "of the differences, each averaged over promises, with Student's 95% interval over datasets, "
    "for each arm by itself; and the CPU time of a run, over that of {reference}, as a geometric "
    "mean. Budgets are small, {shares} of the gradients of the recipes, and accuracies are below "
    "those of the recipes; the ranking is what is looked for. All arms share the clipping norm and "
    "the batch size, which the recipes chose for plain."
    " Two rules, several splits for DBPedia and the check at near rates, were made after a first "
    "look at results on test sets; [Compare](compare.md) says why."
)
REFERENCE = "plain"
AS_REFERENCE = f"as {REFERENCE}"


@dataclass(frozen=True)
class Cell:
    """What was found on one dataset for one promise."""

    name: str
    epsilon: float
    found: Comparison
    last: str
    doubted: frozenset[str] = frozenset()
    """Arms that are better than the reference at its learning rate, and not at a near one."""

    @property
    def reference(self) -> ArmResult:
        return next(row for row in self.found.results if row.difference is None)

    def rows(self, arm: str) -> list[tuple["Cell", ArmResult]]:
        """Return what was found of an arm, if it took part."""
        return [(self, row) for row in self.found.results if row.arm == arm]

    def accuracies(self, arms: Sequence[str]) -> list[str]:
        values = {row.arm: str(row.value) for row in self.found.results}
        return [values.get(arm, AS_REFERENCE) for arm in arms]

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
            "loading": Loading(max_physical_batch_size=recipe.physical_batch_size),
        },
    )


def start(name: str, epsilon: float) -> float:
    """Return the learning rate at which the search of every arm begins."""
    return RECIPES[name].learning_rate * BUDGETS[name].start * START.get(epsilon, 1.0)


def settings_of(name: str, data: Data, epsilon: float, share: float | None) -> Settings:
    """Return what is equal: a part of the recipe's gradients, in steps and in the batch alike."""
    recipe = RECIPES[name]
    part = BUDGETS[name].share if share is None else share
    return Settings(
        examples=len(data.train),
        batch_size=min(round(math.sqrt(part) * recipe.batch_size), len(data.train)),
        gradients=round(part * recipe.epochs * len(data.train)),
        epsilon=epsilon,
        delta=DELTA,
        norm=recipe.clip,
    )


@dataclass(frozen=True)
class Bench:
    """Where one dataset is compared on for one promise."""

    name: str
    epsilon: float
    options: argparse.Namespace

    @property
    def data(self) -> Data:
        source = BUDGETS[self.name].dataset or RECIPES[self.name].dataset
        return first_examples(load(source), self.options.examples)

    def compared(self, data: Data, part: str, **choices: Any) -> Comparison:
        """Return a comparison on some data, whose runs are kept in a directory of this name."""
        settings = settings_of(self.name, data, self.epsilon, self.options.share)
        task = task_of(RECIPES[self.name], data, settings.steps)
        place = self.options.out / f"{self.name}-{self.epsilon:g}" / part
        return compare(task, settings, out_dir=place, **choices)

    def tuned(self) -> tuple[dict[str, float], list[str]]:
        """Return the learning rate of every arm, and the arms whose choice lies at an edge.

        On every split every arm climbs by factors of two until its best lies inside; then the best
        mean over all splits counts, of the learning rates that any of them tried.
        """
        parts = [self._split(split) for split in range(BUDGETS[self.name].splits)]
        begun = {"learning_rates": [start(self.name, self.epsilon)], "extend": EXTENSIONS}
        climbed = [part(arms=self.options.arms, **begun) for part in parts]
        chosen, edge = {}, []
        for arm in climbed[0].tried:
            rates = sorted({rate for found in climbed for rate in found.tried[arm]})
            missing = [list(found.tried[arm]) != rates for found in climbed]
            filled = [
                part(arms=[arm], learning_rates=rates) if more else found
                for part, found, more in zip(parts, climbed, missing, strict=True)
            ]
            runs = [run for found in filled for run in found.runs if run.arm == arm]
            chosen[arm] = best_learning_rate(runs)
            edge += [arm] if chosen[arm] in (rates[0], rates[-1]) else []
        return chosen, edge

    def _split(self, split: int) -> Callable[..., Comparison]:
        data, seeds = self.data.for_tuning(split), [TUNING_SEED + split]
        return partial(self.compared, data, f"tuning-{split}", seeds=seeds)

    def cell(self) -> Cell:
        """Return what was found."""
        chosen, edge = self.tuned()
        found = self._trained(chosen)
        doubts = self._doubts(found)
        said = [found.recommendation, *doubts.values(), self.data.note]
        if edge:
            said.append(f"At the edge of the learning rates: {', '.join(edge)}.")
        last = " ".join(filter(None, said))
        return Cell(self.name, self.epsilon, found, last, frozenset(doubts))

    def _trained(self, rates: dict[str, float]) -> Comparison:
        arms = [arm for arm in self.options.arms if arm in rates]
        seeds = range(self.options.seeds)
        return self.compared(self.data, "comparison", arms=arms, seeds=seeds, learning_rates=rates)

    def _doubts(self, found: Comparison) -> dict[str, str]:
        """Return why arms that seem better may not be: the reference at learning rates beside.

        One split may choose between two near learning rates by chance. Only what beats the
        reference at the chosen one, at half and at twice of it counts as better.
        """
        better = [row for row in found.results if row.verdict == "better"]
        doubts = {}
        for factor in (0.5, 2.0) if better else ():
            base = self._trained({REFERENCE: factor * found.chosen[REFERENCE]})
            for row in better:
                gap = difference_interval(
                    accuracies(found, row.arm),
                    accuracies(base, REFERENCE),
                    row.difference.confidence,
                    found.test_examples,
                )
                if gap.low <= 0:
                    doubts[row.arm] = (
                        f"But {row.arm} does not beat {REFERENCE} at the learning rate "
                        f"{base.chosen[REFERENCE]:g} beyond the interval ({gap}), and does not "
                        "count as better."
                    )
        return doubts


def accuracies(found: Comparison, arm: str) -> list[float]:
    """Return the accuracies of an arm at its learning rate, in the order of seeds."""
    runs = {run.key: run for run in found.runs}
    return [runs[arm, found.chosen[arm], seed].accuracy for seed in found.seeds]


def overview(cells: Sequence[Cell]) -> str:
    """Return the accuracies of all arms, and how they differ from the reference altogether."""
    fullest = sorted(cells, key=lambda cell: -len(cell.found.results))
    arms = list(dict.fromkeys(row.arm for cell in fullest for row in cell.found.results))
    rows = [[cell.name, f"{cell.epsilon:g}", *cell.accuracies(arms)] for cell in cells]
    found = {arm: [r for cell in cells for r in cell.rows(arm)] for arm in arms}
    summaries = {"better, worse, cells": verdicts, "difference, mean": gain, "CPU time": cost}
    for title, summary in summaries.items():
        rows.append([title, "all", *(summary(found[arm]) for arm in arms)])
    return "\n".join(markdown_table(["dataset", "epsilon", *arms], rows, left=2))


Rows: TypeAlias = Sequence[tuple[Cell, ArmResult]]
"""Of one arm: what was found in every cell where it took part."""


def verdicts(rows: Rows) -> str:
    """Return how often the arm is better, and worse, among how many."""
    said = [row.verdict for cell, row in rows if row.arm not in cell.doubted]
    if "reference" in said:
        return ""
    return f"{said.count('better')}, {said.count('worse')}, {len(rows)}"


def gain(rows: Rows) -> str:
    """Return the mean over datasets of the differences, which are averaged over promises."""
    means: dict[str, list[float]] = {}
    for cell, row in rows:
        if row.difference is not None:
            means.setdefault(cell.name, []).append(row.difference.mean)
    each = [fmean(values) for values in means.values()]
    return str(mean_interval(each, 0.95)) if len(each) > 1 else ""


def cost(rows: Rows) -> str:
    """Return the CPU time of a run over that of the reference."""
    ratios = [row.cpu_seconds / cell.reference.cpu_seconds for cell, row in rows]
    return f"{geometric_mean(ratios):.1f}"


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
    parser.add_argument("--arms", nargs="+", metavar="ARM", default=ARMS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--share", type=float, help="of the recipe's gradients; 1 for all of them")
    parser.add_argument("--examples", type=int, help="the first so many alone")
    parser.add_argument("--out", type=Path, default=Path("build/training_methods"))
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write its part of the page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = []
    for name in options.only:
        for epsilon in options.epsilon:
            cells.append(Bench(name, epsilon, options).cell())
            print(cells[-1].section, end="\n\n", flush=True)
    summary = overview(cells)
    print(summary)
    if options.markdown:
        shares = ", ".join(f"{budget.share:.2%} ({name})" for name, budget in BUDGETS.items())
        after = OVERVIEW.format(reference=cells[0].reference.arm, shares=shares)
        head = HEAD.format(seeds=options.seeds)
        sections = [cell.section for cell in cells]
        text = ["## Ways to train", head, Comparison.experiment, summary, after, *sections]
        write_part(options.markdown, "training_methods", "\n\n".join(text))


if __name__ == "__main__":
    main()
