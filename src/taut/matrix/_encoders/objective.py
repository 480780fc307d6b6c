"""The error of Toeplitz encoders as a function of their coefficients, with its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taut._base.arrays import Vector
from taut.matrix._participation import Participation
from taut.matrix._series import correlation, product
from taut.matrix._workloads import Workload

__all__ = ["Objective", "ToeplitzObjective", "check_goal", "minimised"]

Objective = Callable[[Vector], tuple[float, Vector]]
"""From the unknowns of a search to what is minimised and its derivatives."""

_GOALS = ("root_mean_square", "maximum")
_MOST_ITERATIONS = 500  # of a quasi-Newton method in at most some hundred unknowns
_SETTLED_GRADIENT = 1e-7  # of the logarithm of the error, which is then known to some 1e-12
_FIRST_STEP = 0.1  # length of a search's first step: a longer one lands where inverses overflow


@dataclass(frozen=True)
class ToeplitzObjective:
    """The logarithm of squared error times squared sensitivity, of which a bound is taken.

    With several participations coefficients that increase somewhere count as large as the largest
    that follows: the bound that `sensitivity` has for them.

    Attributes:
        workload: answers that are wanted; learning rates are taken for equal.
        participation: rule about the steps of one example.
        goal: error that is minimised, "root_mean_square" or "maximum".
    """

    workload: Workload
    participation: Participation
    goal: str

    def __post_init__(self) -> None:
        """Check the goal."""
        check_goal(self.goal)

    def value(self, coefficients: Vector, inverse: Vector) -> tuple[float, Vector, Vector]:
        """Return the objective, and its gradients by the coefficients of C and of its inverse.

        The two are taken for independent: a caller adds what the one does to the other.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return self._value(coefficients, inverse)

    def _value(self, coefficients: Vector, inverse: Vector) -> tuple[float, Vector, Vector]:
        workload = self.workload.coefficients()
        decoder = product(workload, inverse)
        size = decoder.size
        weights = (
            np.arange(size, 0, -1) / size if self.goal == "root_mean_square" else np.ones(size)
        )
        error = float(weights @ decoder**2)
        by_inverse = 2 * correlation(weights * decoder, workload) / error
        square, by_coefficients = self._worst_square(coefficients)
        return float(np.log(error) + np.log(square)), by_coefficients / square, by_inverse

    def _worst_square(self, coefficients: Vector) -> tuple[float, Vector]:
        """Return the squared norm of the sum of the worst columns, and its gradient."""
        size = coefficients.size
        gap = self.participation.least_gap(size)
        if np.trim_zeros(coefficients, "b").size <= gap:  # orthogonal columns: all scale alike
            return float(coefficients @ coefficients), 2 * coefficients
        later = np.abs(coefficients)[::-1]
        envelope = np.maximum.accumulate(later)[::-1]
        new = np.append(True, later[1:] > np.maximum.accumulate(later)[:-1])
        source = size - 1 - np.maximum.accumulate(np.where(new, np.arange(size), 0))[::-1]
        total, by_envelope = np.zeros(size), np.zeros(size)
        starts = [i * gap for i in range(self.participation.most(size))]
        for start in starts:
            total[start:] += envelope[: size - start]
        for start in starts:
            by_envelope[: size - start] += 2 * total[start:]
        gradient = np.zeros(size)
        np.add.at(gradient, source, by_envelope)
        return float(total @ total), gradient * np.sign(coefficients)


def check_goal(goal: str) -> None:
    """Refuse goals that are not known."""
    if goal not in _GOALS:
        raise ValueError(f"goal must be 'root_mean_square' or 'maximum', got goal={goal!r}")


def minimised(function: Objective, start: Vector) -> Vector:
    """Return where a smooth function is least, near ``start``, by a quasi-Newton method."""
    from scipy.optimize import minimize

    # The method's first step is one unit long, whatever the slope.
    def scaled(unknown: Vector) -> tuple[float, Vector]:
        value, gradient = function(_FIRST_STEP * unknown)
        return value, _FIRST_STEP * gradient

    found = minimize(
        scaled,
        start / _FIRST_STEP,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": _MOST_ITERATIONS,
            "maxcor": 30,
            "gtol": _SETTLED_GRADIENT * _FIRST_STEP,
            "ftol": 1e-14,
        },
    )
    best: Vector = _FIRST_STEP * found.x if found.fun <= function(start)[0] else start
    return best
