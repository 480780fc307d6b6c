"""What the first private step of a large model costs, with all that is checked there.

    make bench BENCH=training_first_step

A language model of 97 million parameters with tied embeddings, eight texts of 128 tokens, one
thread; every row is a process of its own. CPU seconds of the first step and of the least later one,
and the peak of memory above the model.
"""

import argparse
import json
import os
import time
from pathlib import Path

from measuring import SINGLE_THREAD, fresh_interpreter, peak_memory_code

os.environ.update(SINGLE_THREAD)  # before torch starts its threads

import tables
import torch
from torch import nn
from torch.nn import functional

WORDS, WIDTH, LAYERS, HEADS, LENGTH, BATCH, STEPS = 16_000, 768, 12, 12, 128, 8, 3
WAYS = {"plain SGD": None, "taut, unchecked": False, "taut": True}
"""Ways to take a step, and whether the first one is checked."""

REMARK = """Wanted: a first step of at most 2 plain ones, and at most 1.5 times the memory. The
second step holds a test of a few examples: the least later step is one without."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.parts, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        shape = batch, length, HEADS, WIDTH // HEADS
        parts = self.parts(self.first(x)).chunk(3, -1)
        heads = (part.view(shape).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.joined(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.widen(self.second(x))))


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        nn.init.normal_(self.words.weight, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1]).expand(tokens.shape)
        return self.head(self.norm(self.blocks(self.words(tokens) + self.places(places))))


def losses(outputs, tokens):
    return functional.cross_entropy(outputs.transpose(1, 2), tokens, reduction="none").mean(1)


def measured(way: str, peak) -> tables.Row:
    """Return what the steps of one way cost, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Language()
    inputs, targets = (torch.randint(WORDS, (BATCH, LENGTH)) for _ in range(2))
    step = step_of(way, model, inputs, targets)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    before, seconds = peak(), []
    for _ in range(STEPS):
        start = time.process_time()
        step()
        seconds.append(time.process_time() - start)
    return {"way": way, "first": seconds[0], "later": min(seconds[1:]), "memory": peak() - before}


def step_of(way: str, model: nn.Module, inputs, targets):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    checked = WAYS[way]

    def plain() -> None:
        optimizer.zero_grad()
        losses(model(inputs), targets).mean().backward()
        optimizer.step()

    if checked is None:
        return plain
    from taut.training import FlatClip
    from taut.training.extend import PrivateGradient

    gradient = PrivateGradient(
        model, FlatClip(1.0), scales=[1.0], expected_batch_size=BATCH, self_check=checked
    )

    def private() -> None:
        gradient.accumulate_batch(inputs, targets, losses)
        gradient.finish()
        optimizer.step()

    return private


def alone(way: str) -> tables.Row:
    """Return what a process of its own measures."""
    here = str(Path(__file__).parent)
    code = (
        f"import sys; sys.path.insert(0, {here!r})\n{peak_memory_code()}"
        "import json, training_first_step\n"
        f"print(json.dumps(training_first_step.measured({way!r}, peak)))"
    )
    return json.loads(fresh_interpreter(code))


def main() -> None:
    """Print the table and, if asked, write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path, help="also write the table to this page")
    options = parser.parse_args()
    rows = [alone(way) for way in WAYS]
    for row in rows:
        for key in ("first", "later", "memory"):
            row[f"{key} ratio"] = row[key] / rows[0][key]
    columns = {
        "way": ("", str),
        "first": ("first step, CPU s", lambda value: f"{value:.1f}"),
        "first ratio": ("x plain", lambda value: f"{value:.2f}"),
        "later": ("later, CPU s", lambda value: f"{value:.1f}"),
        "later ratio": ("x plain", lambda value: f"{value:.2f}"),
        "memory": ("peak, MB", tables.megabytes),
        "memory ratio": ("x plain", lambda value: f"{value:.2f}"),
    }
    table = tables.Table("first_step", "Training: the first step of a large model", columns, rows)
    print(table)
    if options.markdown:
        tables.write_part(options.markdown, "training_first_step", f"{table}\n\n{REMARK}")


if __name__ == "__main__":
    main()
