"""Errors: the noise of a workload's answers after decoding, at equal privacy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut.matrix._encoders.encoder import Encoder
from taut.matrix._encoders.toeplitz import Toeplitz
from taut.matrix._encoders.tree import TreeEncoder
from taut.matrix._participation import ONCE, Participation
from taut.matrix._sensitivity import sensitivity
from taut.matrix._series import geometric, product
from taut.matrix._workloads import MOST_DENSE_STEPS, Workload

__all__ = ["Errors", "decoded_deviations", "errors"]

_NOISES_AT_ONCE = 2048  # whose effect is followed step by step: 16 kilobytes for every buffer


@dataclass(frozen=True, eq=False)
class Errors:
    """Standard deviations of a workload's answers at a noise multiplier of one.

    They grow in proportion to the noise multiplier, sigma over sensitivity, and to the bound on the
    norm of one contribution. The error is one coordinate's.

    Attributes:
        per_step: standard deviation of every answer, shape (steps,).
    """

    per_step: Vector

    @property
    def root_mean_square(self) -> float:
        """Root of the mean square over all steps."""
        return float(np.sqrt(np.mean(self.per_step**2)))

    @property
    def maximum(self) -> float:
        """The largest standard deviation of a step."""
        return float(self.per_step.max())


def errors(
    encoder: Encoder,
    workload: Workload,
    participation: Participation = ONCE,
) -> Errors:
    """Return the errors of a workload's answers with an encoder's noise.

    Args:
        encoder: matrix that correlates the noise.
        workload: answers that are wanted; of as many steps.
        participation: rule about the steps of one example; it decides the sensitivity.

    Raises:
        ValueError: if encoder and workload have different numbers of steps.

    Example:
        >>> from taut.matrix import Workload, errors, identity, square_root
        >>> sums = Workload(64)
        >>> round(errors(identity(64), sums).root_mean_square, 2)
        5.7
        >>> round(errors(square_root(sums), sums).root_mean_square, 2)
        2.23
    """
    validate.instance(Encoder, encoder=encoder)
    validate.instance(Workload, workload=workload)
    validate.instance(Participation, participation=participation)
    if encoder.steps != workload.steps:
        raise ValueError(
            f"encoder and workload must have one number of steps, got {encoder.steps} and "
            f"{workload.steps}"
        )
    return Errors(sensitivity(encoder, participation).value * decoded_deviations(encoder, workload))


def decoded_deviations(encoder: Encoder, workload: Workload) -> Vector:
    """Return the l2-norms of the rows of A D: deviations for noise of unit variance."""
    if isinstance(encoder, Toeplitz):
        return _of_series(encoder.inverse_coefficients, workload)
    if isinstance(encoder, TreeEncoder) and workload == Workload(workload.steps):
        return np.sqrt(encoder.prefix_variances())
    if not isinstance(encoder, TreeEncoder) and encoder.steps <= MOST_DENSE_STEPS:
        return _of_matrix(encoder.matrix(), workload)
    return _of_stream(encoder, workload)


def _of_series(inverse: Vector, workload: Workload) -> Vector:
    """Return the deviations for a Toeplitz decoder, without any matrix."""
    size, kept = workload.steps, 1 - workload.weight_decay
    update = product(inverse, geometric(workload.momentum, size))
    if workload.is_toeplitz:
        weights = product(update, geometric(kept, size))
        deviations: Vector = workload.rates[0] * np.sqrt(np.cumsum(weights**2))
        return deviations
    row, squares = np.zeros(size), np.empty(size)
    for i, rate in enumerate(workload.rates.tolist()):
        row[: i + 1] *= kept
        row[: i + 1] += rate * update[i::-1]
        squares[i] = row[: i + 1] @ row[: i + 1]
    return np.sqrt(squares)


def _of_matrix(matrix: Matrix, workload: Workload) -> Vector:
    """Return the deviations for a square matrix that is written out."""
    from scipy.linalg import solve_triangular

    decoder = solve_triangular(matrix, np.eye(workload.steps), lower=True, check_finite=False)
    deviations: Vector = np.linalg.norm(workload.accumulated(decoder), axis=1)
    return deviations


def _of_stream(encoder: Encoder, workload: Workload) -> Vector:
    """Return the deviations from the effect of single noises, some at a time."""
    squares = np.zeros(workload.steps)
    kept, momentum = 1 - workload.weight_decay, workload.momentum
    for first in range(0, encoder.rows, _NOISES_AT_ONCE):
        count = min(_NOISES_AT_ONCE, encoder.rows - first)
        stream, drawn = encoder.stream(), iter(range(-first, encoder.rows - first))

        def draw(drawn: object = drawn, count: int = count) -> Vector:
            one = np.zeros(count)
            at = next(drawn)  # type: ignore[call-overload]
            if 0 <= at < count:
                one[at] = 1.0
            return one

        update, total = np.zeros(count), np.zeros(count)
        for i, rate in enumerate(workload.rates.tolist()):
            update = momentum * update + stream.step(draw)
            total = kept * total + rate * update
            squares[i] += total @ total
    return np.sqrt(squares)
