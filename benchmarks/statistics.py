"""Statistics of tables: CPU time of quantiles and sums, and errors beside other libraries.

    python benchmarks/statistics.py                   # taut alone
    python benchmarks/statistics.py --peers PYTHON    # and an environment with diffprivlib, opendp

Times are medians of CPU seconds. Errors are medians of absolute ones over repeats at the same
epsilon, as a ratio to those of taut; peers run in a process of their own on the same data. The
mean and the variance of diffprivlib take the number of records as public, and its histogram cuts
counts at zero, so that they are also compared with taut for replaced records.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path

import numpy as np

N, EPSILON, BOUNDS = 10_000, 0.1, (0.0, 1_000.0)
DECILES = [i / 10 for i in range(1, 10)]
REPEATS, MANY = 200, 1_000_000


def incomes(n, seed=0):
    return np.random.default_rng(seed).lognormal(3.5, 0.6, n)


def truths(values):
    clipped = np.clip(values, *BOUNDS)
    return {
        "mean": clipped.mean(),
        "mean, n public": clipped.mean(),
        "variance": clipped.var(),
        "variance, n public": clipped.var(),
        "median": np.quantile(clipped, 0.5),
        "deciles": np.quantile(clipped, DECILES),
        "histogram": np.histogram(values, bins=20, range=BOUNDS)[0],
    }


def ours():
    from taut.statistics import histogram, mean, quantiles, variance

    bounded = {"bounds": BOUNDS, "epsilon": EPSILON}
    edges = np.linspace(*BOUNDS, 21)
    public = {**bounded, "adjacency": "replace", "records": N}
    return {
        "mean": lambda x: mean(x, **bounded).value,
        "mean, n public": lambda x: mean(x, **public).value,
        "variance": lambda x: variance(x, **bounded).value,
        "variance, n public": lambda x: variance(x, **public).value,
        "median": lambda x: quantiles(x, shares=[0.5], **bounded).value[0],
        "deciles": lambda x: quantiles(x, shares=DECILES, **bounded).value,
        "histogram": lambda x: histogram(x, edges=edges, epsilon=EPSILON).value,
    }


def theirs():
    """Return the functions of diffprivlib and OpenDP: for the environment of the peers alone."""
    from diffprivlib import tools

    bounded = {"bounds": BOUNDS, "epsilon": EPSILON}
    found = {
        "diffprivlib": {
            "mean, n public": lambda x: tools.mean(x, **bounded),
            "variance, n public": lambda x: tools.var(x, **bounded),
            "median": lambda x: tools.quantile(x, 0.5, **bounded),
            "deciles": lambda x: tools.quantile(x, DECILES, **bounded),
            "histogram": lambda x: tools.histogram(x, epsilon=EPSILON, bins=20, range=BOUNDS)[0],
        }
    }
    return {**found, "OpenDP": opendp()}


def opendp():
    """Return statistics of OpenDP for records that are added or removed."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(bounds=BOUNDS, nan=False)), dp.symmetric_distance()

    def searched(make):
        return dp.binary_search_chain(make, d_in=1, d_out=EPSILON)

    def median(x):
        grid = [float(c) for c in np.linspace(*BOUNDS, 10_001)]
        chain = searched(
            lambda s: space >> dp.m.then_private_quantile(dp.max_divergence(), grid, 0.5, s)
        )
        return chain(x.tolist())

    def total(x):
        return searched(lambda s: space >> dp.t.then_sum() >> dp.m.then_laplace(s))(x.tolist())

    return {"total": total, "median": median}


def errors(functions, values):
    truth = {**truths(values), "total": np.clip(values, *BOUNDS).sum()}
    found = {}
    for name, function in functions.items():
        try:
            drawn = [
                np.abs(np.asarray(function(values)) - truth[name]).mean() for _ in range(REPEATS)
            ]
            found[name] = float(np.median(drawn))
        except Exception as error:  # a peer that does not answer is a result, too
            found[name] = f"{type(error).__name__}: {str(error)[:60]}"
    return found


def seconds(function, repeats=5):
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        spent.append(time.process_time() - start)
    return float(np.median(spent))


def speeds():
    from taut.statistics import mean, quantiles

    values = incomes(MANY)
    bounded = {"bounds": BOUNDS, "epsilon": EPSILON}
    return {
        "median of 10^6": seconds(lambda: quantiles(values, shares=[0.5], **bounded)),
        "deciles of 10^6": seconds(lambda: quantiles(values, shares=DECILES, **bounded)),
        "mean of 10^6": seconds(lambda: mean(values, **bounded)),
        "numpy.sort of 10^6": seconds(lambda: np.sort(values)),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", help="python of an environment with diffprivlib and opendp")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    values = incomes(N)
    if arguments.as_peer:
        print(json.dumps({name: errors(one, values) for name, one in theirs().items()}))
        return
    for name, spent in speeds().items():
        print(f"{name:20} {spent:.3f} s")
    mine = errors({**ours(), "total": totals()}, values)
    found = {"taut": mine}
    if arguments.peers:
        command = [arguments.peers, str(Path(__file__)), "--as-peer"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found |= json.loads(answer.splitlines()[-1])
    for library, each in found.items():
        for name, error in each.items():
            ratio = f"{error / mine[name]:8.2f} x" if isinstance(error, float) else error
            print(
                f"{library:12} {name:20} {error if isinstance(error, float) else 0:12.4f} {ratio}"
            )


def totals():
    from taut.statistics import total

    return lambda x: total(x, bounds=BOUNDS, epsilon=EPSILON).value


if __name__ == "__main__":
    main()
