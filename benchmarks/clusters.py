"""Clusters: distances to the nearest private centre, beside diffprivlib and k-means itself.

    python benchmarks/clusters.py [fits]

Means over fits, and their standard errors. Columns are scaled to [-1, 1] by their percentiles 1 and
99, which stand for public bounds, for all alike. Data come from the directory that TAUT_DATA names,
or from ../shared/data; a peer that cannot be imported with the scikit-learn at hand is left out.
diffprivlib is pure, and takes the number of records as public.
"""

import gzip
import os
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

from taut.estimators import PrivateKMeans

DATA = Path(os.environ.get("TAUT_DATA", "../shared/data"))
TASKS = (("protein", 5), ("bike", 6), ("mnist", 10))
EPSILONS = (0.1, 0.5, 1.0, 5.0)
DELTA = 1e-6
FITS = 6


def table(name):
    """Return the columns of a dataset in [-1, 1]."""
    if name == "mnist":
        images = np.load(DATA / "mnist.npz")["x_train"][:20_000, ::4, ::4] / 255
        rows = images.reshape(len(images), -1)
    else:
        with gzip.open(DATA / "uci" / f"{name}.csv.gz") as file:
            rows = np.loadtxt(file, delimiter=",")[:, :-1]
    low, high = np.percentile(rows, (1, 99), axis=0)
    high = np.where(high > low, high, low + 1)
    return (np.clip(rows, low, high) - (low + high) / 2) / ((high - low) / 2)


def distance(rows, centres):
    """Return the mean squared distance to the nearest centre."""
    squares = [((rows - centre) ** 2).sum(axis=1) for centre in centres]
    return float(np.min(squares, axis=0).mean())


def taut_centres(rows, clusters, epsilon):
    private = PrivateKMeans(clusters, bounds=(-1, 1), epsilon=epsilon, delta=DELTA)
    return private.fit(rows).cluster_centers_


def peers():
    """Return functions by name."""
    found = {"taut": taut_centres}
    try:
        from diffprivlib.models import KMeans as Peer
    except ImportError as failure:
        print(f"diffprivlib is left out: {failure}")
        return found

    def centres(rows, clusters, epsilon):
        bounds = (-np.ones(rows.shape[1]), np.ones(rows.shape[1]))
        return Peer(clusters, epsilon=epsilon, bounds=bounds).fit(rows).cluster_centers_

    return {**found, "diffprivlib": centres}


def cell(distances):
    """Return a mean and its standard error."""
    error = np.std(distances, ddof=1) / np.sqrt(len(distances)) if len(distances) > 1 else np.nan
    return f"{np.mean(distances):.3f} ± {error:.3f}"


def main():
    warnings.simplefilter("ignore")
    fits = int(sys.argv[1]) if len(sys.argv) > 1 else FITS
    print("| data | clusters | | " + " | ".join(f"ε = {one:g}" for one in EPSILONS) + " |")
    print("|---|---|---|" + "---|" * len(EPSILONS))
    for name, clusters in TASKS:
        rows = table(name)
        best = distance(rows, KMeans(clusters, n_init=3, random_state=0).fit(rows).cluster_centers_)
        print(f"| {name} | {clusters} | no noise | " + f"{best:.3f} | " * len(EPSILONS))
        for who, fit in peers().items():
            cells = [
                cell([distance(rows, fit(rows, clusters, epsilon)) for _ in range(fits)])
                for epsilon in EPSILONS
            ]
            shown = " | ".join(cells)
            print(f"| {name} | {clusters} | {who} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
