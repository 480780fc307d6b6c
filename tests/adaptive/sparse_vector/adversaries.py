"""Tiny sparse vectors by exhaustion: every sequence of answers, by quadrature over the threshold.

An adversary is a tree: for every sequence of answers so far a pair of query values, with and
without the record. Nothing here uses the code under test.
"""

from itertools import product

import numpy as np
from scipy import stats

LAWS = {
    "gaussian": stats.norm,
    "laplace": stats.laplace,
    "exponential": stats.expon,
}


def sequences(queries, tops):
    """Return all sequences of answers: they end after enough answers above, or all queries."""
    found = set()
    for bits in product((False, True), repeat=queries):
        ends = [i for i in range(queries) if sum(bits[: i + 1]) == tops]
        found.add(bits[: ends[0] + 1] if ends else bits)
    return sorted(found)


def prefixes(queries, tops):
    """Return all sequences of answers after which a query is asked."""
    return sorted({s[:i] for s in sequences(queries, tops) for i in range(len(s))})


def random_tree(rng, queries, tops, sensitivity, spread, least=None, monotone=False):
    """Return an adversary: query values without and with the record, by sequence of answers."""
    tree = {}
    for prefix in prefixes(queries, tops):
        value = rng.normal(0, spread) if least is None else least + abs(rng.normal(0, spread))
        move = sensitivity * (rng.choice([0.0, 1.0]) if monotone else rng.choice([-1.0, 1.0]))
        other = value + move if least is None else max(value + move, least)
        tree[prefix] = (value, other)
    return tree


def probabilities(tree, side, answers, threshold, query, nodes=4001):
    """Return the probability of every sequence of answers; noises are (kind, scale)."""
    law, scale = LAWS[threshold[0]], threshold[1]
    # Midpoints of equal probability cells, and far tails: exact enough for 1e-6 of a moment.
    reach = 14 if threshold[0] == "gaussian" else 45
    low = 0.0 if threshold[0] == "exponential" else -reach
    z = np.linspace(low, reach, nodes)
    weights = law.pdf(z) * (z[1] - z[0])
    weights[[0, -1]] /= 2
    if threshold[0] == "exponential":
        # Simpson's rule: the density does not vanish at its end.
        weights = law.pdf(z) * (z[1] - z[0]) / 3 * np.r_[1, np.tile([4, 2], (nodes - 3) // 2), 4, 1]
    weights /= weights.sum()
    tail = LAWS[query[0]]
    result = []
    for sequence in answers:
        mass = weights.copy()
        for i, above in enumerate(sequence):
            u = (z * scale - tree[sequence[:i]][side]) / query[1]
            mass *= tail.sf(u) if above else tail.cdf(u)
        result.append(mass.sum())
    return np.array(result)


def divergence(p, q, order):
    """Return the Renyi divergence of finite distributions."""
    return np.log((p**order * q ** (1 - order)).sum()) / (order - 1)


def worst_divergence(rng, *, queries, tops, order, threshold, query, sensitivity, climbs, **kind):
    """Return the largest divergence of a short random climb over adversaries."""

    def value(tree):
        p, q = (probabilities(tree, s, answers, threshold, query, 801) for s in (0, 1))
        return max(divergence(p, q, order), divergence(q, p, order))

    answers = sequences(queries, tops)
    spread = threshold[1] + query[1]
    best = random_tree(rng, queries, tops, sensitivity, spread, **kind)
    most = value(best)
    for _ in range(climbs):
        fresh = random_tree(rng, queries, tops, sensitivity, spread, **kind)
        keep = rng.random(len(best)) < 0.7
        mixed = {key: best[key] if keep[i] else fresh[key] for i, key in enumerate(best)}
        if (found := value(mixed)) > most:
            best, most = mixed, found
    return most
