"""Private logistic regression on AG News embeddings and MNIST pixels.

    TAUT_DATA=... python benchmarks/logistic_regression.py                   # taut, scikit-learn
    TAUT_DATA=... python benchmarks/logistic_regression.py --peers PYTHON    # and diffprivlib

Test accuracies: means over seeds and their standard errors. A seed draws the records for the fit
(AG News: the split, too) and the noise. ``--with-trainer`` adds a linear layer that taut.training
fits on Poisson batches at the same promise, and ``--peers`` diffprivlib in an environment of its
own; they and scikit-learn get the best of a few settings on the *test* data, for which they pay
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

DELTA = 1e-5
EPSILONS = (0.1, 1.0, 10.0)
RATES = (0.1, 0.5, 2.0)
STRENGTHS = (0.01, 0.1, 1.0)  # C of diffprivlib, whose default is 1
OPEN_STRENGTHS = (10.0, 100.0)  # C of scikit-learn


def load(name: str, records: int, seed: int) -> tuple[np.ndarray, ...]:
    """Return training rows, labels, test rows and labels; rows have a length of about one."""
    path = Path(os.environ.get("TAUT_DATA", "../shared/data")) / f"{name}.npz"
    if not path.exists():
        raise SystemExit(f"{path} was not found; set TAUT_DATA to its directory")
    random = np.random.default_rng(seed)
    with np.load(path) as arrays:
        if name == "mnist":
            rows = [arrays[f"x_{part}"].reshape(-1, 784) / 2550 for part in ("train", "test")]
            kept = random.permutation(len(rows[0]))[:records]
            return rows[0][kept], arrays["y_train"][kept], rows[1], arrays["y_test"]
        X, y = arrays["x"].astype(np.float64), arrays["y"]
    train, test = np.split(random.permutation(len(y)), [len(y) * 4 // 5])
    return X[train[:records]], y[train[:records]], X[test], y[test]


def unprotected(data, strength: float) -> float:
    """Return the accuracy of scikit-learn."""
    X, y, Xt, yt = data
    return LogisticRegression(max_iter=200, C=strength).fit(X, y).score(Xt, yt)


def private(data, epsilon: float, adjacency: str) -> float:
    """Return the accuracy of PrivateLogisticRegression."""
    from taut.estimators import PrivateLogisticRegression

    X, y, Xt, yt = data
    model = PrivateLogisticRegression(
        classes=range(int(y.max()) + 1),
        feature_norm=1.0,
        epsilon=epsilon,
        delta=DELTA,
        adjacency=adjacency,
    )
    return model.fit(X, y).score(Xt, yt)


def trained(data, epsilon: float, rate: float) -> float:
    """Return the accuracy of a linear layer after 30 epochs on Poisson batches."""
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    from taut.training import FlatClip, Plan, PrivateTrainer
    from taut.training.models import LinearProbe

    torch.set_num_threads(1)
    torch.manual_seed(0)
    X, y, Xt, yt = data
    plan = Plan(
        examples=len(X),
        batch_size=512,
        epochs=30,
        epsilon=epsilon,
        delta=DELTA,
        clipping=FlatClip(1.0),
    )
    model = LinearProbe(X.shape[1], int(y.max()) + 1)
    rows = TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor(y.astype(np.int64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    PrivateTrainer(model, nn.CrossEntropyLoss(), plan, optimizer=optimizer).fit(rows)
    with torch.no_grad():
        scores = model(torch.tensor(Xt, dtype=torch.float32))
    return float((scores.argmax(1).numpy() == yt).mean())


def diffprivlib(data, epsilon: float, strength: float) -> float:
    """Return the accuracy of diffprivlib, for the environment of the peer alone."""
    from diffprivlib.models import LogisticRegression as Peer

    X, y, Xt, yt = data
    return Peer(epsilon=epsilon, data_norm=1.0, C=strength).fit(X, y).score(Xt, yt)


def of_peer(name: str, records: int, seeds: int) -> dict[str, list[list[float]]]:
    """Return accuracies by epsilon: of every seed, those of all strengths."""
    return {
        f"{epsilon:g}": [
            [diffprivlib(load(name, records, seed), epsilon, one) for one in STRENGTHS]
            for seed in range(seeds)
        ]
        for epsilon in EPSILONS
    }


def best(runs: list[list[float]], settings: tuple[float, ...], word: str) -> str:
    """Return mean and standard error of the setting with the best mean."""
    means = np.mean(runs, axis=0)
    most = int(np.argmax(means))
    return f"{shown([run[most] for run in runs])} ({word} {settings[most]:g})"


def shown(values: list[float]) -> str:
    """Return a mean and its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.3f} ± {error:.3f}"


def rows_of(name: str, chosen: argparse.Namespace) -> None:
    """Print a row of the table for every epsilon."""
    data = [load(name, chosen.records, seed) for seed in range(chosen.seeds)]
    open_ = [[unprotected(d, strength) for strength in OPEN_STRENGTHS] for d in data]
    theirs = {}
    if chosen.peers:
        sizes = ["--records", str(chosen.records), "--seeds", str(chosen.seeds)]
        command = [chosen.peers, str(Path(__file__)), name, "--as-peer", *sizes]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        theirs = json.loads(answer.splitlines()[-1])
    for epsilon in EPSILONS:
        began = time.process_time()
        cells = [
            best(open_, OPEN_STRENGTHS, "C ="),
            shown([private(d, epsilon, "add_remove") for d in data]),
        ]
        spent = (time.process_time() - began) / chosen.seeds
        cells.append(shown([private(d, epsilon, "replace") for d in data]))
        if chosen.with_trainer:
            runs = [[trained(d, epsilon, rate) for rate in RATES] for d in data]
            cells.append(best(runs, RATES, "rate"))
        if theirs:
            cells.append(best(theirs[f"{epsilon:g}"], STRENGTHS, "C ="))
        print(f"| {name} | {len(data[0][0])} | {epsilon:g} |", " | ".join(cells), "|", flush=True)
        print(f"{name} {epsilon:g}: {spent:.1f} CPU s a fit of taut", file=sys.stderr)


def main() -> None:
    """Print one row per data set and epsilon."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=["ag_news_minilm", "mnist"])
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--with-trainer", action="store_true")
    parser.add_argument("--peers", help="python of an environment with diffprivlib")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.as_peer:
        print(json.dumps(of_peer(chosen.names[0], chosen.records, chosen.seeds)))
        return
    columns = ["data", "records", "ε", "no privacy", "taut", "taut, replace"]
    columns += ["PrivateTrainer"] * chosen.with_trainer + ["diffprivlib"] * bool(chosen.peers)
    print("|", " | ".join(columns), "|")
    print("|---" * len(columns) + "|")
    for name in chosen.names:
        rows_of(name, chosen)


if __name__ == "__main__":
    main()
