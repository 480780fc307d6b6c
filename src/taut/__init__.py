"""Differential privacy without slack: the least noise for a promise, the tightest provable promise.

A release of private data has a privacy loss; composing releases adds their losses:

    >>> import taut
    >>> step = taut.gaussian(sigma=1.1).poisson(rate=0.01)  # one DP-SGD step
    >>> total = 5_000 * step + 3 * taut.laplace(scale=20)  # training, then three counts
    >>> lower, upper = total.epsilon_bounds(delta=1e-6)
    >>> lower <= upper == total.epsilon(delta=1e-6)  # the upper bound is the number to publish
    True

Here are the names that most programs need, from `taut.accounting`; the rooms hold the rest:

- `taut.accounting`: privacy losses, mechanisms, calibration and budgets;
- `taut.noise`: sensitivity sets, the least noise for them, and secure samplers;
- `taut.matrix`: correlated noise: encoders, their errors, and what they cost;
- `taut.adaptive`: noise that fits the data at hand, and choices that are paid for;
- `taut.statistics`: statistics of tables;
- `taut.estimators`: estimators for scikit-learn;
- `taut.training`: private training with PyTorch;
- `taut.comparison`: ways to train, side by side at equal privacy;
- `taut.audit`: attacks on claims, and published statements recomputed;
- `taut.runs`: training runs from a file;
- `taut.report`: privacy reports;
- `taut.errors`: the exceptions.

Names and rooms are loaded on first use, so that ``import taut`` costs nothing until then.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from taut import errors

if TYPE_CHECKING:
    from taut import accounting as accounting
    from taut import adaptive as adaptive
    from taut import audit as audit
    from taut import cli as cli
    from taut import comparison as comparison
    from taut import estimators as estimators
    from taut import matrix as matrix
    from taut import noise as noise
    from taut import report as report
    from taut import runs as runs
    from taut import statistics as statistics
    from taut import training as training
    from taut.accounting import (
        Adjacency,
        Bounds,
        PrivacyFilter,
        PrivacyLoss,
        PrivacyOdometer,
        approximate,
        calibrate,
        compare_samplers,
        discrete_gaussian,
        discrete_laplace,
        exponential,
        finite,
        from_dp_event,
        from_profile,
        from_rdp,
        gaussian,
        laplace,
        pure,
        randomized_response,
        renyi,
        to_dp_event,
        zero,
    )

__version__ = "0.1.0"

__all__ = [
    "Adjacency",
    "Bounds",
    "PrivacyFilter",
    "PrivacyLoss",
    "PrivacyOdometer",
    "__version__",
    "approximate",
    "calibrate",
    "compare_samplers",
    "discrete_gaussian",
    "discrete_laplace",
    "errors",
    "exponential",
    "finite",
    "from_dp_event",
    "from_profile",
    "from_rdp",
    "gaussian",
    "laplace",
    "pure",
    "randomized_response",
    "renyi",
    "to_dp_event",
    "zero",
]

_ROOMS = (
    "accounting",
    "adaptive",
    "audit",
    "cli",
    "comparison",
    "estimators",
    "matrix",
    "noise",
    "report",
    "runs",
    "statistics",
    "training",
)

if not TYPE_CHECKING:  # a type checker must still refuse names that do not exist

    def __getattr__(name: str) -> object:
        if name in _ROOMS:
            return import_module(f"taut.{name}")
        if name.startswith("_"):  # asked for by tools; not worth loading a room
            raise AttributeError(f"module 'taut' has no attribute {name!r}")
        accounting = import_module("taut.accounting")
        if name in __all__:
            value = getattr(accounting, name)
            globals()[name] = value
            return value
        homes = (accounting, accounting.diagnostics)
        hint = [f"; it is {home.__name__}.{name}" for home in homes if name in home.__all__]
        raise AttributeError("".join([f"module 'taut' has no attribute {name!r}", *hint]))

    def __dir__() -> list[str]:
        return sorted([*__all__, *_ROOMS])
