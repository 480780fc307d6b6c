"""Coordinate descent against second moments, and both kinds of noise, on regression tables.

    TAUT_DATA=... python benchmarks/coordinate_descent.py

Squared errors on a tenth of the records, over that of their mean. Bounds are the least and the
largest value of every column: as if a questionnaire had said so.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LinearRegression

from taut.estimators import PrivateElasticNet, PrivateLinearRegression

DELTA = 1e-6


def tables(names: list[str]) -> dict[str, np.ndarray]:
    """Return tables by name; the last column is the target."""
    folder = Path(os.environ.get("TAUT_DATA", "../shared/data")) / "uci"
    if not folder.exists():
        raise SystemExit(f"{folder} was not found; set TAUT_DATA to the directory with uci/")
    found = sorted(folder.glob("*.csv.gz"))
    return {
        path.name.split(".")[0]: np.loadtxt(path, delimiter=",")
        for path in found
        if not names or path.name.split(".")[0] in names
    }


def methods(bounds: tuple, target: tuple, epsilon: float) -> dict[str, object]:
    """Return the estimators to compare."""
    common = {"bounds": bounds, "target_bound": target, "epsilon": epsilon, "delta": DELTA}
    return {
        "auto": PrivateLinearRegression(**common),
        "adassp": PrivateLinearRegression(method="adassp", **common),
        "curvature": PrivateElasticNet(**common),
        "coefficient": PrivateElasticNet(noise="coefficient", **common),
    }


def split_errors(table: np.ndarray, epsilon: float, seed: int) -> dict[str, float]:
    """Return errors of all methods on one split."""
    order = np.random.default_rng(seed).permutation(len(table))
    table, cut = table[order], len(table) // 10
    X, y = table[:, :-1], table[:, -1]
    low, high = X.min(axis=0), X.max(axis=0)
    high = np.where(high > low, high, low + 1)
    test, train = slice(None, cut), slice(cut, None)
    scale = np.mean((y[test] - y[test].mean()) ** 2)
    found = {}
    for name, model in {
        "least squares": LinearRegression(),
        **methods((low, high), (y.min(), y.max()), epsilon),
    }.items():
        model.fit(X[train], y[train])
        found[name] = float(np.mean((model.predict(X[test]) - y[test]) ** 2) / scale)
    return found


def main() -> None:
    """Print one row per table and epsilon: medians over splits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--splits", type=int, default=5)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    header = None
    for name, table in tables(chosen.names).items():
        for epsilon in (0.1, 1.0, 10.0):
            runs = [split_errors(table, epsilon, seed) for seed in range(chosen.splits)]
            if header is None:
                header = list(runs[0])
                print("| table | records | ε |", " | ".join(header), "|")
                print("|---" * (3 + len(header)) + "|")
            medians = [f"{np.median([run[key] for run in runs]):.3g}" for key in header]
            print(f"| {name} | {len(table)} | {epsilon:g} |", " | ".join(medians), "|", flush=True)


if __name__ == "__main__":
    main()
