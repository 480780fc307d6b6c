"""Exact output distributions of releases behind a test, and their hockey-stick divergences."""

import itertools
import math

import numpy as np

THRESHOLDS = np.exp(np.concatenate([np.linspace(-6, 6, 49), [0.0, -0.001, 0.001]]))
"""At which profiles are compared: below one as well, since sums of losses need them."""


def whole_noise(epsilon, reach):
    """Return integers up to a reach and the mass of discrete Laplace noise at each."""
    at = np.arange(-reach, reach + 1)
    return at, np.exp(-epsilon * np.abs(at)) * math.tanh(epsilon / 2)


def passing(epsilon, threshold, distance):
    """Return the probability that distance plus discrete Laplace noise reaches a threshold."""
    at, mass = whole_noise(epsilon, math.ceil(threshold + distance + 60 / epsilon))
    return float(mass[distance + at >= threshold].sum())


def laplace_profile(shift, t):
    """Return the divergence of Laplace noise of scale one from the same noise, shifted."""
    x = math.log(t) if t > 0 else -math.inf
    if x > shift:
        return 0.0
    return 1 - t if x < -shift else 1 - math.exp((x - shift) / 2)


def behind_test(one, other, profile, t):
    """Return the divergence of a release behind a test, given both probabilities to pass."""
    refused = max(1 - one - t * (1 - other), 0.0)
    return refused + one * profile(t * other / one)


def discrete(p, q, t):
    """Return the divergence of one dictionary of masses from another."""
    return sum(max(mass - t * q.get(outcome, 0.0), 0.0) for outcome, mass in p.items())


def exchanged(domain, records):
    """Yield all pairs of multisets that differ in one exchanged record, in both orders."""
    for rest in itertools.combinations_with_replacement(domain, records - 1):
        for a, b in itertools.permutations(domain, 2):
            yield (*rest, a), (*rest, b)


def added(domain, most):
    """Yield all pairs of multisets that differ in one added record, in both orders."""
    for records in range(most):
        for rest in itertools.combinations_with_replacement(domain, records):
            for a in domain:
                yield rest, (*rest, a)
                yield (*rest, a), rest
