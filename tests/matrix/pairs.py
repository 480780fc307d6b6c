"""Mixtures of normal laws with few components: delta in both directions, by importance sampling."""

import itertools
import math

import numpy as np
from scipy.special import logsumexp


def subsets(matrix, rate):
    """Return centres and weights of the pair under Poisson sampling of every column."""
    drawn = np.array(list(itertools.product((0.0, 1.0), repeat=matrix.shape[1])))
    taken = drawn.sum(axis=1)
    return drawn @ matrix.T, rate**taken * (1 - rate) ** (matrix.shape[1] - taken)


def bins_of(matrix, bins):
    """Return centres and weights of the pair of balls in bins."""
    centres = [matrix[:, first::bins].sum(axis=1) for first in range(bins)]
    return np.array(centres), np.full(bins, 1 / bins)


def sampled(centres, weights, sigma, draws=24_000, seed=0):
    """Return a function of epsilon: (delta, standard error) of removal and addition of the record.

    Outputs are drawn around multiples of all centres, to both sides.
    """
    random = np.random.default_rng(seed)
    centres = centres / sigma
    scales = (-2.5, -1.0, 0.0, 1.0, 1.6, 2.5)
    law = (weights + 1 / len(weights)) / 2
    chosen = centres[random.choice(len(law), size=(len(scales), draws // len(scales)), p=law)]
    outputs = (np.array(scales)[:, None, None] * chosen).reshape(-1, centres.shape[1])
    outputs = outputs + random.standard_normal(outputs.shape)
    products, squares = outputs @ centres.T, (centres**2).sum(axis=1)
    log_drawn = logsumexp(
        [
            logsumexp(scale * products - scale**2 * squares / 2 + np.log(law), axis=1)
            for scale in scales
        ],
        axis=0,
    ) - math.log(len(scales))
    log_ratio = logsumexp(products - squares / 2 + np.log(weights), axis=1)
    plain, mixed = np.exp(-log_drawn), np.exp(log_ratio - log_drawn)

    def at(epsilon):
        removed = np.maximum(mixed - math.exp(epsilon) * plain, 0.0)
        added = np.maximum(plain - math.exp(epsilon) * mixed, 0.0)
        return [(float(v.mean()), float(v.std() / math.sqrt(v.size))) for v in (removed, added)]

    return at
