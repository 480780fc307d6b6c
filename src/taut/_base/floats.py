"""What floating point can hide: errors of computed numbers, and factors that cover them.

An ``ERROR`` is a small number, to be multiplied by a magnitude and added; a factor is near one, to
be multiplied by. No name here means both.
"""

from __future__ import annotations

import numpy as np

from taut._base.arrays import Vector

__all__ = ["ALIKE", "DOWN", "RELATIVE_ERROR", "UP", "log_expm1"]


RELATIVE_ERROR = 8 * float(np.finfo(np.float64).eps)
"""Bound on the relative error of one evaluation of a special function and one subtraction.

exp, log, expm1, log1p, erfcx and gammaln of NumPy and SciPy are within 4 units in the last place;
each further operation adds half of one, so eight leave room for several. Normal tails are off by
more, the further out the more: `accounting._pairs.gaussian.tail_error` says by how much. Sums of
many terms multiply the error by their number, or by their total size.
"""

UP = 1 + RELATIVE_ERROR
"""Factor that makes a computed number, at most ``RELATIVE_ERROR`` off, not too small."""

DOWN = 1 - RELATIVE_ERROR
"""Factor that makes such a number not too large."""

ALIKE = 1e-12
"""Relative difference up to which two bounds count as one: thousands of roundings, and no digit
that is printed. It decides which of two sound ways is taken, never how far one goes."""


def log_expm1(x: Vector) -> Vector:
    """Return log(exp(x) - 1) for x >= 0 without overflow or cancellation."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(x > 30.0, x + np.log1p(-np.exp(-x)), np.log(np.expm1(np.minimum(x, 31.0))))
