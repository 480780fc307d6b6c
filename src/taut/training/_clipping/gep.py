"""Gradient embedding perturbation: a published baseline, with the noise that its promise needs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.public_vectors import Rows, as_provenance, public_rows
from taut.noise import L2Ball
from taut.noise.geometry import Provenance, Subspaces, public_subspaces
from taut.training._clipping.hybrid import HybridClip
from taut.training._clipping.refreshed import RefreshedClipping
from taut.training._clipping.subspace_files import write_subspaces
from taut.training._noise.basis import BasisNoise

__all__ = ["GEPClip", "RefreshedGEPClip"]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class GEPClip(HybridClip):
    """Clip embedding and residual of a gradient, with the noise of Yu et al. (2021): a baseline.

    Args:
        subspaces: one subspace and what it leaves, as for `HybridClip`.
        embedding_norm: the largest l2 norm of the coefficients in the subspace, S0.
        residual_norm: the largest l2 norm of what the subspace leaves, S1.
        sha256: the `digest` that the subspaces must have.

    Embedding and residual are two releases of one batch: noise of sqrt(2) z S0 on the embedding and
    sqrt(2) z S1 on every coordinate of the residual, also in the subspace, as published. Gradients
    are clipped exactly as by `HybridClip` with these bounds, which needs less noise: `excess` says
    by how much, and `optimal` returns it.

    **Guarantee**: of what one example changes, the length after whitening is at most 1 / z, so that
    the plan's multiplier is honest: scaled by their bounds, embedding and residual have length at
    most sqrt(2) together. It is that length, not a second release, which sampling amplifies; to
    double the Rényi divergence instead claims too little (erratum E42).

    Example:
        >>> import numpy as np
        >>> from taut.training import GEPClip
        >>> public = np.random.default_rng(0).normal(size=(40, 12)) / np.arange(1, 13)
        >>> clipping = GEPClip.from_public(public, 2, 1.0, 0.2, provenance="public")
        >>> print(round(clipping.excess, 3))
        1.184
    """

    name = "gep"

    def __init__(
        self,
        subspaces: Subspaces | str | os.PathLike[str] | Mapping[str, Any],
        embedding_norm: float,
        residual_norm: float,
        *,
        sha256: str | None = None,
    ) -> None:
        bounds = (
            validate.positive(embedding_norm=embedding_norm),
            validate.positive(residual_norm=residual_norm),
        )
        if isinstance(subspaces, Subspaces) and len(subspaces.ranks) != 2:
            raise ValueError(
                f"subspaces must be one and its complement, got ranks {subspaces.ranks}; try "
                "subspaces.split([rank])"
            )
        super().__init__(subspaces, bounds, sha256=sha256)

    @classmethod
    def from_public(  # type: ignore[override]
        cls,
        gradients: ArrayLike,
        rank: int,
        embedding_norm: float,
        residual_norm: float,
        *,
        provenance: Provenance | str,
        sizes: Sequence[int] | None = None,
        iterations: int = 5,
        seed: int = 0,
    ) -> Self:
        """Return the baseline for the principal directions of public gradients.

        Args:
            gradients: one per row, see `public_gradients`.
            rank: how many directions there are.
            embedding_norm: bound on the part inside of the subspace, as above.
            residual_norm: bound on the part outside of the subspace, as above.
            provenance: ``"public"`` or ``"released"``.
            sizes: sizes of groups of coordinates, in their order. Every group gets directions of
                its own, as many as its share of the square roots of sizes, which is how Yu et al.
                do it; one group by default.
            iterations: number of rounds of the subspace iteration.
            seed: seed of its start. It need not be secret.

        Raises:
            ValueError: if a group has fewer numbers, or public gradients fewer dimensions, than
                directions are asked for.
        """
        rows = public_rows(gradients, provenance)
        groups = [rows.shape[1]] if sizes is None else list(sizes)
        if sum(groups) != rows.shape[1]:
            raise ValueError(
                f"sizes must sum to the {rows.shape[1]} numbers of a gradient, got {sum(groups)}"
            )
        spaces = _side_by_side(rows, _shared(rank, groups), groups, provenance, iterations, seed)
        return cls(spaces, embedding_norm, residual_norm)

    @property
    def embedding_norm(self) -> float:
        """The bound on the embedding."""
        return self.bounds[0]

    @property
    def residual_norm(self) -> float:
        """The bound on the residual."""
        return self.bounds[1]

    @property
    def optimal(self) -> HybridClip:
        """The same clipping with the least noise for it."""
        return HybridClip(self._file or self.subspaces, self.bounds)

    @property
    def excess(self) -> float:
        """The total variance of this noise over that of the least for the same bounds.

        2 (k S0² + d S1²) / (S0 sqrt(k) + S1 sqrt(d - k))².
        """
        inside, outside = self.subspaces.ranks
        embedding, residual = self.bounds
        total = 2 * (inside * embedding**2 + (inside + outside) * residual**2)
        return total / (embedding * math.sqrt(inside) + residual * math.sqrt(outside)) ** 2

    def saved(self, path: str | os.PathLike[str]) -> Self:
        """Write the subspace to a file; return a clipping whose JSON refers to it."""
        write_subspaces(path, self.subspaces)
        return type(self)(path, self.embedding_norm, self.residual_norm)

    def noise(self, names: Sequence[str], sizes: Sequence[int], multiplier: float) -> BasisNoise:
        self._check_dimension(sizes)
        z = math.sqrt(2) * validate.positive(multiplier=multiplier)
        # Noise on the residual is in the subspace too, so that variances add up there.
        scales = [z * math.hypot(*self.bounds), z * self.residual_norm]
        self._check_resolution(scales, multiplier)
        return BasisNoise(self._basis, self._inner, scales)

    def __repr__(self) -> str:
        return (
            f"GEPClip(rank {self.subspaces.ranks[0]} of {self.subspaces.dimension}, sha256 "
            f"{self.digest[:12]}, embedding_norm={self.embedding_norm}, residual_norm="
            f"{self.residual_norm}; a baseline: {self.excess:.3g} times the noise variance of "
            "HybridClip)"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GEPClip):
            return NotImplemented if not isinstance(other, HybridClip) else False
        return self.bounds == other.bounds and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.name, self.subspaces.ranks, self.bounds))

    def to_dict(self) -> dict[str, Any]:
        data = super().to_dict()
        del data["bounds"], data["importance"]
        return data | {"embedding_norm": self.bounds[0], "residual_norm": self.bounds[1]}


@dataclass(frozen=True)
class RefreshedGEPClip(RefreshedClipping):
    """`GEPClip` with directions that follow the weights, as published with a refresh every step.

    Args:
        rank: how many directions there are.
        embedding_norm: the largest l2 norm of the embedding.
        residual_norm: the largest l2 norm of the residual.
        every: how many steps lie between two refreshes.
        iterations: number of rounds of the subspace iteration, one as published.
        seed: seed of its start. It need not be secret.

    A baseline, to compare `RefreshedHybridClip` with.

    **Guarantee**: that of `GEPClip` at every step, as `RefreshedHybridClip` has that of
    `HybridClip`.

    Example:
        >>> from taut.training import RefreshedGEPClip
        >>> RefreshedGEPClip(20, embedding_norm=1.0, residual_norm=0.2).every
        1
    """

    name = "refreshed_gep"

    rank: int
    embedding_norm: float
    residual_norm: float
    every: int = 1
    iterations: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rank", "every", "iterations"):
            validate.positive_integer(**{name: getattr(self, name)})
        validate.positive(embedding_norm=self.embedding_norm)
        validate.positive(residual_norm=self.residual_norm)
        validate.integer(seed=self.seed)

    def sensitivity(self, names: Sequence[str], sizes: Sequence[int]) -> L2Ball:
        return L2Ball(sum(sizes), math.hypot(self.embedding_norm, self.residual_norm))

    def check_examples(self, count: int) -> None:
        if count < self.rank:
            raise ValueError(
                f"{count} public examples span at most as many directions, got rank={self.rank}; "
                "lower it, or give more public examples"
            )

    def refreshed(self, gradients: Rows, names: Sequence[str], sizes: Sequence[int]) -> GEPClip:
        return GEPClip.from_public(
            gradients,
            self.rank,
            self.embedding_norm,
            self.residual_norm,
            provenance=Provenance.PUBLIC,
            iterations=self.iterations,
            seed=self.seed,
        )


def _shared(rank: int, sizes: Sequence[int]) -> list[int]:
    """Return how many directions every group gets: in proportion to roots of sizes, at least one.

    Raises:
        ValueError: if there are fewer directions than groups, or no fewer than numbers.
    """
    wanted = validate.positive_integer(rank=rank)
    counts = [validate.positive_integer(size=size) for size in sizes]
    if not len(counts) <= wanted < sum(counts):
        raise ValueError(
            f"rank must be at least the {len(counts)} groups and below the {sum(counts)} numbers "
            f"of a gradient, got rank={wanted}"
        )
    roots = np.sqrt(counts)
    found = np.ones(len(counts), dtype=np.int64)
    for _ in range(wanted - len(counts)):
        # One after the other to the group that is furthest below its share, if it has room.
        shares = np.where(found < counts, roots / (found + 1), -1.0)
        found[int(np.argmax(shares))] += 1
    return [int(count) for count in found]


def _side_by_side(
    rows: Rows,
    ranks: Sequence[int],
    sizes: Sequence[int],
    provenance: Provenance | str,
    iterations: int,
    seed: int,
) -> Subspaces:
    """Return one subspace, spanned by the principal directions of every group of coordinates."""
    basis = np.zeros((sum(sizes), sum(ranks)))
    values, row, column = [], 0, 0
    for rank, size in zip(ranks, sizes, strict=True):
        part = public_subspaces(
            np.ascontiguousarray(rows[:, row : row + size]),
            [rank],
            provenance=provenance,
            iterations=iterations,
            seed=seed,
        )
        basis[row : row + size, column : column + rank] = part.basis
        values.append(part.singular_values)
        row, column = row + size, column + rank
    whole = (sum(ranks), sum(sizes) - sum(ranks))
    return Subspaces(basis, whole, np.concatenate(values), as_provenance(provenance))
