"""Numbers that leave the range of floating point are refused, with the way out."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from taut._base.validate import WrongType
from taut.errors import InfeasibleBudget
from taut.noise._mechanisms.mechanism import NoiseMechanism
from taut.noise._sets.sets import SensitivitySet

__all__ = ["check_size", "within_floats"]

_LEAST_NORM, _LARGEST_NORM = 1e-70, 1e70  # their fourth powers, times any usual noise, are floats

_LEAST_RADIUS = 1e-300  # of a set in units of noise: shares of it are doubles, and losses not zero

_Given = ParamSpec("_Given")
_Noise = TypeVar("_Noise", bound=NoiseMechanism)


def check_size(sensitivity: object) -> None:
    """Raise unless this is a set whose longest member is of a size that can be squared.

    Raises:
        ValueError: naming the size, and the remedy.
    """
    if not isinstance(sensitivity, SensitivitySet):
        raise WrongType(
            "sensitivity must be a sensitivity set, such as Box(widths), "
            f"got one of the type {type(sensitivity).__name__}"
        )
    with np.errstate(all="ignore"):
        longest = sensitivity.max_l2
    if not _LEAST_NORM <= longest <= _LARGEST_NORM:
        raise ValueError(
            f"sensitivity must have an l2 norm between {_LEAST_NORM:g} and {_LARGEST_NORM:g}, got "
            f"{longest:.3g}; count in other units, and scale the release back"
        )


def within_floats(make: Callable[_Given, _Noise]) -> Callable[_Given, _Noise]:
    """Let a function that makes noise for a set refuse whatever leaves floating point.

    No warning of NumPy and no `ArithmeticError` gets out; an error of the noise that is infinite or
    vanishes is refused as well.
    """

    @wraps(make)
    def checked(*args: _Given.args, **kwargs: _Given.kwargs) -> _Noise:
        if args or "sensitivity" in kwargs:
            check_size(args[0] if args else kwargs["sensitivity"])
        try:
            with np.errstate(all="ignore"):
                noise = make(*args, **kwargs)
                error = noise.error if noise.certificate.radius > _LEAST_RADIUS else math.nan
        except ArithmeticError:
            error = math.nan
        except MemoryError:
            raise ValueError(
                "sensitivity has too many coordinates for the memory of this machine; release "
                "them in parts, each with its share of the budget"
            ) from None
        if not 0 < error < math.inf:
            raise InfeasibleBudget(
                "no noise within floating point does this: its scales, or their error, overflow "
                "or vanish; choose epsilon, weights and power nearer to one, or count in other "
                "units"
            )
        return noise

    return checked
