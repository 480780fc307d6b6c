"""What an encoder is: a matrix C with a decoder, and noise that is correlated step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Matrix, Vector
from taut.matrix._workloads import refuse_dense

__all__ = ["Encoder", "Indices", "NoiseStream", "check_scale"]

_DIAGONALS = (
    1e-100,
    1e100,
)  # of a diagonal: squares, and sums of as many as there are steps, are exact

Indices = NDArray[np.int64]
"""Numbers of steps."""


class NoiseStream(ABC):
    """Correlated noise, one step after the other, with as much memory as the structure needs.

    Arrays of NumPy and tensors of PyTorch serve alike: they are only added, subtracted and
    multiplied by numbers.
    """

    keeps_noise: ClassVar[bool] = True
    """Whether what was returned is remembered, so that callers must leave it as it is."""

    @abstractmethod
    def step(self, draw: Callable[[], Any]) -> Any:
        """Return the noise of the next step.

        Args:
            draw: a function that returns new independent noise of unit variance, which is the
                stream's own then. It is called once for every row of the encoder that is completed
                in this step.
        """

    @property
    @abstractmethod
    def buffers(self) -> int:
        """How many arrays are remembered at most."""


class Encoder(ABC):
    """A matrix C that is applied to the inputs before noise is added, with its decoder D, D C = I.

    Independent noise z of standard deviation sigma on every row of C x hides x; what a learner sees
    is x + D z, so that the answers A x of a workload have the noise A D z. Later noise can thus
    take back earlier noise, at the price of a larger sensitivity of C x.

    **Guarantee**: row i of C x involves inputs of steps up to the one in which it is released, so
    that inputs may depend on all outputs before them (Denisov, McMahan, Rush, Smith and Thakurta
    2022, Theorem 2.1).
    """

    steps: int
    """Number of steps, n: the columns of C."""

    @property
    def rows(self) -> int:
        """How many rows C has: independent noises that are drawn."""
        return self.steps

    @property
    @abstractmethod
    def reach(self) -> int:
        """Steps at this distance or further apart have orthogonal columns."""

    @property
    @abstractmethod
    def non_negative(self) -> bool:
        """Whether no entry of C is below zero."""

    @property
    def non_increasing(self) -> bool:
        """Whether C is Toeplitz, and its non-negative coefficients do not increase with age."""
        return False

    @abstractmethod
    def columns(self, at: Indices) -> Matrix:
        """Return the columns of C for some steps, shape (rows, len(at))."""

    @abstractmethod
    def stream(self) -> NoiseStream:
        """Return the decoded noise D z from its first step on."""

    def matrix(self) -> Matrix:
        """Return C, shape (rows, steps).

        Raises:
            ValueError: if it would be too large.
        """
        refuse_dense(self.steps)
        return self.columns(np.arange(self.steps))

    def gram(self, at: Indices) -> Matrix:
        """Return the inner products of the columns of some steps, shape (len(at), len(at))."""
        found = self.columns(at)
        inner: Matrix = found.T @ found
        return inner

    def column_norms(self) -> Vector:
        """Return the l2-norm of every column, shape (steps,)."""
        norms: Vector = np.linalg.norm(self.matrix(), axis=0)
        return norms


def check_scale(diagonal: Vector) -> None:
    """Refuse a diagonal whose squares floating point cannot hold, nor the sensitivity with them.

    Raises:
        ValueError: with the way out.
    """
    least, most = _DIAGONALS
    if not ((diagonal >= least) & (diagonal <= most)).all():
        raise ValueError(
            f"the diagonal of an encoder must lie between {least:g} and {most:g}, got "
            f"{float(diagonal.min())!r} to {float(diagonal.max())!r}; divide the encoder by a "
            "constant, and sigma with it"
        )
