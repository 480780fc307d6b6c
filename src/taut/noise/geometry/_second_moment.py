"""A private second moment: what principal directions can be learnt from, at a price."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, orthonormal, real_numbers
from taut._base.public_vectors import Provenance
from taut.accounting import Adjacency, PrivacyLoss
from taut.noise._mechanisms.second_moment import GaussianMoments, gaussian_moments
from taut.noise._random.sources import RandomSource
from taut.noise._sets.balls import L2Ball
from taut.noise._sets.sets import Source
from taut.noise.geometry._subspaces import Subspaces, with_complement

__all__ = ["PrivateSecondMoment", "private_second_moment"]

_MOST_COORDINATES = 4096  # a symmetric matrix has half their square of numbers


@dataclass(frozen=True, eq=False)
class PrivateSecondMoment:
    """The sum of x xᵀ over clipped rows with symmetric Gaussian noise, and what it cost.

    Attributes:
        matrix: the release; symmetric, but noise can make eigenvalues negative.
        clip: the l2 norm that rows were clipped to.
        noise: the mechanism.
    """

    matrix: Matrix = field(repr=False)
    clip: float
    noise: GaussianMoments = field(repr=False)

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of the release; whatever is derived from the matrix costs no more."""
        return self.noise.loss

    @property
    def diagonal_scale(self) -> float:
        """The standard deviation of the noise of an entry on the diagonal."""
        return self.noise.scales[0][0]

    @property
    def off_diagonal_scale(self) -> float:
        """The standard deviation of the noise of an entry beside the diagonal."""
        return self.diagonal_scale / math.sqrt(2)

    @property
    def noise_level(self) -> float:
        """Where the eigenvalues of the noise alone end: 2 off_diagonal_scale √d (Wigner)."""
        return 2 * self.off_diagonal_scale * math.sqrt(len(self.matrix))

    def subspaces(self, ranks: Sequence[int]) -> Subspaces:
        """Return the leading eigenvectors in blocks; singular values are estimates.

        An eigenvalue below `noise_level` tells nothing about its eigenvector; `Subspaces.notes`
        says from where on.
        """
        wanted = tuple(validate.positive_integer(rank=rank) for rank in ranks)
        dimension = len(self.matrix)
        if not 0 < sum(wanted) <= dimension:
            raise ValueError(f"ranks must sum to between 1 and {dimension}, got {sum(wanted)}")
        sizes, vectors = np.linalg.eigh(self.matrix)
        leading = np.argsort(-sizes)[: sum(wanted)]
        heard = int(np.count_nonzero(sizes[leading] > self.noise_level))
        notes = (
            ()
            if heard == leading.size
            else (f"eigenvalues after {heard} are below the noise level {self.noise_level:.3g}",)
        )
        values = np.sqrt(np.maximum(sizes[leading], 0.0))
        values.setflags(write=False)
        return Subspaces(
            orthonormal(vectors[:, leading], dimension),
            with_complement(wanted, dimension),
            values,
            Provenance.RELEASED,
            notes,
        )


def private_second_moment(
    rows: ArrayLike,
    clip: float,
    epsilon: float,
    delta: float,
    *,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    generator: RandomSource | None = None,
    non_finite: str = "zero",
) -> PrivateSecondMoment:
    """Release the sum of x xᵀ over private rows, for principal components.

    Args:
        rows: one per record.
        clip: the l2 norm to which longer rows are scaled. It must not be chosen from the rows.
        epsilon: epsilon with ``delta``, the promise to keep.
        delta: probability delta of the guarantee, in (0, 1).
        adjacency: the neighbouring relation.
        generator: where the noise comes from, by default the secure generator.
        non_finite: what happens to rows with NaN or infinity, as in `SensitivitySet.clip`.

    **Guarantee**: a record changes the sum by x xᵀ, of Frobenius norm ||x||² <= clip²; replacing
    one changes it by at most √2 clip², as <x xᵀ, y yᵀ> = <x, y>² is not negative. In the
    coordinates (x_ii, √2 x_ij), i < j, that norm is l2, and the noise is isotropic. Its entries
    have standard deviation clip²/mu on the diagonal and clip²/(√2 mu) beside it, and every x
    with ||x|| = clip is hidden exactly as well as promised. Entries of clipped rows are cut towards
    zero to 40 bits below the clip; their products are summed as integers, and noise is added
    exactly, on a public grid: no low bits tell more (docs/theory/rounding.md).

    Raises:
        ValueError: for more than 4096 coordinates, where the matrix would not be practical, and for
            a clip whose fourth power leaves floating point.

    Example:
        >>> from taut.noise.geometry import private_second_moment
        >>> moment = private_second_moment([[1.0, 0.0], [0.0, 2.0]], 1.0, epsilon=1.0, delta=1e-6)
        >>> round(moment.diagonal_scale, 6), round(moment.off_diagonal_scale, 6)
        (4.224679, 2.987299)
        >>> moment.loss.epsilon(delta=1e-6) <= 1.0
        True
    """
    radius = validate.positive(clip=clip)
    table = real_numbers(rows, "rows")
    if table.ndim != 2 or not 0 < table.shape[1] <= _MOST_COORDINATES:
        raise ValueError(
            f"rows must be a table with 1 to {_MOST_COORDINATES} columns, got shape "
            f"{table.shape}; take subspaces of public vectors in more dimensions"
        )
    dimension = table.shape[1]
    noise = gaussian_moments(
        (dimension,), (radius,), epsilon=epsilon, delta=delta, adjacency=adjacency
    )
    ball = L2Ball(dimension, radius, source=Source.CLIPPED)
    matrix = noise.release(np.atleast_2d(ball.clip(table, non_finite)), generator)
    matrix.setflags(write=False)
    return PrivateSecondMoment(matrix, radius, noise)
