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
from training_models import GPT, of_tokens

WORDS, WIDTH, LAYERS, HEADS, LENGTH, BATCH, STEPS = 16_000, 768, 12, 12, 128, 8, 3
WAYS = {"plain SGD": None, "taut, unchecked": False, "taut": True}
"""Ways to take a step, and whether the first one is checked."""

REMARK = """Wanted: a first step of at most 2 plain ones, and at most 1.5 times the memory. The
second step holds a test of a few examples: the least later step is one without."""


def measured(way: str, peak) -> tables.Row:
    """Return what the steps of one way cost, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT(WORDS, WIDTH, LAYERS, HEADS, LENGTH)
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
        of_tokens(model(inputs), targets).mean().backward()
        optimizer.step()

    if checked is None:
        return plain
    from taut.training import FlatClip
    from taut.training.extend import PrivateGradient

    gradient = PrivateGradient(
        model, FlatClip(1.0), scales=[1.0], expected_batch_size=BATCH, self_check=checked
    )

    def private() -> None:
        gradient.accumulate_batch(inputs, targets, of_tokens)
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
