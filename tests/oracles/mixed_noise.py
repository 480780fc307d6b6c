"""Normal noise plus uniform noise, by its density and the trapezoid rule."""

import math

import numpy as np
from scipy.special import log_ndtr


def log_density(x, sigma, width):
    """Return the logarithm of the density of normal noise plus uniform noise of that width."""
    low, high = (log_ndtr(-(np.abs(x) + side * width / 2) / sigma) for side in (1, -1))
    return high + np.log(-np.expm1(low - high)) - math.log(width)


def log_moment(k, shift, sigma, width):
    """Return the logarithm of E (p/q)^k under q, where p is q moved by ``shift``."""
    step = sigma / 25
    x = np.arange(-width / 2 - 12 * sigma, width / 2 + k * shift + 12 * sigma, step)
    exponent = k * log_density(x - shift, sigma, width) + (1 - k) * log_density(x, sigma, width)
    return float(np.logaddexp.reduce(exponent)) + math.log(step)
