"""Statistics of tables: CPU time of quantiles and sums, and errors beside other libraries.

    python benchmarks/statistics_peers.py                   # taut alone
    python benchmarks/statistics_peers.py --peers PYTHON    # and one with diffprivlib and opendp

Every row is one pure epsilon and one adjacency for all: with records replaced, and their number
public, for means and variances, since diffprivlib has no others; with records added or removed for
the rest. Errors are absolute, averaged over the numbers of a release: means over repeats on the
same data, and their standard errors. Peers run in a process of their own. Times are medians of CPU
seconds.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path

import numpy as np

N, EPSILON, BOUNDS, BINS = 10_000, 0.1, (0.0, 1_000.0), 20
DECILES = [i / 10 for i in range(1, 10)]
# Candidates of OpenDP's quantiles: a finer grid than its error, which is about 0.2.
GRID = np.linspace(*BOUNDS, 10_001).tolist()
REPEATS, MANY = 100, 1_000_000
ROWS = {
    "total": "add/remove",
    "mean": "add/remove",
    "mean, n public": "replace",
    "variance, n public": "replace",
    "histogram": "add/remove",
    "median": "add/remove",
    "deciles": "add/remove",
}


def incomes(n, seed=0):
    return np.random.default_rng(seed).lognormal(3.5, 0.6, n)


def truths(values):
    clipped = np.clip(values, *BOUNDS)
    return {
        "total": clipped.sum(),
        "mean": clipped.mean(),
        "mean, n public": clipped.mean(),
        "variance, n public": clipped.var(),
        "histogram": np.histogram(clipped, bins=BINS, range=BOUNDS)[0],
        "median": np.quantile(clipped, 0.5),
        "deciles": np.quantile(clipped, DECILES),
    }


def ours():
    from taut.statistics import histogram, mean, quantiles, total, variance

    bounded = {"bounds": BOUNDS, "epsilon": EPSILON}
    edges = np.linspace(*BOUNDS, BINS + 1)
    public = {**bounded, "adjacency": "replace", "records": N}
    return {
        "total": lambda x: total(x, **bounded).value,
        "mean": lambda x: mean(x, **bounded).value,
        "mean, n public": lambda x: mean(x, **public).value,
        "variance, n public": lambda x: variance(x, **public).value,
        "histogram": lambda x: histogram(x, edges=edges, epsilon=EPSILON).value,
        "median": lambda x: quantiles(x, shares=[0.5], **bounded).value[0],
        "deciles": lambda x: quantiles(x, shares=DECILES, **bounded).value,
    }


def diffprivlib():
    """Return its statistics, in which the number of records is always public."""
    from diffprivlib import tools

    bounded = {"bounds": BOUNDS, "epsilon": EPSILON}
    return {
        "total": lambda x: tools.sum(x, **bounded),
        "mean, n public": lambda x: tools.mean(x, **bounded),
        "variance, n public": lambda x: tools.var(x, **bounded),
        "histogram": lambda x: tools.histogram(x, epsilon=EPSILON, bins=BINS, range=BOUNDS)[0],
        "median": lambda x: tools.quantile(x, 0.5, **bounded),
        "deciles": lambda x: tools.quantile(x, DECILES, **bounded),
    }


def opendp():
    """Return statistics of OpenDP; a changed record is one removed and one added."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    atoms = dp.atom_domain(bounds=BOUNDS, nan=False)
    space = dp.vector_domain(atoms), dp.symmetric_distance()
    sized = dp.vector_domain(atoms, size=N), dp.symmetric_distance()
    edges = np.linspace(*BOUNDS, BINS + 1)[1:-1].tolist()
    laplace = dp.m.then_laplace

    def searched(make, epsilon=EPSILON, records=1):
        return dp.binary_search_chain(make, d_in=records, d_out=epsilon)

    def quantile(share, epsilon):
        def make(scale):
            return space >> dp.m.then_private_quantile(dp.max_divergence(), GRID, share, scale)

        return searched(make, epsilon)

    total = searched(lambda s: space >> dp.t.then_sum() >> laplace(s))
    mean = searched(lambda s: sized >> dp.t.then_mean() >> laplace(s), records=2)
    variance = searched(lambda s: sized >> dp.t.then_variance(ddof=0) >> laplace(s), records=2)
    cells = searched(
        lambda s: (
            space
            >> dp.t.then_find_bin(edges=edges)
            >> dp.t.then_count_by_categories(categories=list(range(BINS)), null_category=False)
            >> laplace(s)
        )
    )
    median = quantile(0.5, EPSILON)
    deciles = [quantile(share, EPSILON / len(DECILES)) for share in DECILES]
    return {
        "total": lambda x: total(x.tolist()),
        "mean, n public": lambda x: mean(x.tolist()),
        "variance, n public": lambda x: variance(x.tolist()),
        "histogram": lambda x: cells(x.tolist()),
        "median": lambda x: median(x.tolist()),
        "deciles": lambda x: [one(x.tolist()) for one in deciles],
    }


def errors(functions, values):
    """Return the mean error and its standard error by statistic, or what a peer said instead."""
    truth = truths(values)
    found = {}
    for name, function in functions.items():
        try:
            drawn = [
                np.abs(np.asarray(function(values)) - truth[name]).mean() for _ in range(REPEATS)
            ]
            found[name] = [np.mean(drawn), np.std(drawn, ddof=1) / np.sqrt(REPEATS)]
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


def cell(found):
    """Return an error as text."""
    if found is None or isinstance(found, str):
        return found or ""
    return f"{found[0]:.4g} ± {found[1]:.2g}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", help="python of an environment with diffprivlib and opendp")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    values = incomes(N)
    if arguments.as_peer:
        peers = {"diffprivlib": diffprivlib(), "OpenDP": opendp()}
        print(json.dumps({name: errors(one, values) for name, one in peers.items()}))
        return
    for name, spent in speeds().items():
        print(f"{name:20} {spent:.3f} s")
    found = {"taut": errors(ours(), values)}
    if arguments.peers:
        command = [arguments.peers, str(Path(__file__)), "--as-peer"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found |= json.loads(answer.splitlines()[-1])
    print(f"| statistic | neighbours | {' | '.join(found)} |")
    print("|---" * (len(found) + 2) + "|")
    for name, adjacency in ROWS.items():
        cells = [cell(each.get(name)) for each in found.values()]
        print(f"| {name} | {adjacency} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
