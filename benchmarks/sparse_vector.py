"""Sparse vectors: questions per second, time of accounting, and what answers cost.

    python benchmarks/sparse_vector.py

Speed is CPU time with the secure generator. The table follows experiment 2 of chapter 7 of
Zhu (2023): noise of equal variance (210 on a threshold at distance 1000, twice as much on queries),
delta 1e-6, as many answers above as noise alone is expected to give.
"""

import time

import numpy as np

import taut
from taut.adaptive import ScalarNoise, SparseVector, SparseVectorDesign, SparseVectorStages

DELTA, DEVIATION = 1e-6, 210.0
LENGTHS = {100: (2, 2), 1_000: (17, 23), 10_000: (166, 228), 100_000: (1660, 2279)}
"""Number of questions, and answers above that are expected of normal and of Laplace noise."""


def design(kind, scale, tops, queries=None, **more):
    noises = ScalarNoise(kind, scale), ScalarNoise(kind, 2 * scale)
    return SparseVectorDesign(*noises, 1.0, tops, "replace", queries, **more)


def speed(kind, count):
    vector = SparseVector(design(kind, 50.0, 20, 10 * count), threshold=1e5)
    values = np.zeros(count)
    vector.ask_many(values[:1000])
    start = time.process_time()
    vector.ask_many(values)
    return count / (time.process_time() - start)


def timed(make):
    start = time.process_time()
    epsilon = make().loss.epsilon(DELTA)
    return epsilon, time.process_time() - start


def accounting():
    print("\nepsilon at delta 1e-6, noise 50 and 100, and CPU seconds")
    for tops, queries in ((1, 1_000), (20, 1_000), (20, 100_000), (100, 1_000_000)):
        tight, seconds = timed(lambda t=tops, q=queries: design("gaussian", 50.0, t, q))
        old, _ = timed(lambda t=tops, q=queries: design("gaussian", 50.0, t, q, method="thesis"))
        print(f"  {tops:4d} of {queries:8d}: {tight:.4f} (published {old:.4f}), {seconds:.2f} s")


def table():
    print(
        "\nquestions | Laplace pure | resampled | tight | normal published | tight | stages | plain"
    )
    scale = DEVIATION / np.sqrt(2)
    for queries, (normal, laplace) in LENGTHS.items():
        pure = design("laplace", scale, laplace)
        again = design("laplace", scale, laplace, resample=True)
        old = design("gaussian", DEVIATION, normal, queries, method="thesis")
        new = design("gaussian", DEVIATION, normal, queries)
        stages = min(
            SparseVectorStages(
                design("gaussian", DEVIATION, each, queries), -(-normal // each)
            ).epsilon(DELTA)
            for each in (1, 4)
        )
        plain = queries * taut.gaussian(2 * DEVIATION, adjacency="replace")
        print(
            f"{queries:9d} | {pure.pure_epsilon:.3f} | {again.loss.epsilon(DELTA):.3f} | "
            f"{pure.loss.epsilon(DELTA):.3f} | {old.loss.epsilon(DELTA):.3f} | "
            f"{new.loss.epsilon(DELTA):.3f} | {stages:.3f} | {plain.epsilon(DELTA):.3f}"
        )


def main():
    for kind in ("gaussian", "laplace", "exponential"):
        print(f"{kind}: {speed(kind, 1_000_000) / 1e6:.1f} million questions per second")
    accounting()
    table()


if __name__ == "__main__":
    main()
