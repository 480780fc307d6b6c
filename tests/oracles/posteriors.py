"""Ridge posteriors as normal distributions, compared by quadrature: no formula of the package."""

from __future__ import annotations

import mpmath
import numpy as np
from scipy.integrate import trapezoid


def hockey_stick(first, second, epsilon, *, nodes=400_001):
    """Return the integral of (p - exp(epsilon) q)+ for two normal laws, (mean, deviation) each."""
    ends = [m + s * w for m, s in (first, second) for w in (-14.0, 14.0)]
    x = np.linspace(min(ends), max(ends), nodes)
    p, q = (
        np.exp(-(((x - m) / s) ** 2) / 2) / (s * np.sqrt(2 * np.pi)) for m, s in (first, second)
    )
    return float(trapezoid(np.maximum(p - np.exp(epsilon) * q, 0.0), x))


def exact_profile(shift, growth, epsilon, *, removal=False, digits=60):
    """Return the profile of N(0, 1) against N(shift, 1 / (1 + growth)), to many digits."""
    with mpmath.workdps(digits):
        m, mu, e = (mpmath.mpf(one) for one in (shift, growth, epsilon))
        s = 1 / mpmath.sqrt(1 + mu)

        def loss(x):
            value = mpmath.log(s) + ((x - m) / s) ** 2 / 2 - x**2 / 2
            return -value if removal else value

        level = -e if removal else e
        a, b = mu / 2, -m * (1 + mu)
        c = m**2 * (1 + mu) / 2 + mpmath.log(s) - level
        root = b**2 - 4 * a * c
        if root <= 0:
            return mpmath.mpf(0)
        low, high = ((-b - sign * mpmath.sqrt(root)) / (2 * a) for sign in (1, -1))
        assert abs(loss(low) - e) < mpmath.mpf(10) ** -20

        def inside(mean, deviation):
            ends = ((end - mean) / deviation for end in (low, high))
            left, right = ends
            return (mpmath.erf(right / mpmath.sqrt(2)) - mpmath.erf(left / mpmath.sqrt(2))) / 2

        def outside(mean, deviation):
            return mpmath.ncdf((low - mean) / deviation) + mpmath.ncdf((mean - high) / deviation)

        if removal:
            return inside(m, s) - mpmath.exp(e) * inside(0, 1)
        return outside(0, 1) - mpmath.exp(e) * outside(m, s)


def posterior(rows, targets, ridge, precision):
    """Return mean and deviation of the posterior of a regression on one feature."""
    x, y = np.asarray(rows, dtype=float), np.asarray(targets, dtype=float)
    weight = float(x @ x) + ridge
    return float(x @ y) / weight, 1 / np.sqrt(precision * weight)
