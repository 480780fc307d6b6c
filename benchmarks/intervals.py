"""Coverage of 95 % intervals of private coefficients, over repeats with fresh data and noise.

    python benchmarks/intervals.py [repeats]

The setting is that of ``tests/estimators/regression/test_intervals.py``: 10,000 records, five
columns and an intercept, epsilon 1, delta 1e-6. The standard error counts a repeat as one
observation, since the six intervals of a fit depend on each other.
"""

import sys

import numpy as np

from taut.estimators import PrivateLinearRegression
from taut.noise import SeededForExperiments

SLOPES, HEIGHT, SPREAD = np.array([0.5, -0.3, 0.2, 0.0, 0.1]), 0.2, 0.3
METHODS = ("auto", "posterior_mean", "adassp")
RECORDS, REPEATS = 10_000, 1_000


def drawn(seed):
    """Return rows and targets of a linear model."""
    random = np.random.default_rng(seed)
    rows = random.uniform(-1, 1, (RECORDS, len(SLOPES)))
    return rows, rows @ SLOPES + HEIGHT + SPREAD * random.standard_normal(RECORDS)


def covered(method, seed):
    """Return which coefficients, then whether the intercept, lie in their intervals; and widths."""
    model = PrivateLinearRegression(
        1.0,
        1e-6,
        bounds=(-1, 1),
        target_bound=2.5,
        method=method,
        generator=SeededForExperiments(seed),
    ).fit(*drawn(seed))
    ends = np.vstack([model.coef_interval(0.95), model.intercept_interval(0.95)])
    truth = np.append(SLOPES, HEIGHT)
    return (ends[:, 0] <= truth) & (truth <= ends[:, 1]), ends[:, 1] - ends[:, 0]


def main():
    """Print a line per method."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    usual = 2 * 1.96 * SPREAD * np.sqrt(3 / RECORDS)
    print("| method | slopes | intercept | together | width of slopes over that of least squares |")
    print("|---|---|---|---|---|")
    for method in METHODS:
        runs = [covered(method, seed) for seed in range(repeats)]
        hits = np.array([hit for hit, _ in runs])
        error = hits.mean(axis=1).std(ddof=1) / np.sqrt(repeats)
        width = np.median([widths[:-1].mean() for _, widths in runs]) / usual
        print(
            f"| {method} | {hits[:, :-1].mean():.1%} | {hits[:, -1].mean():.1%} |"
            f" {hits.mean():.1%} ± {error:.1%} | {width:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
