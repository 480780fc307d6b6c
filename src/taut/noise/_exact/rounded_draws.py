"""Ideal noise by itself, rounded to a grid: what mechanisms compare with, and never release."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from taut._base import validate
from taut.noise._exact.grid_values import GridValue, Integers
from taut.noise._exact.release import STANDARD_LAPLACE, STANDARD_NORMAL, noisy_steps
from taut.noise._random.sources import RandomSource, default_generator

__all__ = ["rounded_noise"]

_UNITS = {"gaussian": STANDARD_NORMAL, "laplace": STANDARD_LAPLACE, "exponential": STANDARD_LAPLACE}
_MOST_STEPS = 2.0**30  # of the scale: doubles then leave fewer than one draw in 250 to integers
_MOST_ROUNDED = 10**9  # integers: eight gigabytes, and minutes
_PORTION = 1 << 16  # numbers drawn at a time: arrays stay in the cache


def rounded_noise(
    kind: str, scale: float, size: int = 1, *, generator: RandomSource | None = None
) -> Integers:
    """Return ideal, real-valued noise, rounded to the nearest integers, as it is distributed.

    A comparison of whole numbers with it is a comparison with ideal noise, off by half a step: the
    probabilities are those of the normal or Laplace distribution itself, without an error of
    doubles.

    Args:
        kind: name of the distribution: ``"gaussian"``, ``"laplace"``, or ``"exponential"``, which
            is never negative.
        scale: standard deviation, or scale, in units of the integers, at most 2^30.
        size: how many integers, at most 10^9.
        generator: source of randomness, by default the secure one.

    **Guarantee**: independent draws, exactly distributed as rounded real noise, if the bits of
    ``generator`` are uniform (docs/theory/rounding.md).

    Raises:
        ValueError: for another kind, a scale that is not positive or above 2^30, or a size that is
            negative or above 10^9.

    Example:
        >>> from taut.noise import rounded_noise
        >>> noise = rounded_noise("exponential", 1000.0, size=4)
        >>> noise.dtype.name, bool((noise >= 0).all())
        ('int64', True)
    """
    if kind not in _UNITS:
        raise ValueError(f"kind must be one of {', '.join(_UNITS)}, got kind={kind!r}")
    if not validate.positive(scale=scale) <= _MOST_STEPS:
        raise ValueError(f"scale must be at most 2^30 steps, got scale={scale!r}; take longer ones")
    count = validate.integer(size=size)
    if count > _MOST_ROUNDED:
        raise ValueError(
            f"size must be at most {_MOST_ROUNDED:,}, got size={size!r}; draw a part at a time"
        )
    source = default_generator() if generator is None else generator
    if not isinstance(source, RandomSource):
        raise validate.WrongType(f"generator must be a RandomSource, got generator={generator!r}")
    steps = np.empty(count, dtype=np.int64)
    for start in range(0, steps.size, _PORTION):
        part = steps[start : start + _PORTION]
        ratios = np.full(part.size, float(scale))
        part[:] = noisy_steps(_zeros(part.size), ratios, _UNITS[kind], source)
    # Rounding commutes with the sign but at halves, which ideal noise never hits.
    return np.abs(steps) if kind == "exponential" else steps


def _zeros(size: int) -> GridValue:
    return GridValue(np.zeros(size, dtype=np.int64), np.zeros(size), lambda _: Fraction(0))
