"""Trains in a child process that is killed at random moments; run as a script.

Arguments: the directory of the run, how often to kill, a seed for the moments. Every update that
became visible is noted in a file of its own before the next one begins.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from taut.training import Callback, Checkpointing, FlatClip, Logs, Plan, PrivateTrainer

PLAN = Plan(
    examples=200,
    batch_size=20,
    steps=1_200,
    noise_multiplier=8.0,
    delta=1e-3,
    clipping=FlatClip(1.0),
)


MOST = 60
"""Updates of a child that is to be killed: then it waits, however late the signal comes."""


class Witness(Callback):
    """Notes every update, as somebody who looks at the weights could."""

    def __init__(self, path, most=None):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._left = most

    def on_step_end(self, trainer, event):
        os.write(self._file, b".")
        if self._left is not None:
            self._left -= 1
        while self._left == 0:
            time.sleep(1)


def train(directory, most=None):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(200, 4), torch.randint(0, 2, (200,)))
    trainer = PrivateTrainer(
        nn.Linear(4, 2),
        nn.CrossEntropyLoss(reduction="none"),
        PLAN,
        run_dir=directory,
        checkpoints=Checkpointing(every=25),
        logs=Logs(callbacks=[Witness(directory / "seen", most)]),
    )
    return trainer.fit(data)


def updates_seen(directory):
    path = directory / "seen"
    return path.stat().st_size if path.exists() else 0


def killed_once(directory, after):
    """Train in a child and kill it a while after its first update; return whether it was at it."""
    before = updates_seen(directory)
    child = os.fork()
    if child == 0:
        train(directory, MOST)
        os._exit(0)
    patience = time.monotonic() + 600
    while updates_seen(directory) == before and time.monotonic() < patience:
        time.sleep(0.001)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def main():
    directory, times, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    directory.mkdir(exist_ok=True)
    # What torch loads at a first step, children shall find loaded.
    torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1).step()
    moments = random.Random(seed)
    kills = sum(killed_once(directory, moments.uniform(0.0, 0.1)) for _ in range(times))
    result = train(directory)
    print(kills, updates_seen(directory), result.steps, result.counted_steps)


if __name__ == "__main__":
    main()
