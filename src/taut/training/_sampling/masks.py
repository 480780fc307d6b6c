"""Masks: which coordinates of a clipped gradient take part in a step, drawn from exact bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from taut._base import validate
from taut.noise import RandomSource, SeededForExperiments

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FINEST", "Masks", "dyadic_rate"]

FINEST = 16
"""Rates are multiples of 2 to the power of minus this."""

_PORTION = 1 << 18  # coordinates masked at a time: bits and their floats stay in the cache


def dyadic_rate(**argument: object) -> float:
    """Return the argument, a rate above 0 and below 1 that a few random bits can draw exactly.

    Raises:
        ValueError: if it is no multiple of 2^-16, naming the nearest that are.
    """
    ((name, value),) = argument.items()
    rate = validate.probability(**argument)
    if not 0 < rate < 1:
        raise ValueError(
            f"{name} must lie between 0 and 1, got {name}={value!r}; to keep all coordinates, use "
            "PoissonSampling"
        )
    units = rate * 2.0**FINEST
    if not units.is_integer():
        below, above = max(math.floor(units), 1), min(math.ceil(units), 2**FINEST - 1)
        raise ValueError(
            f"{name} must be a multiple of 2^-{FINEST}, so that random bits draw exactly what is "
            f"accounted for, got {name}={value!r}; the nearest are {below}/2**{FINEST} and "
            f"{above}/2**{FINEST}"
        )
    return rate


class Masks:
    """Keeps every coordinate of every row with probability `rate`, and sets the others to zero.

    Args:
        rate: a multiple of 2^-16.
        source: where bits come from; those of other processes must be independent.

    **Guarantee**: all coordinates of all rows of all calls are kept independently, with exactly
    the given probability. Masks are kept nowhere.
    """

    def __init__(self, rate: float, source: RandomSource) -> None:
        self.rate = dyadic_rate(rate=rate)
        self._source = source
        fraction = Fraction(self.rate)
        planes = fraction.denominator.bit_length() - 1
        # Binary digits of the rate after the point, the last one, which is a one, first.
        self._digits = [bool(fraction.numerator >> place & 1) for place in range(planes)]

    def cut(self, rows: Tensor) -> Tensor:
        """Set coordinates that do not take part to zero, in place; return the rows."""
        flat = rows.view(-1)
        for start in range(0, flat.numel(), _PORTION):
            part = flat[start : start + _PORTION]
            part.mul_(part.new_tensor(self._bits(part.numel())))
        return rows

    def _bits(self, count: int) -> NDArray[np.uint8]:
        """Return `count` bits, each one with probability `rate`.

        A uniform number in [0, 1) is below the rate if at its first binary digit that differs it
        has a zero. Decided from the last digit of the rate upwards, for eight numbers per byte.
        """
        size = -(-count // 8)
        below = np.zeros(size, dtype=np.uint8)
        for digit in self._digits:
            plane = np.frombuffer(self._source.bytes(size), dtype=np.uint8)
            below = plane | below if digit else plane & below
        return np.unpackbits(below, count=count)

    # --- experiments that go on ----------------------------------------------------------------

    def state_dict(self) -> dict[str, Any] | None:
        """Return where a seeded source stands; a secure one has nothing to keep."""
        seeded = isinstance(self._source, SeededForExperiments)
        return self._source.state_dict() if seeded else None  # type: ignore[attr-defined]

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Go on from where `state_dict` was taken."""
        if state is not None and isinstance(self._source, SeededForExperiments):
            self._source.load_state_dict(state)
