"""Adapters against a linear probe, on the same embeddings of private texts.

    python benchmarks/training_lora.py --markdown docs/results.md

DBPedia is private, 14,000 abstracts of 14 classes; AG News, 7,600 items of other texts with four
classes, is public. Both are embeddings by MiniLM: the texts themselves are not at hand, so adapters
cannot sit inside of MiniLM. They sit in a small transformer on top, which reads an embedding as
twelve tokens and was trained on AG News. Runs are kept in --out, and not made again.
"""

import argparse
import functools
import itertools
import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import torch
from tables import write_part
from torch import nn
from torch.nn import functional
from training_data import Data, load
from training_models import Adapted, Block
from training_recipes import RECIPES, Recipe, trainer

from taut.comparison._intervals import mean_interval
from taut.comparison._markdown import markdown_table
from taut.training import LoRAClip, Plan
from taut.training.extend import Clipping

TOKENS, WIDTH, HEADS, BLOCKS, RANK = 12, 32, 4, 2, 4
EPSILONS = (3.0, 8.0)

REMARK = """Accuracies on the test set of DBPedia at delta 1e-5, with 95% intervals over seeds; the
same plan and schedule for all. The texts are not at hand, only their embeddings by MiniLM, so this
is not MiniLM fine-tuned: a transformer of two small blocks that reads an embedding as twelve tokens
was trained on embeddings of AG News, which is public here, and stands between embedding and head.
"LoRA" trains adapters of rank 4 in all its linear layers and a head, "frozen" the head alone; the
probe is a linear layer on the embedding itself. "As products" clips and hides gradients of B A
(`LoRAClip`), the line above it those of the factors (`FlatClip`). Two things favour the probe: the
rate of all heads was tuned for it alone, at twice as many epochs, and the reader has not seen
DBPedia. Rates of adapters 0.3, 1, 4, 16 and norms 0.1, 0.3, 1 had one run each, for both clippings,
at epsilon 3 on training examples that were held out: 4 and 0.3 were best for both (0.898 and
0.900; products fail at rates where factors still work). Noise follows from seeds."""


