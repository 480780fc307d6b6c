"""The profile of independent Laplace noise, by quadrature over outputs."""

import math
from itertools import pairwise, product

import numpy as np
from scipy.integrate import quad


def true_delta(ratios, epsilon):
    """Integrate the outputs of all coordinates but the last, whose profile is in closed form."""
    first, *rest = ratios
    if not rest:
        if epsilon < -first:
            return 1 - math.exp(epsilon)
        return max(1 - math.exp((epsilon - first) / 2), 0.0)

    def inner(x):
        loss = abs(x - first) - abs(x)
        return math.exp(-abs(x)) / 2 * true_delta(rest, epsilon - loss)

    sums = np.array([np.dot(signs, rest) for signs in product([-1, 1], repeat=len(rest))])
    ends = sorted({0.0, first, *np.clip((first - epsilon + sums) / 2, 0, first).tolist()})
    atoms = 0.5 * true_delta(rest, epsilon - first)
    atoms += 0.5 * math.exp(-first) * true_delta(rest, epsilon + first)
    return atoms + sum(quad(inner, a, b, epsabs=1e-8)[0] for a, b in pairwise(ends))
