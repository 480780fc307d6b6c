"""Principal components: error of a private subspace on random rows, for every kind of noise.

    python benchmarks/components.py [trials]

The fully random model of Muthukrishnan and Kalyani (2025): rows of length one in a random subspace
of dimension 10 of 100 columns, drawn anew in every trial. The error is the Frobenius norm of what
the components leave of the subspace, over that of the subspace. Rows are measured from zero.
"""

import sys

import numpy as np

from taut.estimators import PrivatePCA

COLUMNS, RANK, DELTA = 100, 10, 1e-6
RECORDS = (1_000, 20_000)
EPSILONS = (1.0, 2.0, 5.0)
NOISES = ("symmetric", "entrywise", "eigengap")
TRIALS = 20


def drawn(seed, records):
    """Return a subspace and rows in it."""
    random = np.random.default_rng(seed)
    subspace, _ = np.linalg.qr(random.normal(size=(COLUMNS, RANK)))
    weights = random.normal(size=(records, RANK))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    return subspace, weights @ subspace.T


def error_of(subspace, components):
    """Return the share of the subspace that the components miss."""
    left = subspace - components.T @ (components @ subspace)
    return np.linalg.norm(left) / np.linalg.norm(subspace)


def main():
    """Print a row per number of records and noise: means and standard errors."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    print("| rows | noise |", " | ".join(f"ε = {one:g}" for one in EPSILONS), "|")
    print("|---" * (len(EPSILONS) + 2) + "|")
    for records in RECORDS:
        for noise in NOISES:
            cells = []
            for epsilon in EPSILONS:
                private = PrivatePCA(
                    RANK, row_norm=1.0, mean=None, noise=noise, epsilon=epsilon, delta=DELTA
                )
                errors = []
                for seed in range(trials):
                    subspace, rows = drawn(seed, records)
                    errors.append(error_of(subspace, private.fit(rows).components_))
                spread = np.std(errors, ddof=1) / np.sqrt(trials)
                cells.append(f"{np.mean(errors):.4f} ± {spread:.4f}")
            print(f"| {records} | {noise} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