class Reader(nn.Module):
    """Reads an embedding as tokens, adds what it makes of them, and scores classes."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(1, TOKENS, WIDTH))
        self.blocks = nn.Sequential(*(Block(WIDTH, HEADS, causal=False) for _ in range(BLOCKS)))
        self.head = nn.Linear(TOKENS * WIDTH, classes)
        self.renew(classes)

    def renew(self, classes: int) -> None:
        """Begin with another head, at zero as that of the probe does."""
        self.head = nn.Linear(TOKENS * WIDTH, classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, embeddings):
        # Unit vectors have entries of one twentieth; blocks want them of one.
        scale = (TOKENS * WIDTH) ** 0.5
        tokens = embeddings.to(self.places.dtype).unflatten(1, (TOKENS, WIDTH)) * scale
        read = self.blocks(tokens + self.places).flatten(1)
        return self.head(functional.normalize(read, dim=1))


@functools.cache
def read_before() -> dict[str, torch.Tensor]:
    """Return the weights of a reader after AG News, which is public."""
    torch.manual_seed(0)
    data = load("ag_news")
    inputs, targets = data.train[:]
    model = Reader(data.classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    for _ in range(6):
        for part in torch.randperm(len(targets)).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(8 * model(inputs[part]), targets[part]).backward()
            optimizer.step()
    return model.state_dict()


def frozen(data: Data) -> nn.Module:
    """Return a reader of AG News with a head of its own to train."""
    classes = load("ag_news").classes
    with torch.random.fork_rng():
        model = Reader(classes)
        model.load_state_dict(read_before())
    model.requires_grad_(False)
    model.renew(data.classes)
    return model


def adapted(data: Data) -> nn.Module:
    """Return the same with adapters in all linear layers of its blocks."""
    model = frozen(data)
    for block in model.blocks:
        for name in ("parts", "joined", "widen", "narrow"):
            layer = Adapted(getattr(block, name), RANK)
            nn.init.zeros_(layer.lora_B.weight)
            setattr(block, name, layer)
    return model


@dataclass(frozen=True)
class Adapters(Recipe):
    """A recipe with a learning rate of its own for adapters, clipped as factors or as products."""

    adapters_rate: float = 1.0
    of_products: bool = False

    def plan(
        self,
        data: Data,
        epsilon: float = 3.0,
        delta: float = 1e-5,
        clipping: Clipping | None = None,
    ) -> Plan:
        own = LoRAClip(self.clip) if self.of_products else None
        return super().plan(data, epsilon, delta, clipping or own)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        groups = [
            {"params": [p for n, p in trained.items() if n.startswith("head")]},
            {
                "params": [p for n, p in trained.items() if not n.startswith("head")],
                "lr": self.adapters_rate,
            },
        ]
        groups = [group for group in groups if group["params"]]
        return torch.optim.SGD(groups, lr=self.learning_rate, momentum=self.momentum)


PROBE = replace(RECIPES["dbpedia"], epochs=10)
LORA = Adapters(**{**vars(PROBE), "model": adapted, "clip": 0.3}, adapters_rate=4.0)
PRODUCTS = replace(LORA, of_products=True)
WAYS: dict[str, Recipe] = {
    "linear probe": PROBE,
    "frozen reader": Adapters(**{**vars(PROBE), "model": frozen}),
    "LoRA in the reader": LORA,
    "LoRA, clipped as products": PRODUCTS,
}


def run(recipe: Recipe, epsilon: float, seed: int, held_out: bool) -> dict[str, float]:
    """Train once, and return the accuracy and the CPU seconds."""
    data = load(recipe.dataset)
    if held_out:
        data = data.for_tuning()
    running = trainer(recipe, data, recipe.plan(data, epsilon), seed)
    start = time.process_time()
    running.fit(data.train)
    seconds = time.process_time() - start
    return {"accuracy": running.evaluate(data.test).accuracy or 0.0, "seconds": seconds}


def remembered(path: Path, recipe: Recipe, epsilon: float, seed: int, held_out: bool):
    """Return what a run that was made before has found, or make it and remember it."""
    settings = repr(vars(recipe) | {"model": recipe.model.__name__, "goal": None})
    key = {"settings": settings, "epsilon": epsilon, "seed": seed, "held_out": held_out}
    for line in path.read_text().splitlines() if path.exists() else []:
        before = json.loads(line)
        if all(before[field] == value for field, value in key.items()):
            return before
    found = key | run(recipe, epsilon, seed, held_out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(found) + "\n")
    return found


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def main() -> None:
    """Train in all ways, and print or write accuracies; or look for a learning rate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--tune", nargs="+", type=float, help="rates of adapters, held out")
    parser.add_argument("--norms", nargs="+", type=float, default=[LORA.clip], help="with these")
    parser.add_argument("--out", type=Path, default=Path("build/training_lora.jsonl"))
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write its part of the page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for rate in options.tune or []:
        for norm, way in itertools.product(options.norms, (LORA, PRODUCTS)):
            recipe = replace(way, adapters_rate=rate, clip=norm)
            found = remembered(options.out, recipe, EPSILONS[0], 100, True)
            seconds = f"{found['seconds']:.0f} s"
            print(rate, recipe.plan(load("dbpedia")).clipping, found["accuracy"], seconds)
    if options.tune:
        return
    rows = []
    for epsilon in EPSILONS:
        for name, recipe in WAYS.items():
            runs = [remembered(options.out, recipe, epsilon, seed, False) for seed in options.seeds]
            accuracy = mean_interval([one["accuracy"] for one in runs], 0.95)
            trained = sum(
                p.numel() for p in recipe.model(load("dbpedia")).parameters() if p.requires_grad
            )
            seconds = min(one["seconds"] for one in runs)
            rows.append([name, f"{epsilon:g}", f"{trained:,}", str(accuracy), f"{seconds:.0f}"])
            print(rows[-1], flush=True)
    titles = ["way", "epsilon", "parameters", "accuracy", "CPU s"]
    table = "\n".join(markdown_table(titles, rows, left=1))
    print(table)
    if options.markdown:
        text = f"## Adapters and a linear probe on embeddings\n\n{REMARK}\n\n{table}"
        write_part(options.markdown, "training_lora", text)


if __name__ == "__main__":
    main()
