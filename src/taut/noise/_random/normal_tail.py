"""The tail of the normal distribution to any number of bits, between integers that enclose it.

Only integers are used, and every step is rounded down for the lower and up for the upper end, so
that the enclosure is a proof. It is asked for a few times in a million draws.
"""

from __future__ import annotations

import math
from fractions import Fraction

from taut.noise._random.sources import exp_bounds

__all__ = ["normal_tail_bounds", "pi_bounds"]

_TAIL_GUARD_BITS = 64  # beyond those asked for: the series has far fewer than 2^60 terms to round


def normal_tail_bounds(point: Fraction, bits: int) -> tuple[int, int]:
    """Return integers with low <= P(|Z| > point) 2^bits < high + 1, for Z normal and point > 0.

    The mass in between is 2 phi(point) times the sum of point^(2n+1) / (1 3 5 ... (2n+1)), whose
    terms are all positive (Abramowitz and Stegun 1964, 26.2.11).
    """
    half_square = point**2 / 2
    if half_square >= bits:  # the tail is at most exp(-half_square)
        return 0, 0
    # The sum is about as large as exp(half_square), by which errors of the factor are multiplied.
    precision = bits + math.ceil(1.5 * half_square) + _TAIL_GUARD_BITS
    least, most = _odd_series(point, precision)
    small, large = exp_bounds(half_square, precision)
    lower, upper = _root_of_two_over_pi(precision)
    inside_low = (lower * small * least) >> (2 * precision)
    inside_high = -((-upper * (large + 1) * most) >> (2 * precision))
    one, shift = 1 << precision, precision - bits
    return max(one - inside_high, 0) >> shift, (one - inside_low) >> shift


def pi_bounds(bits: int) -> tuple[int, int]:
    """Return integers with low <= pi 2^bits <= high, by Machin's formula."""
    precision = bits + 16
    fifth, fifth_slack = _arctan_of_inverse(5, precision)
    other, other_slack = _arctan_of_inverse(239, precision)
    centre, slack = 16 * fifth - 4 * other, 16 * fifth_slack + 4 * other_slack
    return (centre - slack) >> 16, -((-centre - slack) >> 16)


def _odd_series(point: Fraction, precision: int) -> tuple[int, int]:
    """Enclose the sum of point^(2n+1) / (2n+1)!!, in units of 2^-precision."""
    unit = 1 << precision
    low, high = math.floor(point * unit), math.ceil(point * unit)
    square = point**2
    square_low, square_high = math.floor(square * unit), math.ceil(square * unit)
    least = most = 0
    odd = 1
    while True:
        least, most = least + low, most + high
        odd += 2
        if high <= 1 and odd * unit > 2 * square_high:
            # From here on terms fall by half or more: together they are at most the last one.
            return least, most + high
        low = ((low * square_low) >> precision) // odd
        high = -(((-high * square_high) >> precision) // odd)


def _root_of_two_over_pi(precision: int) -> tuple[int, int]:
    low, high = pi_bounds(precision)
    squared = 2 << (3 * precision)
    return math.isqrt(squared // high), math.isqrt(squared // low) + 1


def _arctan_of_inverse(n: int, precision: int) -> tuple[int, int]:
    """Return arctan(1 / n) in units of 2^-precision, and how far it can be off."""
    power = (1 << precision) // n
    total, odd, sign = 0, 1, 1
    while power:
        total += sign * (power // odd)
        power //= n * n
        odd, sign = odd + 2, -sign
    # Every power is off by less than 2 and every quotient by less than 3; what is cut off
    # alternates and is smaller than its first term, which is below 2 / odd.
    return total, 3 * odd
