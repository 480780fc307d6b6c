"""Divergences of two laws that are given by their masses, or by densities on a grid."""

import math

import numpy as np


def hockey_stick(p, q, threshold):
    """Return the sum of (p - threshold q)_+ over outcomes of masses ``p`` and ``q``."""
    return np.maximum(np.asarray(p) - threshold * np.asarray(q), 0.0).sum()


def divergence(p, q, order):
    """Return the Renyi divergence of masses ``p`` from masses ``q``."""
    return math.log(float((p**order * q ** (1 - order)).sum())) / (order - 1)


def gridded_divergence(log_p, log_q, order, cell):
    """Return the Renyi divergence of densities at the points of a grid with cells of that size."""
    terms = order * log_p + (1 - order) * log_q
    peak = terms.max()
    return (peak + math.log(np.exp(terms - peak).sum()) + math.log(cell)) / (order - 1)
