"""Posterior sampling beside AdaSSP on four UCI sets, at equal promises.

    python benchmarks/posterior_sampling.py [splits]

Data are read and bounded as in ``regression.py``. 60 % of the records are fitted, 10 % count as
public (``ops_ptr`` compares samples on them; no other method sees them), and errors are mean
squared errors on the remaining 30 %, in units of the variance of targets. Add/remove neighbours,
but for ``ops_balanced``, which needs replace-one. CPU seconds are those of one fit.
"""

import sys
import time

import numpy as np
from regression import DATA, DELTA, TARGET_BOUND, least_squares, read

from taut.estimators import PrivateLinearRegression

SETS = ("airfoil", "bike", "protein", "wine")
METHODS = ("adassp", "refined", "ada_ops", "ops_ptr", "ops_balanced")
EPSILONS = (0.5, 2.0, 10.0)
SPLITS = 16


def fitted(train, public, *, method, epsilon):
    """Return a private fit, and the seconds that it took."""
    model = PrivateLinearRegression(
        epsilon,
        DELTA,
        feature_norm=float(np.sqrt(train[0].shape[1])),
        target_bound=TARGET_BOUND,
        method=method,
        adjacency="replace" if method == "ops_balanced" else "add_remove",
        public_data=public if method == "ops_ptr" else None,
    )
    start = time.process_time()
    model.fit(*train)
    return model, time.process_time() - start


def errors_of(columns, targets, seed):
    """Return test errors and seconds of one split by budget and method."""
    order = np.random.default_rng(seed).permutation(len(targets))
    parts = np.split(order, [int(0.6 * len(order)), int(0.7 * len(order))])
    train, public, test = ((columns[part], targets[part]) for part in parts)

    def error(predicted):
        return float(np.mean((predicted - test[1]) ** 2))

    found = {"non-private": (error(least_squares(*train, test[0])), 0.0)}
    found["zero"] = (error(np.zeros(len(test[1]))), 0.0)
    for epsilon in EPSILONS:
        for method in METHODS:
            model, seconds = fitted(train, public, method=method, epsilon=epsilon)
            found[f"{method} {epsilon:g}"] = (error(model.predict(test[0])), seconds)
    return found


def row(name, epsilon, runs):
    """Return a line of the table: means, and standard errors of private methods."""

    def mean(key):
        return np.mean([run[key][0] for run in runs])

    shown = []
    for method in METHODS:
        errors = [run[f"{method} {epsilon:g}"][0] for run in runs]
        spread = np.std(errors, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else np.nan
        shown.append(f"{np.mean(errors):.3f} ± {spread:.3f}")
    public = f"{mean('non-private'):.3f} | {mean('zero'):.3f}"
    return f"| {name} | {epsilon:g} | {public} | {' | '.join(shown)} |"


def main():
    """Print the table."""
    if not DATA.is_dir():
        sys.exit(f"no data in {DATA}; set TAUT_DATA to the folder that has uci/*.csv.gz")
    splits = int(sys.argv[1]) if len(sys.argv) > 1 else SPLITS
    print(f"| data | ε | non-private | zero | {' | '.join(METHODS)} |")
    print("|---" * (len(METHODS) + 4) + "|")
    seconds = {method: [] for method in METHODS}
    for name in SETS:
        columns, targets = read(DATA / f"{name}.csv.gz")
        runs = [errors_of(columns, targets, seed) for seed in range(splits)]
        for epsilon in EPSILONS:
            print(row(name, epsilon, runs), flush=True)
        for method in METHODS:
            seconds[method] += [run[f"{method} {EPSILONS[0]:g}"][1] for run in runs]
    print("| seconds | | | | " + " | ".join(f"{np.mean(s):.2f}" for s in seconds.values()) + " |")


if __name__ == "__main__":
    main()
