"""Methods of private regression by name, and the one that is taken if none is named."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from taut.estimators._regression.method import Maker, Method
from taut.estimators._regression.methods.adassp import adassp
from taut.estimators._regression.methods.automatic import automatic
from taut.estimators._regression.methods.boosted import boosted_adassp
from taut.estimators._regression.methods.coordinate_descent import coordinate_descent
from taut.estimators._regression.methods.output_perturbation import output_perturbation
from taut.estimators._regression.methods.posterior import ada_ops, ops_balanced, ops_ptr
from taut.estimators._regression.methods.refined import posterior_mean, refined
from taut.estimators._regression.methods.ssp import ssp
from taut.estimators._regression.methods.zero_predictor import zero_predictor
from taut.estimators._regression.problem import Setting

__all__ = ["METHODS", "choose"]

_MANY_COLUMNS = 1000  # beyond them a belief, of which there are several, takes minutes to update

METHODS: Mapping[str, Maker] = MappingProxyType(
    {
        "refined": refined,
        "posterior_mean": posterior_mean,
        "coordinate_descent": coordinate_descent,
        "ssp": ssp,
        "adassp": adassp,
        "boosted_adassp": boosted_adassp,
        "output_perturbation": output_perturbation,
        "ada_ops": ada_ops,
        "ops_balanced": ops_balanced,
        "ops_ptr": ops_ptr,
        "zero": zero_predictor,
    }
)
"""What makes a method, by the name that people give."""


def choose(name: str, setting: Setting, epsilon: float, delta: float) -> tuple[str, Method, str]:
    """Return the name of a method, the method for a setting and a budget, and why it is this one.

    Raises:
        ValueError: if there is no method of that name.
    """
    if name == "auto" and setting.columns > _MANY_COLUMNS:
        why = f"beliefs about more than {_MANY_COLUMNS} coefficients take too long"
        return "adassp", adassp(setting, epsilon, delta), why
    if name == "auto":
        return name, automatic(setting, epsilon, delta), "near the least error on real data"
    if name not in METHODS:
        names = ", ".join(map(repr, ("auto", *METHODS)))
        raise ValueError(f"method must be one of {names}, got method={name!r}")
    return name, METHODS[name](setting, epsilon, delta), "asked for"
