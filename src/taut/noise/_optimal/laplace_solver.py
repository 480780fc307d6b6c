"""The least Laplace noise for finitely many vectors, with a certified gap.

The problem: x = 1 / scale of least sum of load_i x_i^-p with A x <= 1, A the absolute values of the
vectors. For weights y of the vectors that sum to one and t = Aᵀ y, Hölder's inequality proves that
no x goes below (sum of t_i^q load_i^(1 - q))^(p + 1), q = p / (p + 1), and the x that reaches
it for t alone, scaled until A x <= 1, is feasible. So a poor search costs noise, never privacy.
"""

from __future__ import annotations

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut.noise._optimal.finite_solver import step_within

__all__ = ["least_laplace"]

_MULTIPLICATIVE_STEPS = 2000  # the best so far is kept with its bound, so any number is sound
_STEPS_BEFORE_NEWTON = 20  # near enough for Newton's method to converge
_NEWTON_STEPS = 80  # slack falls to a tenth in each; the gap is checked, not assumed
_NEWTON_VECTORS = 3000  # whose square is the table of a Newton step: 72 MB


def least_laplace(
    lengths: Matrix, load: Vector, p: float, *, tolerance: float = 1e-9
) -> tuple[Vector, float, float]:
    """Return scales with A (1 / scale) <= 1 of least sum(load * scale^p), that sum, and a bound.

    Args:
        lengths: the table A, one row per vector, entries at least zero, no column of zeros.
        load: positive weights of the coordinates.
        p: the power, above zero.
        tolerance: the relative gap at which the search ends.
    """
    unit = lengths / lengths.max(axis=0)  # scales follow the units of their coordinates
    costs = load * lengths.max(axis=0) ** p
    weights = np.full(len(unit), 1 / len(unit))
    best = _proven(unit, costs, p, weights)
    for step in range(_MULTIPLICATIVE_STEPS):
        if best[1] <= best[2] * (1 + tolerance):
            break
        gains = unit @ _inverses(unit, costs, p, weights)
        weights = weights * gains
        # Above zero, so that a weight that faded too early can grow again.
        weights = np.maximum(weights / weights.sum(), 1e-18)
        if step == _STEPS_BEFORE_NEWTON and len(unit) <= _NEWTON_VECTORS:
            best = min(best, _newton(unit, costs, p, weights, tolerance), key=lambda b: b[1] / b[2])
        best = min(best, _proven(unit, costs, p, weights), key=lambda b: b[1] / b[2])
    return best[0] * lengths.max(axis=0), best[1], best[2]


def _inverses(unit: Matrix, costs: Vector, p: float, weights: Vector) -> Vector:
    """Return the x of the weights, up to a factor."""
    t = np.maximum(weights @ unit, 1e-300)  # not divided by zero; any weights prove a bound
    inverses: Vector = (costs / t) ** (1 / (p + 1))
    return inverses


def _proven(unit: Matrix, costs: Vector, p: float, weights: Vector) -> tuple[Vector, float, float]:
    share = weights / weights.sum()
    x = _inverses(unit, costs, p, share)
    scales = float((unit @ x).max()) / x
    q = p / (p + 1)
    bound = float(((share @ unit) ** q * costs ** (1 - q)).sum()) ** (p + 1)
    return scales, float(costs @ scales**p), bound


def _newton(
    unit: Matrix, costs: Vector, p: float, weights: Vector, tolerance: float
) -> tuple[Vector, float, float]:
    """Maximise (sum of t^q costs^(1 - q)) / q - sum(y) over y >= 0, by an interior-point method.

    Its solution is a multiple of the weights: slack_k = 1 - (A x)_k >= 0, y_k slack_k -> 0.
    """
    # x is of degree -1 / (p + 1) in y: scale y so that the weighted mean of A x is one.
    y = weights / weights.sum()
    y = y * float(y @ (unit @ _inverses(unit, costs, p, y))) ** (p + 1)
    slack = np.maximum(1 - unit @ _inverses(unit, costs, p, y), 0.1)
    best = _proven(unit, costs, p, y)
    for _ in range(_NEWTON_STEPS):
        x, t = _inverses(unit, costs, p, y), y @ unit
        bend = (unit * (x / t / (p + 1))) @ unit.T
        target = 0.1 * float(y @ slack) / y.size
        scale = np.sqrt(y / slack)
        system = bend * scale[:, None] * scale
        system[np.diag_indices_from(system)] += 1.0
        move = scale * np.linalg.solve(system, scale * (target / y - 1 + unit @ x))
        slack_move = target / y - slack - slack * move / y
        y = y + step_within(y, move) * move
        slack = slack + step_within(slack, slack_move) * slack_move
        found = _proven(unit, costs, p, y)
        best = min(best, found, key=lambda b: b[1] / b[2])
        if best[1] <= best[2] * (1 + tolerance):
            break
    return best
