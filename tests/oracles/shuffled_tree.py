"""A binary tree over examples in a random order: every order, and every output, by brute force."""

import itertools
import math

import numpy as np


def tree(leaves):
    """Return the matrix of all nodes of a complete tree, level by level, shape (2 n - 1, n)."""
    rows = []
    width = 1
    while width <= leaves:
        rows.extend(
            [float(start <= j < start + width) for j in range(leaves)]
            for start in range(0, leaves, width)
        )
        width *= 2
    return np.array(rows)


def centres(examples):
    """Return the noiseless nodes for every order of the examples, shape (n!, 2 n - 1)."""
    orders = np.array(list(itertools.permutations(examples)))
    return orders @ tree(len(examples)).T


def exact_delta(examples, sigma, epsilon, cells=240):
    """Return delta for removing the first example from a tree over two, on a grid of outputs."""
    with_it, without = centres(examples), centres([0.0, *examples[1:]])
    everything = np.concatenate([with_it, without])
    axes = [
        np.linspace(low - 7 * sigma, high + 7 * sigma, cells)
        for low, high in zip(everything.min(axis=0), everything.max(axis=0), strict=True)
    ]
    volume = math.prod(axis[1] - axis[0] for axis in axes)
    shape = (-1, 1, 1), (1, -1, 1), (1, 1, -1)

    def density(means):
        total = 0.0
        for mean in means:
            parts = [
                np.exp(-0.5 * ((axis - at) / sigma) ** 2).reshape(form)
                for axis, at, form in zip(axes, mean, shape, strict=True)
            ]
            total = total + parts[0] * parts[1] * parts[2]
        return total / (len(means) * (sigma * math.sqrt(2 * math.pi)) ** 3)

    return float(np.maximum(density(with_it) - math.exp(epsilon) * density(without), 0).sum()) * (
        volume
    )


def sampled_delta(examples, sigma, epsilon, draws=200_000, seed=0):
    """Return delta for removing the first example, and its standard error, for any tree.

    Outputs are drawn where the example is, and where its effect is enlarged.
    """
    random = np.random.default_rng(seed)
    with_it, without = centres(examples), centres([0.0, *examples[1:]])
    enlarged = [with_it + s * (with_it - without) for s in (0.0, 2.0, 4.0)]
    means = np.concatenate(enlarged)
    chosen = means[random.integers(len(means), size=draws)]
    outputs = chosen + sigma * random.normal(size=chosen.shape)

    def density(at):
        squares = ((outputs[:, None, :] - at[None, :, :]) ** 2).sum(axis=2)
        return np.exp(-squares / (2 * sigma**2)).mean(axis=1)

    gained = np.maximum(density(with_it) - math.exp(epsilon) * density(without), 0.0)
    values = gained / density(means)
    return float(values.mean()), float(values.std() / math.sqrt(draws))
