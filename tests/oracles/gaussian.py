"""The profile of Gaussian noise, by Gauss-Legendre quadrature of its densities."""

import math

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(100)


def log_density(covariance, points):
    """Return the logarithm of the density of the noise, up to a constant."""
    return -np.einsum("...i,ij,...j->...", points, np.linalg.inv(covariance), points) / 2


def true_delta(covariance, shift, epsilon):
    """Integrate (p - e^eps q)_+ for noise around zero and around the shift.

    Along one axis the integral is split where the integrand becomes zero, so that all is smooth.
    """
    pull = np.linalg.solve(covariance, shift)
    last = int(np.argmax(np.abs(pull) * np.sqrt(np.diag(covariance))))
    others = [i for i in range(len(shift)) if i != last]
    reach = 8.0 * np.sqrt(np.diag(covariance))
    low, high = np.minimum(0, shift) - reach, np.maximum(0, shift) + reach
    points, weights = np.zeros((1, len(shift))), np.ones(1)
    for i in others:
        points = np.repeat(points, NODES.size, axis=0)
        half = (high[i] - low[i]) / 2
        points[:, i] = np.tile(low[i] + half * (NODES + 1), weights.size)
        weights = np.outer(weights, half * WEIGHTS).ravel()

    def at(values):
        """Return p and e^eps q, in logarithms, for given numbers on the last axis."""
        full = np.repeat(points[:, None, :], values.shape[1], axis=1)
        full[:, :, last] = values
        return log_density(covariance, full), epsilon + log_density(covariance, full - shift)

    ends = np.tile([low[last], high[last]], (weights.size, 1))
    log_p, log_q = at(ends)
    first, second = (log_p - log_q).T  # affine in between
    root = np.clip(ends[:, 0] + (ends[:, 1] - ends[:, 0]) * first / (first - second), *ends.T)
    falling = first > second
    start, end = np.where(falling, ends[:, 0], root), np.where(falling, root, ends[:, 1])
    half = (end - start)[:, None] / 2
    log_p, log_q = at(start[:, None] + half * (NODES + 1))
    constant = math.sqrt((2 * math.pi) ** len(shift) * np.linalg.det(covariance))
    inner = (np.maximum(np.exp(log_p) - np.exp(log_q), 0) * half) @ WEIGHTS
    return float(weights @ inner) / constant
