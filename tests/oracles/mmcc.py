"""MMCC as printed (Choquette-Choo et al. 2024, Algorithms 1 and 2), by enumeration: an oracle."""

import itertools
import math

import numpy as np
from scipy.special import expit, logit, ndtri

from taut.accounting import mixture_of_gaussians, zero


def subset_sums(values, rates):
    """Return all sums of independent coins with their probabilities, equal sums merged."""
    sums = {0.0: 1.0}
    for value, rate in zip(values, rates, strict=True):
        new = {}
        for total, mass in sums.items():
            for drawn, chance in ((0, 1 - rate), (1, rate)):
                at = round(total + drawn * value, 12)
                new[at] = new.get(at, 0.0) + mass * chance
        sums = new
    return sums


def tail_sum(values, rate, share):
    """Return the least s with P[sum > s] <= share."""
    law = sorted(subset_sums(values, [rate] * len(values)).items(), reverse=True)
    beyond = 0.0
    for value, mass in law:
        if beyond + mass > share:
            return value
        beyond += mass
    return 0.0


def conditional_rates(matrix, rate, sigma, unlikely):
    """Return p-tilde of every entry, and the normal quantile that was used."""
    rows, size = matrix.shape
    pairs = np.count_nonzero(matrix) - size
    rates = np.full(matrix.shape, rate)
    share = unlikely / (2 * pairs)
    far = -ndtri(share)
    for i, j in itertools.product(range(rows), range(size)):
        past = matrix[:i]
        if matrix[i, j] > 0 and past[:, j].any():
            inner = past.T @ past[:, j]
            most = tail_sum(inner[inner > 0], rate, share)
            norm = np.linalg.norm(past[:, j])
            surprise = far * norm / sigma + (2 * most - norm**2) / (2 * sigma**2)
            rates[i, j] = expit(logit(rate) + surprise)
    return rates, far


def published_epsilon(matrix, rate, sigma, unlikely, delta, direction):
    """Return epsilon of the printed algorithm, rows in the order of their release."""
    rates, _ = conditional_rates(matrix, rate, sigma, unlikely)
    total = zero(adjacency=direction)
    for row, chances in zip(matrix, rates, strict=True):
        law = subset_sums(row[row > 0], chances[row > 0])
        shifts, masses = zip(*sorted(law.items()), strict=True)
        total = total + mixture_of_gaussians(
            np.array(masses) / math.fsum(masses), shifts, sigma, adjacency=direction
        )
    return total.epsilon(delta)
