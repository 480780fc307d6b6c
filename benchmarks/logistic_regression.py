"""Private logistic regression on AG News embeddings and MNIST pixels, at equal promises.

    TAUT_DATA=... python benchmarks/logistic_regression.py

Beside the estimator: scikit-learn without privacy, and the same model trained by taut.training on
Poisson batches with the same promise.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import TensorDataset

from taut.estimators import PrivateLogisticRegression
from taut.training import FlatClip, Plan, PrivateTrainer
from taut.training.models import LinearProbe

DELTA = 1e-5


def load(name: str, records: int) -> tuple[np.ndarray, ...]:
    """Return training rows, labels, test rows and labels; rows have length one at most."""
    path = Path(os.environ.get("TAUT_DATA", "../shared/data")) / f"{name}.npz"
    if not path.exists():
        raise SystemExit(f"{path} was not found; set TAUT_DATA to its directory")
    with np.load(path) as arrays:
        if name == "mnist":
            rows = [arrays[f"x_{part}"].reshape(-1, 784) / 2550 for part in ("train", "test")]
            return rows[0][:records], arrays["y_train"][:records], rows[1], arrays["y_test"]
        X, y = arrays["x"].astype(np.float64), arrays["y"]
    order = np.random.default_rng(1).permutation(len(y))
    train, test = np.split(order, [len(y) * 4 // 5])
    return X[train], y[train], X[test], y[test]


def trained(X, y, Xt, yt, epsilon: float, rate: float) -> float:
    """Return the accuracy of a linear layer after 30 epochs on Poisson batches."""
    torch.manual_seed(0)
    classes = int(y.max()) + 1
    plan = Plan(
        examples=len(X),
        batch_size=512,
        epochs=30,
        epsilon=epsilon,
        delta=DELTA,
        clipping=FlatClip(1.0),
    )
    model = LinearProbe(X.shape[1], classes)
    data = TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor(y.astype(np.int64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    PrivateTrainer(model, nn.CrossEntropyLoss(), plan, optimizer=optimizer).fit(data)
    with torch.no_grad():
        scores = model(torch.tensor(Xt, dtype=torch.float32))
    return float((scores.argmax(1).numpy() == yt).mean())


def main() -> None:
    """Print one row per data set and epsilon."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=["ag_news_minilm", "mnist"])
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--without-trainer", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for name in chosen.names:
        X, y, Xt, yt = load(name, chosen.records)
        theirs = LogisticRegression(max_iter=200, C=100.0).fit(X, y).score(Xt, yt)
        for epsilon in (0.1, 1.0, 10.0):
            began = time.process_time()
            ours = PrivateLogisticRegression(
                classes=range(int(y.max()) + 1), feature_norm=1.0, epsilon=epsilon, delta=DELTA
            ).fit(X, y)
            spent = time.process_time() - began
            found = [
                f"{theirs:.3f}",
                f"{ours.score(Xt, yt):.3f} ({ours.n_iter_} steps, {spent:.0f} s)",
            ]
            if not chosen.without_trainer:
                best = max((trained(X, y, Xt, yt, epsilon, rate), rate) for rate in (0.1, 0.5, 2.0))
                found.append(f"{best[0]:.3f} (rate {best[1]:g})")
            print(f"| {name} | {len(X)} | {epsilon:g} |", " | ".join(found), "|", flush=True)


if __name__ == "__main__":
    main()
