"""Encoders of every kind, and what they are compared with: plain linear algebra on small sizes."""

from itertools import combinations, pairwise

import numpy as np

from taut.matrix import (
    BandedEncoder,
    BufferedEncoder,
    DenseEncoder,
    InverseToeplitzEncoder,
    ToeplitzEncoder,
    TreeEncoder,
    Workload,
    identity,
    square_root,
)


def encoders(steps):
    """Return one encoder of every kind, by name."""
    random = np.random.default_rng(steps)
    bands = min(3, steps)
    table = random.uniform(0.2, 1.0, (bands, steps))
    table[np.add.outer(np.arange(bands), np.arange(steps)) >= steps] = 0.0
    return {
        "identity": identity(steps),
        "toeplitz": ToeplitzEncoder(steps, [1.0, 0.5, 0.7][:steps]),
        "signed": ToeplitzEncoder(steps, [1.0, -0.5, 0.3, 0.1][:steps]),
        "root": square_root(Workload(steps)),
        "inverse": InverseToeplitzEncoder(steps, [1.0, -0.6, -0.1][:steps]),
        "alternating": InverseToeplitzEncoder(steps, [2.0, 0.8][:steps]),
        "buffered": BufferedEncoder(steps, [0.3, 0.2], [0.9, 0.4]),
        "banded": BandedEncoder(table),
        "dense": DenseEncoder(np.tril(random.normal(size=(steps, steps)), -1) + np.eye(steps)),
        "plain tree": TreeEncoder(steps, decoder="plain"),
        "online tree": TreeEncoder(steps),
        "forest": TreeEncoder(steps, levels=3),
        "plain forest": TreeEncoder(steps, levels=2, decoder="plain"),
        "full tree": TreeEncoder(steps).full_honaker(),
    }


def decoder(encoder):
    """Return D, shape (steps, rows), column by column from the stream."""
    drawn = iter(np.eye(encoder.rows))
    stream = encoder.stream()
    return np.array([stream.step(lambda: next(drawn)) for _ in range(encoder.steps)])


def admissible(steps, gap, count):
    """Return every choice of at most ``count`` steps that are ``gap`` apart."""
    return [
        chosen
        for size in range(1, count + 1)
        for chosen in combinations(range(steps), size)
        if all(b - a >= gap for a, b in pairwise(chosen))
    ]
