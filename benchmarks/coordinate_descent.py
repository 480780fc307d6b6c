"""Coordinate descent against second moments, and both kinds of noise, on regression tables.

    TAUT_DATA=... python benchmarks/coordinate_descent.py [names] [--splits 10]

Squared errors on a tenth of the records, over that of their mean: means over splits and their
standard errors. Bounds are the least and the largest value of every column, the same for all
methods: as if a questionnaire had said so. The last column is the mean of the difference of the
errors of ``auto`` and ``refined`` on the same split, whose standard error leaves out what the
splits have in common.
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


def methods(bounds: tuple, target: tuple, epsilon: float, chosen: list[str]) -> dict[str, object]:
    """Return the estimators to compare."""
    common = {"bounds": bounds, "target_bound": target, "epsilon": epsilon, "delta": DELTA}
    found = {
        "auto": PrivateLinearRegression(**common),
        "refined": PrivateLinearRegression(method="refined", **common),
        "adassp": PrivateLinearRegression(method="adassp", **common),
        "curvature": PrivateElasticNet(**common),
        "coefficient": PrivateElasticNet(noise="coefficient", **common),
    }
    return {name: found[name] for name in chosen}


def split_errors(
    table: np.ndarray, epsilon: float, seed: int, chosen: list[str]
) -> dict[str, float]:
    """Return errors of all methods on one split, and the difference of the two to choose from."""
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
        **methods((low, high), (y.min(), y.max()), epsilon, chosen),
    }.items():
        model.fit(X[train], y[train])
        found[name] = float(np.mean((model.predict(X[test]) - y[test]) ** 2) / scale)
    if {"auto", "refined"} <= found.keys():
        found["auto - refined"] = found["auto"] - found["refined"]
    return found


def shown(errors: list[float]) -> str:
    """Return a mean and its standard error."""
    error = np.std(errors, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else np.nan
    return f"{np.mean(errors):.3g} ± {error:.2g}"


def main() -> None:
    """Print one row per table and epsilon."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument(
        "--methods", nargs="*", default=["auto", "refined", "adassp", "curvature", "coefficient"]
    )
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.1, 1.0])
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    header = None
    for name, table in tables(chosen.names).items():
        for epsilon in chosen.epsilons:
            runs = [
                split_errors(table, epsilon, seed, chosen.methods) for seed in range(chosen.splits)
            ]
            if header is None:
                header = list(runs[0])
                print("| table | records | ε |", " | ".join(header), "|")
                print("|---" * (3 + len(header)) + "|")
            least = f"{np.mean([run['least squares'] for run in runs]):.3g}"
            cells = [least, *(shown([run[key] for run in runs]) for key in header[1:])]
            print(f"| {name} | {len(table)} | {epsilon:g} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
