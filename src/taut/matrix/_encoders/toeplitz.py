"""Toeplitz encoders: entries depend on the distance of two steps alone."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taut._base import validate
from taut._base.arrays import Matrix, Vector, numbers_in_a_row
from taut._base.validate import PositiveInteger
from taut.matrix._encoders.encoder import Encoder, Indices, NoiseStream, check_scale
from taut.matrix._encoders.streams import BufferStream, HistoryStream, RowStream
from taut.matrix._series import padded, quotient

__all__ = ["BufferedEncoder", "InverseToeplitzEncoder", "Toeplitz", "ToeplitzEncoder"]


class Toeplitz(Encoder):
    """A lower-triangular Toeplitz matrix, which its first column describes."""

    @property
    @abstractmethod
    def coefficients(self) -> Vector:
        """The first column of C, shape (steps,)."""

    @property
    @abstractmethod
    def inverse_coefficients(self) -> Vector:
        """The first column of the inverse of C, shape (steps,)."""

    @property
    def reach(self) -> int:
        """The number of diagonals that are not zero."""
        return int(np.flatnonzero(self.coefficients)[-1]) + 1

    @property
    def non_negative(self) -> bool:
        """Whether no coefficient is below zero."""
        return bool((self.coefficients >= 0).all())

    @property
    def non_increasing(self) -> bool:
        """Whether the coefficients decrease with age, and stay at or above zero."""
        return self.non_negative and bool((np.diff(self.coefficients) <= 0).all())

    def columns(self, at: Indices) -> Matrix:
        """Return the first column, moved down."""
        found = np.zeros((self.steps, len(at)))
        for column, step in enumerate(np.asarray(at).tolist()):
            found[step:, column] = self.coefficients[: self.steps - step]
        return found

    def column_norms(self) -> Vector:
        """Return sums over the part of the first column that later columns keep."""
        norms: Vector = np.sqrt(np.cumsum(self.coefficients**2))[::-1]
        return norms


def _coefficients(steps: int, **argument: Sequence[float]) -> tuple[float, ...]:
    """Return coefficients that begin with a positive number and fit into the steps."""
    ((name, _),) = argument.items()
    validate.positive_integer(steps=steps)
    values = numbers_in_a_row(**argument)
    if not np.isfinite(values).all() or not values[0] > 0 or values.size > steps:
        raise ValueError(
            f"{name} must be at most steps={steps} finite numbers of which the first is positive, "
            f"got {values.size}, beginning with {float(values[0])!r}"
        )
    check_scale(values[:1])
    return tuple(values.tolist())


@dataclass(frozen=True)
class _Banded(Toeplitz):
    """What is banded, C or its inverse, is given by its diagonals."""

    steps: PositiveInteger
    bands: Sequence[float]

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "bands", _coefficients(self.steps, bands=self.bands))

    @property
    def _column(self) -> Vector:
        """The first column of what is banded."""
        return padded(np.array(self.bands), self.steps)


@dataclass(frozen=True)
class ToeplitzEncoder(_Banded):
    """A banded Toeplitz matrix, given by its diagonals; noise needs the last bands - 1 noises.

    Attributes:
        steps: number of steps.
        bands: the first coefficients by age; all further ones are zero. The first is positive.

    Example:
        >>> from taut.matrix import ToeplitzEncoder
        >>> ToeplitzEncoder(3, [1.0, 0.5]).matrix().tolist()
        [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.5, 1.0]]
    """

    @cached_property
    def coefficients(self) -> Vector:
        """The first column of C, shape (steps,)."""
        return self._column

    @cached_property
    def inverse_coefficients(self) -> Vector:
        """The first column of the inverse of C, shape (steps,)."""
        return quotient(padded(np.ones(1), self.steps), self.coefficients)

    def stream(self) -> NoiseStream:
        """Return forward substitution."""
        return RowStream(lambda _: self.bands, len(self.bands))


@dataclass(frozen=True)
class InverseToeplitzEncoder(_Banded):
    """A matrix whose *inverse* is banded Toeplitz; noise needs the last bands - 1 draws.

    Two bands, 1 and -weight, are DP-lambda-CGD: what it needs of the last step can be drawn again
    from the state of a generator, without memory.

    Attributes:
        steps: number of steps.
        bands: the first coefficients of the inverse by age; all further ones are zero.

    Example:
        >>> from taut.matrix import InverseToeplitzEncoder
        >>> InverseToeplitzEncoder(3, [1.0, -0.5]).matrix().tolist()
        [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.25, 0.5, 1.0]]
    """

    @cached_property
    def coefficients(self) -> Vector:
        """The first column of C, shape (steps,)."""
        return quotient(padded(np.ones(1), self.steps), self.inverse_coefficients)

    @cached_property
    def inverse_coefficients(self) -> Vector:
        """The first column of the inverse of C, shape (steps,)."""
        return self._column

    def stream(self) -> NoiseStream:
        """Return a moving average."""
        return HistoryStream(list(self.bands))


@dataclass(frozen=True)
class BufferedEncoder(Toeplitz):
    """A buffered linear Toeplitz matrix: 1, then c_t = sum_j weight_j decay_j^(t - 1).

    Noise needs one buffer for every decay, however many steps there are (Dvijotham, McMahan,
    Pillutla, Steinke and Thakurta 2024; McMahan, Xu and Zhang 2024).

    Attributes:
        steps: number of steps.
        weights: one positive number per buffer, of which the sum is at most one, so that
            coefficients do not increase.
        decays: one number per buffer, in [0, 1).

    Example:
        >>> from taut.matrix import BufferedEncoder
        >>> BufferedEncoder(4, [0.25, 0.25], [0.5, 0.0]).coefficients.tolist()
        [1.0, 0.5, 0.125, 0.0625]
    """

    steps: PositiveInteger
    weights: Sequence[float]
    decays: Sequence[float]

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.fields(self)
        weights = numbers_in_a_row(weights=self.weights)
        decays = numbers_in_a_row(decays=self.decays)
        if weights.shape != decays.shape:
            raise ValueError(
                f"weights and decays must be of one length, got {weights.size} and {decays.size}"
            )
        if not ((decays >= 0) & (decays < 1)).all():
            raise ValueError(f"decays must lie in [0, 1), got decays={self.decays!r}")
        if not (weights > 0).all() or not weights.sum() <= 1:
            raise ValueError(
                "weights must be positive with a sum of at most 1, so that coefficients do not "
                f"increase, got weights={self.weights!r}; use ToeplitzEncoder for others"
            )
        object.__setattr__(self, "weights", tuple(weights.tolist()))
        object.__setattr__(self, "decays", tuple(decays.tolist()))

    @cached_property
    def coefficients(self) -> Vector:
        """The first column of C, shape (steps,)."""
        ages = np.arange(float(self.steps - 1))
        found = [w * d**ages for w, d in zip(self.weights, self.decays, strict=True)]
        return np.append(1.0, np.sum(found, axis=0))

    @cached_property
    def inverse_coefficients(self) -> Vector:
        """The first column of the inverse of C, shape (steps,): a quotient of short polynomials."""
        from scipy.signal import lfilter

        decays = np.array(self.decays)
        below = np.poly(decays)  # the product of 1 - d x, by powers of x
        above = below.copy()
        for j, weight in enumerate(self.weights):
            above[1:] += weight * np.poly(np.delete(decays, j))
        inverse: Vector = lfilter(below, above, padded(np.ones(1), self.steps))
        return inverse

    def stream(self) -> NoiseStream:
        """Return the recursion of the buffers."""
        return BufferStream(self.weights, self.decays)
