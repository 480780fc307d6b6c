"""Encoders without Toeplitz structure that have the least mean square error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut._base.floats import RELATIVE_ERROR
from taut.matrix._encoders.dense import BandedEncoder, DenseEncoder
from taut.matrix._encoders.objective import minimised
from taut.matrix._workloads import Workload, refuse_dense

__all__ = ["DenseOptimum", "banded", "optimal_dense"]

_MOST_FIXED_POINTS = 500  # iterations; prefix sums need thirty, steep learning rates a hundred
_HISTORY = 11  # points that an iteration is extrapolated from: more bring nothing
_RELAXATION = 1.9  # of a step, below 2 as it shrinks errors by a factor between zero and one
_DUALITY_GAP = (
    1e-9  # relative, between error and lower bound: more digits than anything is compared by
)


@dataclass(frozen=True, eq=False)
class DenseOptimum:
    """The best encoder for one participation, with the proof that none is better.

    Attributes:
        encoder: lower-triangular matrix.
        root_mean_square: its error at a noise multiplier of one.
        lower_bound: root mean square that no encoder is below, from the dual problem.
    """

    encoder: DenseEncoder
    root_mean_square: float
    lower_bound: float


def optimal_dense(workload: Workload) -> DenseOptimum:
    """Return the encoder with the least root mean square error for one participation.

    The least trace of AᵀA X⁻¹ over X = CᵀC with diagonal at most one is found by the fixed point of
    Denisov, McMahan, Rush, Smith and Thakurta 2022.

    Args:
        workload: answers that are wanted, of at most 4096 steps; 512 take seconds.

    **Guarantee**: for every positive v, 2 tr (V^½ AᵀA V^½)^½ - sum v is at most that trace, by
    duality; the best one seen is the lower bound, with rounding taken off.

    Raises:
        ValueError: beyond 4096 steps.

    Example:
        >>> from taut.matrix import Workload, optimal_dense
        >>> best = optimal_dense(Workload(64))
        >>> round(best.root_mean_square, 4), round(best.lower_bound, 4)
        (2.0999, 2.0999)
    """
    validate.instance(Workload, workload=workload)
    answers = workload.matrix()
    steps = workload.steps
    logs = np.log(np.linalg.norm(answers, axis=0))  # of the multipliers v
    tried: list[Vector] = []
    residuals: list[Vector] = []
    dual, primal, factor = 0.0, math.inf, np.eye(steps)
    for _ in range(_MOST_FIXED_POINTS):
        multipliers, scale = np.exp(logs), np.exp(logs / 2)
        roots, vectors = _singular(answers * scale)
        diagonal = roots @ vectors**2
        dual = max(dual, float(2 * roots.sum() - multipliers.sum()))
        # X = V^-1/2 (...)^1/2 V^-1/2, whose diagonal is one at the fixed point.
        largest = float((diagonal / multipliers).max())
        if float(diagonal.sum()) * largest < primal:
            primal = float(diagonal.sum()) * largest
            factor = np.sqrt(roots / largest)[:, None] * vectors / scale
        if primal - dual <= _DUALITY_GAP * primal:
            break
        tried, residuals = [*tried, logs][-_HISTORY:], [*residuals, np.log(diagonal) - logs]
        residuals = residuals[-_HISTORY:]
        logs = _accelerated(tried, residuals)
    slack = 1 - 64 * steps * RELATIVE_ERROR
    return DenseOptimum(
        _lower_triangle(factor), math.sqrt(primal / steps), math.sqrt(dual * slack / steps)
    )


def _accelerated(tried: list[Vector], residuals: list[Vector]) -> Vector:
    """Return the next point of a fixed-point iteration, extrapolated from the last ones."""
    step = tried[-1] + _RELAXATION * residuals[-1]
    if len(tried) == 1:
        return step
    moves, changes = (np.diff(np.array(part), axis=0).T for part in (tried, residuals))
    # Changes that all but repeat each other are left out: they would magnify rounding.
    weights = np.linalg.lstsq(changes, residuals[-1], rcond=1e-10)[0]
    better: Vector = step - (moves + _RELAXATION * changes) @ weights
    return better


def _singular(matrix: Matrix) -> tuple[Vector, Matrix]:
    """Return singular values and right vectors, in rows; small values keep their digits."""
    from scipy.linalg import svd

    _, values, vectors = svd(matrix, check_finite=False, overwrite_a=True)
    return values, vectors


def _lower_triangle(factor: Matrix) -> DenseEncoder:
    """Return the lower-triangular matrix with the inner products of the columns of a square one."""
    from scipy.linalg import qr

    upper = qr(factor[:, ::-1], mode="r", check_finite=False)[0]
    upper *= np.where(np.diagonal(upper) < 0, -1.0, 1.0)[:, None]
    return DenseEncoder(np.tril(upper[::-1, ::-1]))


def banded(workload: Workload, bands: int) -> BandedEncoder:
    """Return the banded matrix with columns of norm one that has the least mean square error.

    It serves one participation, and any number of them that are ``bands`` steps or more apart,
    since columns of one example are then orthogonal (BandMF).

    Args:
        workload: answers that are wanted, of at most 4096 steps; learning rates are used.
        bands: number of diagonals.

    The class is that of Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta and Xu 2023. No
    optimum is certified: a search from the square root stops at a minimum.

    Raises:
        ValueError: beyond 4096 steps, for which `banded_toeplitz` serves.

    Example:
        >>> from taut.matrix import Workload, banded, banded_toeplitz, errors
        >>> sums = Workload(64)
        >>> free, toeplitz = (make(sums, 4) for make in (banded, banded_toeplitz))
        >>> errors(free, sums).root_mean_square < errors(toeplitz, sums).root_mean_square
        True
    """
    validate.instance(Workload, workload=workload)
    refuse_dense(workload.steps)
    steps = workload.steps
    count = min(validate.positive_integer(bands=bands), steps)
    answers = workload.matrix()
    product = answers.T @ answers
    inside = np.add.outer(np.arange(count), np.arange(steps)) < steps
    root = workload.root_coefficients()[:count]
    start = np.where(inside, root[:, None], 0.0)

    def value(unknown: Vector) -> tuple[float, Vector]:
        table = np.zeros((count, steps))
        table[inside] = unknown
        norms = np.linalg.norm(table, axis=0)
        error, gradient = _banded_error(table / norms, product)
        gradient = np.where(inside, gradient / error, 0.0)
        along = (gradient * table).sum(axis=0) / norms
        gradient = (gradient - along * table / norms) / norms
        return math.log(error), gradient[inside]

    table = np.zeros((count, steps))
    table[inside] = minimised(value, start[inside])
    table[0] = np.abs(table[0])
    return BandedEncoder(table / np.linalg.norm(table, axis=0))


def _banded_error(table: Matrix, product: Matrix) -> tuple[float, Matrix]:
    """Return tr(C^-T M C^-1) for a banded C, and its gradient by the entries of the bands.

    With Z = C^-T M C^-1 the gradient by C is -2 Z C^-T.
    """
    from scipy.linalg import solve_banded

    bands, steps = table.shape
    upper = np.zeros_like(table)  # Cᵀ by its diagonals, as SciPy orders them
    for k in range(bands):
        upper[bands - 1 - k, k:] = table[k, : steps - k]
    half = solve_banded((0, bands - 1), upper, product, check_finite=False)
    whole = solve_banded((0, bands - 1), upper, half.T, check_finite=False)
    # Z C^-T = (C^-1 Z)ᵀ, with Z symmetric.
    slopes = solve_banded((bands - 1, 0), table, whole, check_finite=False).T
    gradient = np.zeros_like(table)
    for k in range(bands):
        gradient[k, : steps - k] = -2 * np.diagonal(slopes, -k)
    return float(np.trace(whole)), gradient
