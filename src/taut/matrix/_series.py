"""Power series, cut off: lower-triangular Toeplitz matrices multiply and divide as they do."""

from __future__ import annotations

import numpy as np

from taut._base.arrays import Vector

__all__ = ["correlation", "geometric", "padded", "product", "quotient", "root"]

# Shorter factors are multiplied term by term, so that small coefficients keep their digits; a
# transform errs by a rounding of the largest.
_SHORT_FACTOR = 1024


def geometric(share: float, size: int) -> Vector:
    """Return the coefficients of 1 / (1 - share x)."""
    powers: Vector = share ** np.arange(float(size))
    return powers


def root(share: float, power: float, size: int) -> Vector:
    """Return the coefficients of (1 - share x)^power, each from the one before."""
    k = np.arange(1.0, size)
    coefficients: Vector = np.cumprod(np.append(1.0, share * (k - 1 - power) / k))
    return coefficients


def padded(series: Vector, size: int) -> Vector:
    """Return the first ``size`` coefficients, zeros where there are fewer."""
    result = np.zeros(size)
    kept = series[:size]
    result[: kept.size] = kept
    return result


def product(left: Vector, right: Vector) -> Vector:
    """Return the product of two series of one length, cut to that length."""
    from scipy.signal import fftconvolve, lfilter

    first, second = (np.trim_zeros(part, "b") for part in (left, right))
    if first.size == 0 or second.size == 0:
        return np.zeros(left.size)
    short, long = (first, right) if first.size < second.size else (second, left)
    if short.size <= _SHORT_FACTOR:
        filtered: Vector = lfilter(short, [1.0], long)
        return filtered
    whole: Vector = fftconvolve(left, right)[: left.size]
    return whole


def quotient(numerator: Vector, denominator: Vector) -> Vector:
    """Return numerator / denominator, cut to the length of the numerator.

    The denominator must begin with a number other than zero.
    """
    from scipy.signal import lfilter

    divided: Vector = lfilter([1.0], np.trim_zeros(denominator, "b"), numerator)
    return divided


def correlation(left: Vector, right: Vector) -> Vector:
    """Return sum_i left[i] right[i - t] for every t >= 0: the transpose of a product."""
    return product(left[::-1], right)[::-1]
