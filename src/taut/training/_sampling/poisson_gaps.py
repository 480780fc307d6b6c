"""Geometric numbers, exactly: the gaps between the members of a Poisson sample.

A gap G has P(G >= k) = (1 - rate)^k, so G = floor(log U / log(1 - rate)) for a uniform U. In
floating point that is right unless the quotient lies within its error of an integer; then, and only
then, further bits of U are drawn and the quotient is computed with as many digits as it takes.
"""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from taut.noise import RandomSource

__all__ = ["geometric_gaps"]

_WORD = 64
_ROUNDING = 2.0**-49  # several units in the last place: of a logarithm, of a quotient


def geometric_gaps(rate: float, most: int, size: int, source: RandomSource) -> NDArray[np.int64]:
    """Return independent min(G, most), with P(G >= k) = (1 - rate)^k for the rate as it is.

    Args:
        rate: sampling rate, in (0, 1), taken as the rational number that the float is.
        most: where gaps are cut off; at most 2^46, so that floats hold them.
        size: how many.
        source: where the bits come from.
    """
    words = source.integers_u64(size)
    floats = words.astype(np.float64)
    decay = -math.log1p(-rate)
    # The uniform number lies between words / 2^64 and (words + 1) / 2^64.
    log = np.log((floats + 0.5) * 2.0**-_WORD)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        quotient = log / -decay
        error = (_ROUNDING * (1 - log) + 1 / floats) / decay
        low, high = np.floor(quotient - error), np.floor(quotient + error)
        undecided = ~((low == high) | (low >= most))
    gaps = np.clip(np.where(undecided, 0.0, low), 0, most).astype(np.int64)
    for i in np.flatnonzero(undecided):
        gaps[i] = _exact_gap(rate, most, int(words[i]), source)
    return gaps


def _exact_gap(rate: float, most: int, cut: int, source: RandomSource) -> int:
    """Return min(G, most) for the uniform number whose first bits are `cut`."""
    bits = _WORD
    while True:
        cut = (cut << _WORD) | int(source.integers_u64(1)[0])
        bits += _WORD
        least = max(_floor_of_quotient(rate, cut + 1, bits, -1), 0)
        if least >= most:
            return most
        if cut > 0 and least == _floor_of_quotient(rate, cut, bits, 1):
            return least


def _floor_of_quotient(rate: float, numerator: int, bits: int, side: int) -> int:
    """Return the floor of log(numerator / 2^bits) / log(1 - rate), moved outwards by its error."""
    # Decimal's logarithm is correctly rounded; 1 - rate and the quotient cost digits of their own.
    lost = 4 * max(0, math.ceil(-math.log10(rate)))
    context = decimal.Context(prec=bits + lost + 60, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
    stay = 1 - Fraction(rate)
    base = context.ln(context.divide(stay.numerator, stay.denominator))
    uniform = context.divide(numerator, 1 << bits)
    quotient = context.divide(context.ln(uniform), base)
    error = context.power(10, -(bits // 4))
    return math.floor(context.add(quotient, context.multiply(side, error)))
