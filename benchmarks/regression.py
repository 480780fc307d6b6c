"""Private linear regression on 13 UCI sets: every method, the non-private optimum, and nothing.

    python benchmarks/regression.py [splits]

Reads ``uci/*.csv.gz`` (last column: target) below TAUT_DATA or ../shared/data. Columns are centred
and scaled, and rows and targets bounded, *without* privacy and beforehand, for all methods alike as
papers of the field do: features to unit variance, rows to a norm of at most √d, targets to unit
variance and [-3, 3]. What is compared is the regression. Errors are mean squared test errors over
random splits (80 % for the fit), in units of the variance of targets; replace-one neighbours for
output perturbation and ``ops_balanced``, which need a public number of records, add/remove for all
others. ``ops_ptr`` compares samples on public records: an eighth of those that others fit.
"""

import gzip
import json
import os
import sys
from pathlib import Path

import numpy as np

from taut.estimators import PrivateLinearRegression

DATA = Path(os.environ.get("TAUT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "uci"
METHODS = (
    "auto",
    "refined",
    "coordinate_descent",
    "posterior_mean",
    "adassp",
    "boosted_adassp",
    "ssp",
    "output_perturbation",
    "ada_ops",
    "ops_balanced",
    "ops_ptr",
    "zero",
)
PUBLIC_COUNT = ("output_perturbation", "ops_balanced")  # methods that need replace-one neighbours
PUBLIC_SHARE = 1 / 8  # of the records to fit, for ops_ptr
EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-6
SPLITS = 20
TARGET_BOUND = 3.0


def read(path):
    """Return bounded features and targets."""
    with gzip.open(path, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",")
    columns, targets = table[:, :-1], table[:, -1]
    spread = columns.std(axis=0)
    columns = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    norms = np.linalg.norm(columns, axis=1)
    longest = np.sqrt(columns.shape[1])
    columns *= np.minimum(1.0, longest / np.maximum(norms, 1e-300))[:, None]
    targets = (targets - targets.mean()) / targets.std()
    return columns, np.clip(targets, -TARGET_BOUND, TARGET_BOUND)


def least_squares(columns, targets, unseen):
    """Return predictions of least squares, without directions that the data hardly have."""
    ones = np.ones((len(columns), 1))
    found = np.linalg.lstsq(np.hstack([columns, ones]), targets, rcond=1e-6)[0]
    return unseen @ found[:-1] + found[-1]


def private(columns, targets, unseen, *, method, epsilon):
    """Return predictions of a private fit."""
    public = int(PUBLIC_SHARE * len(targets)) if method == "ops_ptr" else 0
    model = PrivateLinearRegression(
        epsilon,
        DELTA,
        feature_norm=float(np.sqrt(columns.shape[1])),
        target_bound=TARGET_BOUND,
        method=method,
        adjacency="replace" if method in PUBLIC_COUNT else "add_remove",
        public_data=(columns[:public], targets[:public]) if public else None,
    )
    return model.fit(columns[public:], targets[public:]).predict(unseen)


def errors_of(columns, targets, seed):
    """Return test errors of one split by budget and method."""
    order = np.random.default_rng(seed).permutation(len(targets))
    kept, left = np.split(order, [int(0.8 * len(order))])
    train, test = (columns[kept], targets[kept]), columns[left]

    def error(predicted):
        return float(np.mean((predicted - targets[left]) ** 2))

    found = {"non-private": error(least_squares(*train, test))}
    for epsilon in EPSILONS:
        for method in METHODS:
            predicted = private(*train, test, method=method, epsilon=epsilon)
            found[f"{method} {epsilon:g}"] = error(predicted)
    return found


def table(errors, epsilon):
    """Return the lines of a table in markdown."""
    names = [f"{method} {epsilon:g}" for method in METHODS]
    lines = [
        f"| ε = {epsilon:g} | non-private | {' | '.join(METHODS)} |",
        "|---" * (len(METHODS) + 2) + "|",
    ]
    ratios, over_zero = [], []
    for name, runs in errors.items():
        means = {key: np.mean([run[key] for run in runs]) for key in runs[0]}
        row = np.array([means[key] for key in names])
        ratios.append(row / row.min())
        over_zero.append(row / row[-1])
        shown = " | ".join(f"{value:.3f}" if value < 100 else "> 100" for value in row)
        lines.append(f"| {name} | {means['non-private']:.3f} | {shown} |")
    for words, numbers in (
        ("median ratio to the best", np.median(ratios, axis=0)),
        ("largest ratio to zero", np.max(over_zero, axis=0)),
    ):
        shown = " | ".join(f"{value:.3f}" if value < 100 else "> 100" for value in numbers)
        lines.append(f"| {words} | | {shown} |")
    return "\n".join(lines)


def main():
    """Print a table for every budget, after every split on the way."""
    if not DATA.is_dir():
        sys.exit(f"no data in {DATA}; set TAUT_DATA to the folder that has uci/*.csv.gz")
    splits = int(sys.argv[1]) if len(sys.argv) > 1 else SPLITS
    sets = {path.name.split(".")[0]: read(path) for path in sorted(DATA.glob("*.csv.gz"))}
    errors = {name: [] for name in sets}
    for seed in range(splits):
        for name, (columns, targets) in sets.items():
            errors[name].append(errors_of(columns, targets, seed))
        print(
            json.dumps({"split": seed, "errors": {n: e[-1] for n, e in errors.items()}}),
            file=sys.stderr,
            flush=True,
        )
    for epsilon in EPSILONS:
        print(table(errors, epsilon), end="\n\n")


if __name__ == "__main__":
    main()
