"""Workloads: which running sums of the inputs are wanted, one for every step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from taut._base import validate
from taut._base.arrays import Matrix, Vector, real_numbers
from taut._base.validate import BelowOne, PositiveInteger
from taut.matrix._series import geometric, product, root

__all__ = ["MOST_DENSE_STEPS", "Workload", "refuse_dense"]

MOST_DENSE_STEPS = 4096
"""Steps up to which a matrix is written out: it then has 16 million entries, 128 megabytes."""


@dataclass(frozen=True)
class Workload:
    """Weighted running sums: what a learner computes from its gradients, step by step.

    Row i of the lower-triangular matrix A says how the inputs of steps 0 to i enter answer i. With
    momentum b, weight decay w and learning rates r the answers are the iterates of gradient
    descent, ``m_i = b m_{i-1} + x_i`` and ``y_i = (1 - w) y_{i-1} + r_i m_i``, so that

        A = D diag(r) M,    D[i, j] = (1 - w)^(i - j),    M[i, j] = b^(i - j)    for j <= i.

    Without any of them, A has ones on and below its diagonal: plain prefix sums.

    Attributes:
        steps: number of steps, n.
        momentum: share of the last update that is kept in the next, in [0, 1).
        weight_decay: share of the weights that is lost in every step, in [0, 1): with PyTorch's
            SGD the learning rate times ``weight_decay``.
        learning_rates: one positive rate per step; None for equal ones.

    Example:
        >>> from taut.matrix import Workload
        >>> Workload(3, momentum=0.5).matrix().tolist()
        [[1.0, 0.0, 0.0], [1.5, 1.0, 0.0], [1.75, 1.5, 1.0]]
    """

    steps: PositiveInteger
    momentum: BelowOne = 0.0
    weight_decay: BelowOne = 0.0
    learning_rates: Sequence[float] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.fields(self)
        if self.learning_rates is None:
            return
        rates = real_numbers(self.learning_rates, "learning_rates")
        if rates.shape != (self.steps,) or not ((rates > 0) & np.isfinite(rates)).all():
            raise ValueError(
                f"learning_rates must be {self.steps} positive numbers, one per step, got "
                f"an array of shape {rates.shape}"
                + ("" if rates.shape != (self.steps,) else " with others in it")
            )
        object.__setattr__(self, "learning_rates", tuple(rates.tolist()))

    @property
    def is_toeplitz(self) -> bool:
        """Whether an input's weight depends on its age alone: all learning rates are equal."""
        return self.learning_rates is None or len(set(self.learning_rates)) == 1

    @property
    def rates(self) -> Vector:
        """The learning rates, shape (steps,)."""
        if self.learning_rates is None:
            return np.ones(self.steps)
        return np.array(self.learning_rates)

    def coefficients(self) -> Vector:
        """Return the weight of an input by its age, for a learning rate of one, shape (steps,)."""
        size = self.steps
        return product(geometric(1 - self.weight_decay, size), geometric(self.momentum, size))

    def root_coefficients(self, *, inverse: bool = False) -> Vector:
        """Return the Toeplitz square root of the workload with learning rate one, or its inverse.

        The generating function of A is 1 / ((1 - (1 - w) x) (1 - b x)), so its root is a product of
        two binomial series.
        """
        power = 0.5 if inverse else -0.5
        parts = (root(share, power, self.steps) for share in (1 - self.weight_decay, self.momentum))
        return product(*parts)

    def accumulated(self, inputs: Matrix) -> Matrix:
        """Return the answers A x for inputs of shape (steps, ...), in a time linear in them."""
        values = real_numbers(inputs, "inputs")
        if values.ndim == 0 or values.shape[0] != self.steps:
            raise ValueError(
                f"inputs must have {self.steps} rows, one per step, got shape {values.shape}"
            )
        answers = np.empty(values.shape)
        update = np.zeros(values.shape[1:])
        total = np.zeros(values.shape[1:])
        for i, rate in enumerate(self.rates.tolist()):
            update = self.momentum * update + values[i]
            total = (1 - self.weight_decay) * total + rate * update
            answers[i] = total
        return answers

    def matrix(self) -> Matrix:
        """Return A, shape (steps, steps).

        Raises:
            ValueError: beyond 4096 steps.
        """
        refuse_dense(self.steps)
        return self.accumulated(np.eye(self.steps))


def refuse_dense(steps: int) -> None:
    """Refuse to write out a matrix that is too large."""
    if steps > MOST_DENSE_STEPS:
        size = math.ceil(8 * steps**2 / 2**30)
        raise ValueError(
            f"a matrix of {steps} steps would take {size} gigabytes; dense methods serve up to "
            f"{MOST_DENSE_STEPS} steps. Use an encoder with a structure (square_root with bands, "
            "banded_inverse, buffered, tree), whose errors and sensitivity need no matrix"
        )
