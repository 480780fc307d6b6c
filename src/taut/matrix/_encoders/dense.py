"""Encoders that are written out: banded matrices by their diagonals, and full triangles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from taut._base.arrays import Matrix, Vector, real_numbers
from taut.errors import UnsoundConfiguration
from taut.matrix._encoders.encoder import Encoder, Indices, NoiseStream, check_scale
from taut.matrix._encoders.streams import RowStream
from taut.matrix._workloads import refuse_dense

__all__ = ["BandedEncoder", "DenseEncoder"]


@dataclass(frozen=True, eq=False)
class BandedEncoder(Encoder):
    """A lower-triangular matrix with few diagonals, none of them constant.

    Attributes:
        diagonals: entry [k, j] is C[j + k, j], shape (bands, steps). The first row is positive;
            what would lie below the matrix must be zero.

    Example:
        >>> from taut.matrix import BandedEncoder
        >>> BandedEncoder([[1.0, 2.0], [0.5, 0.0]]).matrix().tolist()
        [[1.0, 0.0], [0.5, 2.0]]
    """

    diagonals: Matrix

    def __init__(self, diagonals: ArrayLike) -> None:
        """Check the diagonals."""
        found = np.array(real_numbers(diagonals, "diagonals"))
        if found.ndim != 2 or not 0 < found.shape[0] <= found.shape[1]:
            raise ValueError(
                "diagonals must have one row per band and one column per step, and no more bands "
                f"than steps, got shape {found.shape}"
            )
        bands, steps = found.shape
        outside = np.add.outer(np.arange(bands), np.arange(steps)) >= steps
        if not np.isfinite(found).all() or not (found[0] > 0).all() or found[outside].any():
            raise ValueError(
                "diagonals must be finite, positive in the first row, and zero where they would "
                "leave the matrix"
            )
        check_scale(found[0])
        found.setflags(write=False)
        object.__setattr__(self, "diagonals", found)

    @property
    def steps(self) -> int:  # type: ignore[override]
        """Number of steps."""
        return int(self.diagonals.shape[1])

    @property
    def reach(self) -> int:
        """The number of bands."""
        return int(self.diagonals.shape[0])

    @property
    def non_negative(self) -> bool:
        """Whether no entry is below zero."""
        return bool((self.diagonals >= 0).all())

    def columns(self, at: Indices) -> Matrix:
        """Return the columns, with zeros outside of the bands."""
        steps = np.asarray(at, dtype=np.int64)
        found = np.zeros((self.steps + self.reach, steps.size))
        place = np.add.outer(np.arange(self.reach), steps)
        found[place, np.arange(steps.size)] = self.diagonals[:, steps]
        return found[: self.steps]

    def column_norms(self) -> Vector:
        """Return the norms of the columns of the table."""
        norms: Vector = np.linalg.norm(self.diagonals, axis=0)
        return norms

    def stream(self) -> NoiseStream:
        """Return forward substitution."""

        def row(i: int) -> list[float]:
            ages = np.arange(min(self.reach, i + 1))
            entries: list[float] = self.diagonals[ages, i - ages].tolist()
            return entries

        return RowStream(row, self.reach)


@dataclass(frozen=True, eq=False)
class DenseEncoder(Encoder):
    """A lower-triangular matrix that is written out; noise needs all earlier steps.

    Attributes:
        entries: the matrix C, with a positive diagonal.

    Example:
        >>> from taut.matrix import DenseEncoder
        >>> DenseEncoder([[1.0, 0.0], [0.5, 1.0]]).column_norms().round(3).tolist()
        [1.118, 1.0]
    """

    entries: Matrix

    def __init__(self, entries: ArrayLike) -> None:
        """Check the matrix."""
        found = np.array(real_numbers(entries, "entries"))
        if found.ndim != 2 or found.shape[0] != found.shape[1] or not found.size:
            raise ValueError(f"entries must be a square matrix, got shape {found.shape}")
        refuse_dense(found.shape[0])
        if not np.isfinite(found).all():
            raise ValueError("entries must be finite, got NaN or infinity in them")
        if np.triu(found, 1).any():
            raise UnsoundConfiguration(
                "entries must be lower-triangular: a row that involves later inputs cannot be "
                "released when inputs depend on outputs. DenseEncoder.from_gram(C.T @ C) is "
                "lower-triangular, as private, and has the errors of the best decoder of C"
            )
        if not (np.diagonal(found) > 0).all():
            raise ValueError("entries must have a positive diagonal, so that C can be decoded")
        check_scale(np.diagonal(found))
        found.setflags(write=False)
        object.__setattr__(self, "entries", found)

    @classmethod
    def from_gram(cls, gram: ArrayLike) -> DenseEncoder:
        """Return the lower-triangular C with the given inner products of columns, CᵀC.

        Normal noise has no direction, so that privacy is a matter of these products alone.

        Args:
            gram: positive definite matrix of the inner products.

        Raises:
            ValueError: if it is not symmetric and positive definite.

        Example:
            >>> from taut.matrix import DenseEncoder
            >>> DenseEncoder.from_gram([[1.25, 0.5], [0.5, 1.0]]).entries.tolist()
            [[1.0, 0.0], [0.5, 1.0]]
        """
        found = real_numbers(gram, "gram")
        if found.ndim != 2 or found.shape[0] != found.shape[1] or not found.size:
            raise ValueError(f"gram must be a square matrix, got shape {found.shape}")
        # Products of floats, taken in another order, differ by less.
        if not np.allclose(found, found.T, rtol=1e-12, atol=0.0):
            raise ValueError("gram must be symmetric; take C.T @ C")
        try:  # with the order of steps reversed, an upper triangle becomes a lower one
            factor = np.linalg.cholesky(found[::-1, ::-1])
        except np.linalg.LinAlgError:
            raise ValueError("gram must be positive definite: C must have full rank") from None
        return cls(factor.T[::-1, ::-1])

    @property
    def steps(self) -> int:  # type: ignore[override]
        """Number of steps."""
        return int(self.entries.shape[1])

    @property
    def reach(self) -> int:
        """One more than the largest distance of an entry from the diagonal."""
        rows, columns = np.nonzero(self.entries)
        return int((rows - columns).max()) + 1

    @property
    def non_negative(self) -> bool:
        """Whether no entry is below zero."""
        return bool((self.entries >= 0).all())

    def columns(self, at: Indices) -> Matrix:
        """Return some columns."""
        chosen: Matrix = self.entries[:, np.asarray(at, dtype=np.int64)]
        return chosen

    def stream(self) -> NoiseStream:
        """Return forward substitution."""
        reach = self.reach

        def row(i: int) -> list[float]:
            entries: list[float] = self.entries[i, max(i - reach + 1, 0) : i + 1][::-1].tolist()
            return entries

        return RowStream(row, reach)
