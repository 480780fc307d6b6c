"""What the ways to clip, sample and mix cost beside plain DP-SGD, in time and memory.

    make bench BENCH=training_costs ARGS='--rounds 3'

Every method trains the same network through `PrivateTrainer`, alone in a process of one thread.
Times are CPU seconds per step, the least over interleaved rounds; memory is the peak of the process
above what it had before the first step. All see the same physical batches.
"""

import argparse
import contextlib
import json
import os
import time
from pathlib import Path

from measuring import SINGLE_THREAD, fresh_interpreter, peak_memory_code

os.environ.update(SINGLE_THREAD)  # before torch starts its threads

import numpy as np
import tables
import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import TensorDataset

from taut.noise.geometry import Provenance, Subspaces
from taut.training import (
    Callback,
    FlatClip,
    GroupClip,
    HybridClip,
    L2LInfClip,
    Loading,
    Logs,
    ModelMix,
    NormalisedClip,
    Plan,
    PrivateTrainer,
    QuantileClip,
    TwiceSampling,
)
from taut.training.models import ResNet20, TanhCNN

STEPS, WARM = 14, 4
BARS = {"group": 1.1, "hybrid, k = 500": 2.0, "twice": 2.5, "mixing": 1.2}
MOST_MEMORY = 2.0
REMARK = """CPU time of one thread, the least of interleaved rounds. Hybrid clipping multiplies
every gradient with its columns: 2 * batch * parameters * 500 operations, whatever the network.
Beside a network that computes little with each of its parameters, such as this CNN, they weigh
more."""


NETWORKS = {
    "CNN": (TanhCNN, (1, 28, 28), 256),
    "ResNet-20": (ResNet20, (3, 32, 32), 64),
}
"""Networks, the shapes of their inputs, and batch sizes."""


def hybrid(dimension: int, rank: int = 500) -> HybridClip:
    """Return hybrid clipping in a random subspace: the cost of a step does not depend on it."""
    columns = np.random.default_rng(0).normal(size=(dimension, rank))
    basis = np.linalg.qr(columns)[0]
    spaces = Subspaces(basis, (rank, dimension - rank), np.ones(rank), Provenance.PUBLIC)
    return HybridClip(spaces, [0.7, 0.7])


def described(method: str, dimension: int) -> dict:
    """Return what the plan of a method says beside sizes and noise."""
    spread = 100.0
    return {
        "plain": lambda: {"clipping": FlatClip(1.0)},
        "normalised": lambda: {"clipping": NormalisedClip(1.0)},
        "group": lambda: {"clipping": GroupClip(1.0)},
        "quantile": lambda: {"clipping": QuantileClip(1.0)},
        "hybrid, k = 500": lambda: {"clipping": hybrid(dimension)},
        "twice": lambda: {
            "clipping": L2LInfClip(1.0, 1.0 / spread**0.5),
            "sampling": TwiceSampling(coordinate_rate=0.5, spread=spread),
        },
        "mixing": lambda: {"clipping": FlatClip(1.0), "mixing": ModelMix(width=2.0)},
    }[method]()


METHODS = ("plain", "normalised", "group", "quantile", "hybrid, k = 500", "twice", "mixing")


class Enough(Exception):
    """The steps that are measured were taken."""


class Clock(Callback):
    """Keeps the CPU time at the end of every step, and ends the run."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, trainer, event) -> None:
        self.times.append(time.process_time())
        if len(self.times) == STEPS:
            raise Enough


def measured(method: str, network: str, peak) -> dict:
    """Return CPU seconds of a step and the memory of a run of one method."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    make, shape, batch = NETWORKS[network]
    model = make()
    dimension = sum(parameter.numel() for parameter in model.parameters())
    data = TensorDataset(torch.randn(4 * batch, *shape), torch.randint(0, 10, (4 * batch,)))
    plan = Plan(
        examples=4 * batch,
        batch_size=batch,
        steps=10_000,  # so that nobody asks for an epsilon in the steps that are measured
        noise_multiplier=40.0,
        delta=1e-5,
        **described(method, dimension),
    )
    clock = Clock()
    trainer = PrivateTrainer(
        model,
        lambda outputs, targets: cross_entropy(outputs, targets, reduction="none"),
        plan,
        optimizer=SGD(model.parameters(), lr=0.1),
        loading=Loading(max_physical_batch_size=2 * batch),
        logs=Logs(callbacks=[clock], progress=False),
    )
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    before = peak()
    with contextlib.suppress(Enough):
        trainer.fit(data)
    steps = np.diff(clock.times)[WARM:]
    return {"seconds": float(np.median(steps)), "memory": float(peak() - before)}


def alone(method: str, network: str) -> dict:
    """Return what a process of its own measures."""
    here = str(Path(__file__).parent)
    code = (
        f"import sys; sys.path.insert(0, {here!r})\n{peak_memory_code()}"
        "import json, training_costs\n"
        f"print(json.dumps(training_costs.measured({method!r}, {network!r}, peak)))"
    )
    return json.loads(fresh_interpreter(code))


def rows_of(network: str, methods: list[str], rounds: int) -> list[tables.Row]:
    """Return a row for every method on one network."""
    found = [{name: alone(name, network) for name in methods} for _ in range(rounds)]
    best = {
        name: {key: min(one[name][key] for one in found) for key in ("seconds", "memory")}
        for name in methods
    }
    rows: list[tables.Row] = []
    for name in methods:
        ratio, memory = (best[name][key] / best["plain"][key] for key in ("seconds", "memory"))
        bar = BARS.get(name)
        rows.append(
            {
                "network": network,
                "method": name,
                "ms": 1000 * best[name]["seconds"],
                "ratio": ratio,
                "bar": "" if bar is None else f"{bar:g}",
                "memory": memory,
                "holds": None if bar is None else ratio <= bar and memory <= MOST_MEMORY,
            }
        )
    return rows


def judged(holds: bool | None) -> str:
    return "" if holds is None else tables.yes_no(holds)


def main() -> None:
    """Print the table and, if asked, write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--markdown", type=Path, help="also write the table to this page")
    options = parser.parse_args()
    methods = ["plain", *(name for name in options.only if name != "plain")]
    rows = [row for name in options.networks for row in rows_of(name, methods, options.rounds)]
    columns = {
        "network": ("network", str),
        "method": ("method", str),
        "ms": ("CPU ms a step", lambda value: f"{value:.0f}"),
        "ratio": ("x plain DP-SGD", lambda value: f"{value:.2f}"),
        "bar": ("at most", str),
        "memory": ("peak memory, x plain", lambda value: f"{value:.2f}"),
        "holds": ("holds, memory at most 2", judged),
    }
    table = tables.Table("costs", "Training: ways to clip, sample and mix", columns, rows)
    print(table)
    if options.markdown:
        tables.write_part(options.markdown, "training_costs", f"{table}\n\n{REMARK}")


if __name__ == "__main__":
    main()
