"""Propose-test-release: time of the median's distance, and errors at equal privacy.

    make bench BENCH=propose_test_release

CPU time of one thread. Errors are medians of absolute errors over repeated releases of one dataset,
at the same epsilon and delta: noise of the global sensitivity, smooth sensitivity, a proposed
bound, and the best of several bounds that is searched for.
"""

import os

from measuring import SINGLE_THREAD

os.environ.update(SINGLE_THREAD)  # before NumPy starts its threads

import time

import numpy as np

from taut.adaptive import DistanceTest, ProposedMedian, SearchedMedian, SmoothMedian
from taut.noise import Box, SeededForExperiments, laplace_with_scales

SIZES = (10_000, 1_000_000, 10_000_000)
EPSILONS = (0.1, 0.5, 1.0, 2.0)
DELTA = 1e-6
LOW, HIGH = 0.0, 1000.0
ROUNDS = 5
RELEASES = 200


def seconds(call):
    """Return the CPU seconds of the best of some calls."""
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def proposed(epsilon, bound):
    """Return a proposal with half of the budget for the test."""
    test = DistanceTest(epsilon / 2, DELTA, "replace")
    return ProposedMedian(LOW, HIGH, bound, test, epsilon / 2)


def calls(size):
    """Return what is timed, on data of a size."""
    data = np.random.default_rng(0).normal(300.0, 40.0, size)
    median = proposed(1.0, 1.0)
    return (lambda: median.distance(data)), (lambda: median.release(data)), (lambda: np.sort(data))


def times():
    """Print what a distance and a whole release cost."""
    print("| records | distance, ms | release, ms | numpy.sort, ms |")
    print("|---|---|---|---|")
    for size in SIZES:
        cells = [f"{1e3 * seconds(call):.1f}" for call in calls(size)]
        print(f"| {size} | " + " | ".join(cells) + " |")


def ways(epsilon, data, truth):
    """Return releases of the median by name, all at the same epsilon and delta."""
    width = HIGH - LOW
    noise = laplace_with_scales(Box([width], adjacency="replace"), [width / epsilon])
    smooth = SmoothMedian(LOW, HIGH, epsilon, DELTA)
    wide, narrow = proposed(epsilon, 1.0), proposed(epsilon, 0.25)
    bounds = tuple(np.geomspace(0.01, 100.0, 13).tolist())
    search = SearchedMedian(LOW, HIGH, bounds, epsilon / 2, epsilon / 2, DELTA)
    return {
        "global Laplace": lambda s: float(np.clip(noise.release([truth], s)[0], LOW, HIGH)),
        "smooth sensitivity": lambda s: smooth.release(data, s).value,
        "proposed 1": lambda s: wide.release(data, s).value,
        "proposed 0.25": lambda s: narrow.release(data, s).value,
        "searched": lambda s: search.release(data, s).value,
    }


def error(release, truth):
    """Return the median absolute error, with the share of refusals."""
    source = SeededForExperiments(1)
    values = [release(source) for _ in range(RELEASES)]
    kept = np.array([value for value in values if value is not None])
    refused = "" if kept.size == RELEASES else f" (refused {1 - kept.size / RELEASES:.0%})"
    return f"{np.median(np.abs(kept - truth)):.3g}{refused}" if kept.size else "refused"


def errors():
    """Print errors of all ways at equal privacy."""
    data = np.random.default_rng(0).normal(300.0, 40.0, 20_001)
    truth = float(np.median(data))
    names = tuple(ways(1.0, data, truth))
    print("\n| epsilon | " + " | ".join(names) + " |")
    print("|---" * (1 + len(names)) + "|")
    for epsilon in EPSILONS:
        cells = [error(way, truth) for way in ways(epsilon, data, truth).values()]
        print(f"| {epsilon:g} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    times()
    errors()
