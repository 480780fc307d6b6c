"""CPU and wall seconds of a private regression on many rows, by method.

    OPENBLAS_NUM_THREADS=1 python benchmarks/large_regression.py [rows] [columns] [repeats]

Medians over repeats, with the load of the machine (runnable processes, over the last minute): wall
seconds mean little when it is above the number of cores. NumPy's own X'X of the same table is the
yardstick: nothing exact can be faster.
"""

import os
import sys
import time

import numpy as np

from taut.estimators import PrivateLinearRegression

METHODS = ("refined", "posterior_mean")


def timed(function, repeats):
    """Return medians of CPU and wall seconds."""
    spent = []
    for _ in range(repeats):
        cpu, wall = time.process_time(), time.perf_counter()
        function()
        spent.append((time.process_time() - cpu, time.perf_counter() - wall))
    return np.median(spent, axis=0)


def main():
    """Print a line per method."""
    given = [int(one) for one in sys.argv[1:]]
    records, columns, repeats = given + [1_000_000, 100, 3][len(given) :]
    random = np.random.default_rng(0)
    rows = random.standard_normal((records, columns))
    targets = rows @ random.uniform(-0.1, 0.1, columns) + random.standard_normal(records)

    def fit(method):
        PrivateLinearRegression(
            1.0, 1e-6, feature_norm=float(np.sqrt(columns)), target_bound=4.0, method=method
        ).fit(rows, targets)

    print(f"{records} rows, {columns} columns, {os.cpu_count()} cores")
    runs = {"numpy X'X": lambda: rows.T @ rows}
    runs |= {method: lambda method=method: fit(method) for method in METHODS}
    for name, function in runs.items():
        cpu, wall = timed(function, repeats)
        load = os.getloadavg()[0]
        print(f"{name:15} {cpu:6.2f} s CPU {wall:7.2f} s wall, load {load:.1f}", flush=True)


if __name__ == "__main__":
    main()
