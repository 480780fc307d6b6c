"""Train a small network on MNIST or Fashion-MNIST with privacy.

    python examples/train_mnist.py
    python examples/train_mnist.py --dataset fashion_mnist --epsilon 2 --run-dir runs/fashion

The data are read from mnist.npz (or fashion_mnist.npz), with arrays x_train, y_train, x_test and
y_test of uint8, in the directory that the environment variable TAUT_DATA names, or in
../shared/data. A run with --run-dir that was interrupted goes on when it is started again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import TensorDataset

from taut.training import FlatClip, Loading, Plan, PrivateTrainer
from taut.training.models import TanhCNN

# Mean and deviation of pixels, published with the datasets: looking at ours would cost privacy.
PIXELS = {"mnist": (0.1307, 0.3081), "fashion_mnist": (0.2860, 0.3530)}


def load(name: str) -> tuple[TensorDataset, TensorDataset]:
    """Return training and test examples."""
    path = Path(os.environ.get("TAUT_DATA", "../shared/data")) / f"{name}.npz"
    if not path.exists():
        raise SystemExit(
            f"{path} was not found. Set TAUT_DATA to the directory with {name}.npz, a file with "
            "the arrays x_train, y_train, x_test and y_test (28 by 28 pixels, uint8)."
        )
    mean, deviation = PIXELS[name]
    parts = []
    with np.load(path) as arrays:
        for part in ("train", "test"):
            pixels = torch.from_numpy(arrays[f"x_{part}"]).float().div_(255)
            labels = torch.from_numpy(arrays[f"y_{part}"].astype(np.int64))
            parts.append(TensorDataset(((pixels - mean) / deviation)[:, None], labels))
    return parts[0], parts[1]


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", choices=sorted(PIXELS), default="mnist")
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--epochs", type=float, default=40)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--clip", type=float, default=0.1)
    parser.add_argument("--learning-rate", type=float, default=4.0)
    parser.add_argument("--physical-batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--run-dir", type=Path, default=None, help="keep checkpoints here")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, print the promise, and return the accuracy on test examples."""
    chosen = options(arguments)
    torch.set_num_threads(chosen.threads)
    train, test = load(chosen.dataset)
    plan = Plan(
        examples=len(train),
        batch_size=chosen.batch_size,
        epochs=chosen.epochs,
        epsilon=chosen.epsilon,
        delta=chosen.delta,
        clipping=FlatClip(chosen.clip),
    )
    print(plan)
    model = TanhCNN()
    trainer = PrivateTrainer(
        model,
        nn.CrossEntropyLoss(reduction="none"),
        plan,
        optimizer=torch.optim.SGD(model.parameters(), lr=chosen.learning_rate, momentum=0.9),
        # Noise matters most at the end: the learning rate falls over the last third.
        scheduler=lambda optimizer: LambdaLR(
            optimizer, lambda step: min(1.0, max(0.1, 3 * (1 - step / plan.steps)))
        ),
        loading=Loading(max_physical_batch_size=chosen.physical_batch_size),
        ema=0.99,
        run_dir=chosen.run_dir,
    )
    began = time.monotonic()
    result = trainer.fit(train)
    found = trainer.evaluate(test)
    print(result.statement)
    print(
        f"accuracy {100 * (found.accuracy or 0):.2f} % on {found.examples} test examples, "
        f"after {(time.monotonic() - began) / 60:.1f} minutes"
    )
    return found.accuracy or 0.0


if __name__ == "__main__":
    main(sys.argv[1:])
