"""Principal subspaces of public vectors: the blocks in which private ones are clipped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector, orthonormal
from taut._base.public_vectors import Provenance, Rows, as_provenance, public_rows
from taut.noise._sets.blocks import Blocks
from taut.noise.geometry._norm_split import mean_lengths, split_norm

__all__ = ["Subspaces", "public_subspaces"]

_SPARE_DIRECTIONS = 8  # beyond a block, which show where its spectrum goes on
_FLAT_RATIO = 1.05  # of singular values, below which a boundary is arbitrary
_SQUARED_SINGULAR = 1e-7  # of the largest: smaller singular values drown when they are squared
_MOST_SUBSPACE_ROUNDS = 10_000  # of the iteration: after that no direction moves any more
_CONVERTED_COLUMNS = 4096  # coordinates that are brought to float64 at a time


@dataclass(frozen=True, eq=False)
class Subspaces:
    """Orthogonal subspaces that hold most of public vectors, and what they leave.

    Attributes:
        basis: orthonormal columns, block after block, without those of the complement.
        ranks: the dimension of every block; the complement is the last, unless it is empty.
        singular_values: singular values of the vectors, largest first in every block, one per
            column; estimates where the spectrum is flat. After a rotation they describe blocks, not
            columns.
        provenance: why the subspaces are no secret.
        notes: where a boundary cuts through directions that the vectors hardly tell apart.

    **Guarantee**: none about records. The subspaces do not depend on them, so that the blocks may
    serve as a sensitivity set to which private vectors are clipped.
    """

    basis: Matrix = field(repr=False)
    ranks: tuple[int, ...]
    singular_values: Vector = field(repr=False)
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return len(self.basis)

    def blocks(
        self, l2: ArrayLike, linf: ArrayLike | None = None, cap: float | None = None
    ) -> Blocks:
        """Return the set of vectors whose part in every subspace is bounded.

        Args:
            l2: the radius of every block, in the order of `ranks`.
            linf: bounds on the entries of every block; infinity for the complement, which has no
                coordinates. In an eigenbasis few entries hold all of a vector: rotate first.
            cap: a bound on the l2 norm of the whole.
        """
        return Blocks(self.ranks, l2, linf=linf, cap=cap, basis=self.basis)

    def to_dict(self) -> dict[str, Any]:
        """Return the subspaces ready for JSON; the bytes of the basis are in base 64."""
        data = np.ascontiguousarray(self.basis, dtype="<f8").tobytes()
        return {
            "ranks": list(self.ranks),
            "columns": self.basis.shape[1],
            "basis": base64.b64encode(data).decode("ascii"),
            "singular_values": [float(value) for value in self.singular_values],
            "provenance": str(self.provenance),
        }

    def split_norm(self, norm: float, vectors: ArrayLike, *, least: float = 0.05) -> list[float]:
        """Return a bound for every block: a norm, split as the mean lengths of public vectors are.

        Args:
            norm: the root of the sum of all squared bounds.
            vectors: public ones, as those that the subspaces were made of, and none of those: in
                directions that were fitted to the vectors themselves, nothing would seem to be
                left over.
            least: the share of the longest block's length that every block gets at least.

        Raises:
            ValueError: if the vectors are of another dimension, or all zero.

        Example:
            >>> import numpy as np
            >>> from taut.noise.geometry import public_subspaces
            >>> public = np.random.default_rng(0).normal(size=(200, 50)) / np.arange(1, 51)
            >>> spaces = public_subspaces(public[::2], [3], provenance="public")
            >>> print(*(round(bound, 2) for bound in spaces.split_norm(1.0, public[1::2])))
            0.91 0.42
        """
        rows = public_rows(vectors, self.provenance)
        if rows.shape[1] != self.dimension:
            raise ValueError(
                f"vectors must have the {self.dimension} coordinates of the subspaces, got "
                f"{rows.shape[1]}"
            )
        lengths = mean_lengths(rows, self.basis, self.ranks)
        bounds = split_norm(
            validate.positive(norm=norm), lengths, validate.probability(least=least)
        )
        return [float(bound) for bound in bounds]

    def rotated(self, seed: int = 0) -> Subspaces:
        """Return the same subspaces with a random basis in every one, from a seed that is public.

        Bounds on entries cut eigenvectors hardest where most of the signal is. After a rotation
        no coordinate stands out.
        """
        random = np.random.default_rng(validate.integer(seed=seed))
        edges = np.cumsum([0, *self.ranks])
        inside = [(a, b) for a, b in pairwise(edges) if b <= self.basis.shape[1]]
        turned = [self.basis[:, a:b] @ random_rotation(int(b - a), random) for a, b in inside]
        return replace(self, basis=orthonormal(np.concatenate(turned, axis=1), self.dimension))

    def split(self, ranks: Sequence[int]) -> Subspaces:
        """Return the leading directions in blocks of other ranks; the rest joins the complement.

        Raises:
            ValueError: if more directions are asked for than there are.
        """
        wanted = tuple(validate.positive_integer(rank=rank) for rank in ranks)
        total = sum(wanted)
        if not 0 < total <= self.basis.shape[1]:
            raise ValueError(
                f"ranks must sum to at most {self.basis.shape[1]}, the directions that are known, "
                f"got {total}"
            )
        return replace(
            self,
            basis=self.basis[:, :total],
            ranks=with_complement(wanted, self.dimension),
            singular_values=self.singular_values[:total],
            notes=flat_boundaries(self.singular_values[: total + 1], wanted),
        )


def public_subspaces(
    vectors: ArrayLike,
    ranks: Sequence[int],
    *,
    provenance: Provenance | str,
    iterations: int = 5,
    rotate: bool = False,
    seed: int = 0,
    method: Literal["iteration", "gram"] = "iteration",
) -> Subspaces:
    """Return the principal subspaces of public vectors, block after block.

    Args:
        vectors: one per row. Gradients of public inputs with random labels do, if the inputs have
            no labels of the private kind.
        ranks: how many directions every block has. All others form the complement.
        provenance: ``"public"`` or ``"released"``, see `Provenance`.
        iterations: number of rounds of the subspace iteration; more separate closer singular
            values.
        rotate: whether to turn every block at random, see `Subspaces.rotated`.
        seed: seed of the start and of the rotation. It need not be secret.
        method: ``"gram"`` solves for the products of all pairs of vectors instead, O(n² d) once,
            with memory n x n: faster for fewer vectors than directions times iterations, without a
            start to draw, and blind to singular values below 1e-7 of the largest.

    Subspace iteration with deflation (Xiao, Wan and Devadas 2023, Algorithm 4), orthonormalised by
    QR after every product and against all earlier blocks; the deflated matrix is never formed.
    Costs O(n d r) per iteration, for n vectors, and memory for the basis, n x r and nothing d x d.

    **Guarantee**: the columns are orthonormal in float64, on which the sensitivity of blocks rests.
    How close they are to singular vectors concerns utility alone.

    Raises:
        UnsoundConfiguration: for vectors that are neither public nor released.
        ValueError: if the ranks sum to more than the numerical rank of the vectors, where further
            directions would be noise of the arithmetic (an experiment of Xiao, Wan and Devadas 2023
            asks for 3250 directions of 2000 vectors).

    Example:
        >>> import numpy as np
        >>> from taut.noise import optimal_gaussian
        >>> from taut.noise.geometry import public_subspaces
        >>> public = np.random.default_rng(0).normal(size=(200, 50)) / np.arange(1, 51)
        >>> spaces = public_subspaces(public, [3, 5], provenance="public")
        >>> spaces.ranks
        (3, 5, 42)
        >>> blocks = spaces.blocks([1.0, 0.3, 0.2])
        >>> noise = optimal_gaussian(blocks, epsilon=1.0, delta=1e-6)
        >>> noise.release_sum(public).shape
        (50,)
    """
    rows = public_rows(vectors, provenance)
    wanted = tuple(validate.positive_integer(rank=rank) for rank in ranks)
    dimension = rows.shape[1]
    if not 0 < sum(wanted) <= dimension:
        raise ValueError(f"ranks must sum to between 1 and {dimension}, got {sum(wanted)}")
    steps = validate.positive_integer(iterations=iterations)
    if steps > _MOST_SUBSPACE_ROUNDS:
        raise ValueError(
            f"iterations must be at most {_MOST_SUBSPACE_ROUNDS}, got iterations={iterations!r}"
        )
    if method not in ("iteration", "gram"):
        raise ValueError(f"method must be 'iteration' or 'gram', got method={method!r}")
    if method == "gram":
        basis, values, following = _from_gram(rows, wanted)
    else:
        basis, values, following = _iterated(rows, wanted, steps, validate.integer(seed=seed))
    notes = flat_boundaries(np.concatenate([values, following]), wanted)
    values.setflags(write=False)
    spaces = Subspaces(
        orthonormal(basis, dimension),
        with_complement(wanted, dimension),
        values,
        as_provenance(provenance),
        notes,
    )
    return spaces.rotated(seed) if rotate else spaces


def _iterated(
    rows: Rows, ranks: tuple[int, ...], steps: int, seed: int
) -> tuple[Matrix, Vector, Vector]:
    """Return basis, singular values, and the next of these, block after block."""
    random = np.random.default_rng(seed)
    dimension = rows.shape[1]
    basis, values, following = np.empty((dimension, 0)), np.empty(0), np.empty(0)
    for rank in ranks:
        width = min(rank + _SPARE_DIRECTIONS, len(rows), dimension - basis.shape[1])
        start = random.standard_normal((len(rows), width))
        found, sizes = _leading(rows, start, basis, steps)
        largest = float(values[0] if values.size else sizes.max(initial=0.0))
        sizes = sizes[sizes > _resolution(rows) * largest]
        if sizes.size < rank:
            raise _deficient(basis.shape[1] + sizes.size, ranks)
        basis = np.concatenate([basis, found[:, :rank]], axis=1)
        values, following = np.concatenate([values, sizes[:rank]]), sizes[rank : rank + 1]
    return basis, values, following


def _from_gram(rows: Rows, ranks: tuple[int, ...]) -> tuple[Matrix, Vector, Vector]:
    """Return the same from the eigenvectors of the products of all pairs of rows."""
    total = sum(ranks)
    products = np.zeros((len(rows), len(rows)))
    for part in _slices(rows):
        columns = rows[:, part].astype(np.float64, copy=False)
        products += columns @ columns.T
    squares, vectors = np.linalg.eigh(products)
    sizes = np.sqrt(np.maximum(squares[::-1], 0.0))
    # Squares of singular values are known to a few units of the largest.
    known = max(_resolution(rows), _SQUARED_SINGULAR)
    sizes = sizes[sizes > known * sizes[0]]
    if sizes.size < total:
        raise _deficient(sizes.size, ranks)
    weights = vectors[:, ::-1][:, :total] / sizes[:total]
    # Small singular values come with large errors, which QR takes out, earlier columns first.
    return np.linalg.qr(_combined(rows, weights)).Q, sizes[:total], sizes[total : total + 1]


def _deficient(known: int, ranks: tuple[int, ...]) -> ValueError:
    return ValueError(
        f"ranks must sum to at most the numerical rank of the vectors, {known}, got {sum(ranks)}; "
        "lower them, or add public vectors"
    )


def with_complement(ranks: tuple[int, ...], dimension: int) -> tuple[int, ...]:
    """Return the ranks with that of the complement, if there is one."""
    rest = dimension - sum(ranks)
    return (*ranks, rest) if rest else ranks


def flat_boundaries(values: Vector, ranks: tuple[int, ...]) -> tuple[str, ...]:
    """Say where blocks part directions of nearly equal singular values."""
    return tuple(
        f"singular values {edge} and {edge + 1} differ by a factor of "
        f"{values[edge - 1] / values[edge]:.3f} only: the boundary between them is arbitrary"
        for edge in np.cumsum(ranks).tolist()
        if edge < values.size and values[edge - 1] < _FLAT_RATIO * values[edge]
    )


def random_rotation(size: int, random: np.random.Generator) -> Matrix:
    """Return an orthogonal matrix, uniform in the sense of Haar (Mezzadri 2007)."""
    turn, triangle = np.linalg.qr(random.standard_normal((size, size)))
    rotation: Matrix = turn * np.where(np.diagonal(triangle) < 0, -1.0, 1.0)
    return rotation


def _leading(rows: Rows, start: Matrix, earlier: Matrix, steps: int) -> tuple[Matrix, Vector]:
    """Return leading singular vectors of the rows outside of the earlier span, and values."""
    columns = _orthonormal_beside(_combined(rows, start), earlier)
    for _ in range(steps):
        weights, _ = np.linalg.qr(_coefficients(rows, columns))
        columns = _orthonormal_beside(_combined(rows, weights), earlier)
    if earlier.size:  # once more: where little is left, rounding points back into the span
        columns = _orthonormal_beside(columns, earlier)
    _, sizes, turn = np.linalg.svd(_coefficients(rows, columns), full_matrices=False)
    return columns @ turn.T, sizes


def _orthonormal_beside(columns: Matrix, earlier: Matrix) -> Matrix:
    """Return an orthonormal basis of the columns without their part in the earlier span."""
    if earlier.size:
        columns = columns - earlier @ (earlier.T @ columns)
    return np.linalg.qr(columns).Q


def _coefficients(rows: Rows, columns: Matrix) -> Matrix:
    """Return rows @ columns, in float64 whatever the type of the rows."""
    result = np.zeros((len(rows), columns.shape[1]))
    for part in _slices(rows):
        result += rows[:, part].astype(np.float64, copy=False) @ columns[part]
    return result


def _combined(rows: Rows, weights: Matrix) -> Matrix:
    """Return rows.T @ weights, in float64 whatever the type of the rows."""
    result = np.empty((rows.shape[1], weights.shape[1]))
    for part in _slices(rows):
        result[part] = rows[:, part].astype(np.float64, copy=False).T @ weights
    return result


def _slices(rows: Rows) -> list[slice]:
    """Cut the coordinates, unless the rows can be multiplied as they are."""
    width = rows.shape[1] if rows.dtype == np.float64 else _CONVERTED_COLUMNS
    return [slice(start, start + width) for start in range(0, rows.shape[1], width)]


def _resolution(rows: Rows) -> float:
    """Return what, relative to the largest singular value, is rounding of entries and sums."""
    entries, sums = np.finfo(rows.dtype).eps, np.finfo(np.float64).eps
    return 8 * float(entries) + 16 * int(max(rows.shape)) * float(sums)
