"""Public arguments of linear models, checked."""

from __future__ import annotations

import numpy as np

from taut._base import validate
from taut._base.arrays import real_numbers

__all__ = ["target_range"]

_LARGEST = 1e29  # of bounds of targets, and one over it the least width: squares stay floats


def target_range(bound: float | tuple[float, float] | None) -> tuple[float, float]:
    """Return the lower and the upper bound of targets.

    Args:
        bound: a bound on their size, or both bounds.
    """
    remedy = "give a public bound on the size of targets, or a lower and an upper one"
    if bound is None:
        raise ValueError(f"target_bound must be given; {remedy}")
    ends = real_numbers(bound, "target_bound")
    if ends.shape == ():
        size = validate.positive(target_bound=bound)
        ends = np.array([-size, size])
    if ends.shape != (2,) or not -_LARGEST <= ends[0] < ends[1] <= _LARGEST:
        raise ValueError(
            f"target_bound must be ordered and within {_LARGEST:g}, got target_bound={bound!r}; "
            f"{remedy}"
        )
    if ends[1] / 2 - ends[0] / 2 < 1 / _LARGEST:
        raise ValueError(
            f"target_bound must be at least {2 / _LARGEST:g} wide, got target_bound={bound!r}; "
            "count in other units"
        )
    return float(ends[0]), float(ends[1])
