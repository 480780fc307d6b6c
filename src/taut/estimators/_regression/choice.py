"""Methods of private regression by name, and the one that is taken if none is named."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from taut.estimators._regression.method import Maker, Method
from taut.estimators._regression.methods.ssp import ssp
from taut.estimators._regression.methods.zero_predictor import zero_predictor
from taut.estimators._regression.problem import Setting

__all__ = ["METHODS", "choose"]

METHODS: Mapping[str, Maker] = MappingProxyType({"ssp": ssp, "zero": zero_predictor})
"""What makes a method, by the name that people give."""
_AUTO = "ssp"


def choose(name: str, setting: Setting, epsilon: float, delta: float) -> tuple[str, Method]:
    """Return the name of a method, and the method for a setting and a budget.

    Raises:
        ValueError: if there is no method of that name.
    """
    chosen = _AUTO if name == "auto" else name
    if chosen not in METHODS:
        names = ", ".join(map(repr, ("auto", *METHODS)))
        raise ValueError(f"method must be one of {names}, got method={name!r}")
    return chosen, METHODS[chosen](setting, epsilon, delta)
