"""MMCC as published, with the mixture losses of dp-accounting: no package has it ready-made."""

import math

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import expit, logit, ndtri
from scipy.stats import binom

GRID = 1e-4  # of dp-accounting's losses, its default
ROUNDED = 32  # multiples to which entries of a row are rounded up, as the paper suggests


def mmcc_on_dp_accounting(matrix, rate, sigma, delta):
    """Return epsilon of Algorithm 1 with the bound of appendix F.3, rows in order of release."""
    rates = _conditional_rates(matrix, rate, sigma, delta / 2)
    total = None
    for row, chances in zip(matrix, rates, strict=True):
        shifts, masses = _row_law(row, chances, float(matrix.max()) / ROUNDED)
        loss = pld.from_mixture_gaussian_mechanism(
            sigma, shifts, masses, value_discretization_interval=GRID
        )
        total = loss if total is None else total.compose(loss)
    return total.get_epsilon_for_delta(delta / 2)


def _conditional_rates(matrix, rate, sigma, unlikely):
    rows, size = matrix.shape
    share = unlikely / (2 * (np.count_nonzero(matrix) - size))
    far = -ndtri(share)
    rates = np.full(matrix.shape, rate)
    gram = np.zeros((size, size))
    for i in range(rows):
        most = int(binom.isf(share, max(i, 1), rate))
        for j in np.flatnonzero((matrix[i] > 0) & (np.diag(gram) > 0)):
            largest = float(np.sort(gram[j])[::-1][:most].sum())
            own = gram[j, j]
            surprise = far * math.sqrt(own) / sigma + (2 * largest - own) / (2 * sigma**2)
            rates[i, j] = expit(logit(rate) + surprise)
        gram += np.outer(matrix[i], matrix[i])
    return rates


def _row_law(row, chances, unit):
    multiples = np.ceil(row / unit - 1e-9).astype(int)
    law = np.ones(1)
    for multiple, chance in zip(multiples, chances, strict=True):
        if multiple:
            part = np.zeros(multiple + 1)
            part[0], part[-1] = 1 - chance, chance
            law = np.convolve(law, part)
    some = law > 1e-14
    return (unit * np.flatnonzero(some)).tolist(), (law[some] / law[some].sum()).tolist()
