"""Blocks: orthogonal parts, each with its own bounds (hybrid clipping, layers of a network)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector, orthonormal, real_numbers
from taut._base.floats import ALIKE
from taut.accounting import Adjacency
from taut.noise._exact_sums import coefficients, combined, fine_axes, moderate
from taut.noise._sets.bases import SetInBasis, gauges_of, out_of_basis
from taut.noise._sets.projections import project_l2_box, resized, row_norms
from taut.noise._sets.sets import Outline, Source, frozen_vector, refuse_basis

__all__ = ["Blocks"]

_COMPLEMENT = 2.0**-49  # of the coefficients: by how much rounding them moves what is beside them


@dataclass(frozen=True, eq=False)
class Blocks(SetInBasis):
    """All vectors whose parts in orthogonal blocks are bounded one by one: ||s_j||_2 <= l2_j.

    Args:
        ranks: how many coordinates every block has, in order. Layers of a network are blocks.
        l2: the radius of every block.
        linf: bounds on the entries of every block; infinity where there is none.
        cap: a bound on the l2 norm of the whole.
        basis: a matrix with orthonormal columns, in the order of the blocks. Its columns may end
            before the last block, which is then the orthogonal complement of all of them, never
            written out.
        dimension: what the ranks must sum to, if given; taken from the basis if there is one.
        allow_zero: whether a radius of zero is meant. Such a block is dropped: it gets no noise,
            and the released value is a public constant there.

    Bounds that contradict each other are tightened, and `notes` says so.

    **Guarantee**: Gaussian noise for the set is isotropic in every block and of least total
    variance among all covariances (Xiao, Wan and Devadas 2023, Theorem 4.6, whose proof covers
    any block sets that are symmetric; with a cap, levelled first).

    `clip` is the Euclidean projection unless there are both a cap and bounds on entries: then
    blocks are projected and the row is scaled into the cap.

    Example:
        >>> from taut.noise import Blocks
        >>> layers = Blocks([3, 2], l2=[1.0, 0.5])
        >>> layers.clip([0.0, 3.0, 4.0, 0.3, 0.4])
        array([0. , 0.6, 0.8, 0.3, 0.4])
        >>> Blocks([1000, 290_898], l2=[2.5, 1.0]).dimension
        291898
    """

    ranks: tuple[int, ...]
    l2: Vector
    linf: Vector | None = None
    cap: float | None = None
    basis: Matrix | None = field(default=None, repr=False)
    allow_zero: bool = False

    def __init__(
        self,
        ranks: Sequence[int],
        l2: ArrayLike,
        *,
        linf: ArrayLike | None = None,
        cap: float | None = None,
        basis: ArrayLike | None = None,
        dimension: int | None = None,
        allow_zero: bool = False,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
        source: Source | str = Source.DECLARED,
    ) -> None:
        self._start(adjacency, source, allow_zero=allow_zero)
        self._set("ranks", tuple(validate.positive_integer(rank=rank) for rank in ranks))
        self._set("l2", self._per_block(frozen_vector(l2, "l2", allow_zero=self.allow_zero), "l2"))
        self._set("cap", None if cap is None else validate.positive(cap=cap))
        self._set("dimension", self._whole(basis, dimension))
        self._set("basis", None if basis is None else self._fitting(basis))
        self._set("linf", None if linf is None else self._entry_bounds(linf))
        self._tighten()
        self._refuse_thin(self.radii, "l2")

    @property
    def max_l2(self) -> float:
        """The largest l2 norm: all blocks at their radius, or the cap."""
        return min(math.hypot(*self.radii), self.cap or math.inf)

    @property
    def radii(self) -> Vector:
        """The largest l2 norm in every block, with its bound on entries taken into account."""
        if self.linf is None:
            return self.l2
        return np.minimum(self.l2, np.sqrt(self.ranks) * self.linf)

    def parts(self, rows: Matrix) -> list[Matrix]:
        """Return the coefficients of the rows in every block (ambient ones in a complement)."""
        ends = np.cumsum(self.ranks)[:-1]
        if self.basis is None:
            return np.split(rows, ends, axis=1)
        inside = coefficients(rows, self.basis)
        if self.basis.shape[1] == self.dimension:
            return np.split(inside, ends, axis=1)
        return [*np.split(inside, ends[:-1], axis=1), rows - combined(inside, self.basis)]

    def gauges(self, rows: Matrix) -> Vector:
        """Return the largest ratio of a norm and its bound."""
        rows, factors = moderate(rows)
        parts = self.parts(rows)
        norms = [row_norms(part, 2.0) for part in parts]
        if self._tall:
            norms[-1] = norms[-1] + _COMPLEMENT * row_norms(np.stack(norms[:-1], axis=1), 2.0)
        ratios = list(gauges_of(np.stack(norms, axis=1), self.l2, self._negligible).T)
        if self.linf is not None:
            largest = np.stack([row_norms(part, math.inf) for part in parts], axis=1)
            ratios += list(gauges_of(largest, self.linf, self._negligible).T)
        if self.cap is not None:
            ratios.append(row_norms(np.stack(norms, axis=1), 2.0) / self.cap)
        result: Vector = np.max(ratios, axis=0)
        return result * factors

    def reach(self) -> Vector:
        """Return the bounds of every coordinate's block; in a basis, what all blocks can reach."""
        if self.basis is None:
            bound = self.l2 if self.linf is None else np.minimum(self.l2, self.linf)
            return np.repeat(bound, self.ranks)
        ends = np.cumsum(self.ranks)[:-1]
        squares = [part.sum(axis=1) for part in np.split(self.basis**2, ends, axis=1)]
        if self.basis.shape[1] < self.dimension:
            squares[-1] = np.maximum(1.0 - np.sum(self.basis**2, axis=1), 0.0)
        lengths = np.sqrt(np.stack(squares, axis=1))  # of every unit vector's part in every block
        reached: Vector = lengths @ self.l2
        return np.minimum(reached, self.max_l2)

    def outline(self, *, by_axis: bool = False) -> Outline:
        """Return the blocks; weights that differ within one of bounded entries are averaged."""
        ranks = np.array(self.ranks, dtype=np.float64)
        return Outline(
            ranks, self.radii, self.max_l2, exact=not (by_axis and self.linf is not None)
        )

    def l1_outline(self, *, by_axis: bool = False) -> Outline:
        """Return for every block the l1 norm of equal entries."""
        refuse_basis(self)
        ranks = np.array(self.ranks, dtype=np.float64)
        lengths = np.sqrt(ranks) * self.radii
        total = float(lengths.sum())
        cap, exact = total, not by_axis
        if self.cap is not None and self.cap < math.hypot(*self.radii) * (1 - ALIKE):
            cap, exact = min(total, self.cap * math.sqrt(self.dimension)), False
        return Outline(ranks, lengths, cap, exact=exact)

    @property
    def _tall(self) -> bool:
        """Whether the last block is the complement of a basis."""
        return self.basis is not None and self.basis.shape[1] < self.dimension

    def _project(self, rows: Matrix) -> Matrix:
        # In a basis a row beyond 2^960 is clipped as a part of it, whose coefficients are floats.
        parts = self.parts(rows if self.basis is None else moderate(rows)[0])
        if self.linf is None:
            norms = np.stack([row_norms(part, 2.0) for part in parts], axis=1)
            norms = np.minimum(norms, np.finfo(np.float64).max)
            kept = project_l2_box(norms, self.l2, self.cap or math.inf)
            lengths = np.where(kept < norms, kept, math.inf)
            parts = [resized(part, 2.0, lengths[:, j]) for j, part in enumerate(parts)]
        else:
            bounds = zip(parts, self.linf, self.l2, strict=True)
            parts = [project_l2_box(part, bound, radius) for part, bound, radius in bounds]
            if self.cap is not None:
                whole = row_norms(np.concatenate(parts, axis=1), 2.0)
                factor = np.minimum(1.0, self.cap / np.where(whole > 0, whole, 1.0))[:, None]
                parts = [part * factor for part in parts]
        return self._joined(parts)

    def _joined(self, parts: list[Matrix]) -> Matrix:
        if self.basis is None:
            return np.concatenate(parts, axis=1)
        if self.basis.shape[1] == self.dimension:
            return out_of_basis(np.concatenate(parts, axis=1), self.basis)
        return out_of_basis(np.concatenate(parts[:-1], axis=1), self.basis) + parts[-1]

    def _doubled(self) -> Self:
        return replace(
            self,
            l2=2 * self.l2,
            linf=None if self.linf is None else 2 * self.linf,
            cap=None if self.cap is None else 2 * self.cap,
        )

    def _whole(self, basis: ArrayLike | None, dimension: int | None) -> int:
        """Return the dimension, or say that the ranks do not sum to it."""
        total = sum(self.ranks)
        if basis is not None and np.ndim(basis) == 2 and dimension is None:
            dimension = int(np.shape(basis)[0])
        if dimension is not None and total != validate.positive_integer(dimension=dimension):
            raise ValueError(
                f"ranks must sum to the dimension {dimension}, got {total}; "
                "add a block for the rest"
            )
        return total

    def _fitting(self, basis: ArrayLike) -> Matrix:
        columns = orthonormal(basis, self.dimension)
        if columns.shape[1] not in (self.dimension, self.dimension - self.ranks[-1]):
            raise ValueError(
                f"basis must have {self.dimension} columns, or {self.dimension - self.ranks[-1]} "
                f"with the last block as their complement, got {columns.shape[1]}"
            )
        return fine_axes(columns)

    def _entry_bounds(self, linf: ArrayLike) -> Vector:
        bounds = np.array(real_numbers(linf, "linf"))
        if np.isnan(bounds).any() or (bounds < 0).any():
            raise ValueError(f"linf must hold numbers that are not negative, got {bounds!r}")
        if (bounds == 0).any() and not self.allow_zero:
            raise ValueError("linf must be greater than 0; if zero is meant, pass allow_zero=True")
        bounds = self._per_block(bounds, "linf").copy()
        if self._tall and math.isfinite(bounds[-1]):
            raise ValueError(
                "linf of the last block must be infinite, as the complement of a basis has no "
                "coordinates; give the full basis to bound them"
            )
        return bounds

    def _per_block(self, values: Vector, name: str) -> Vector:
        if values.shape != (len(self.ranks),):
            raise ValueError(
                f"{name} must hold one value per block, got shape {values.shape} for "
                f"{len(self.ranks)} blocks"
            )
        return values

    def _tighten(self) -> None:
        notes = []
        reach = np.minimum(self.radii, self.cap or math.inf)
        for j in np.flatnonzero(self.l2 > reach * (1 + ALIKE)):
            notes.append(f"l2[{j}]={self.l2[j]:g} cannot be reached; tightened to {reach[j]:g}")
        self._set("l2", np.where(self.l2 > reach, reach, self.l2))
        if self.linf is not None:
            for j in np.flatnonzero(np.isfinite(self.linf) & (self.linf > self.l2 * (1 + ALIKE))):
                notes.append(f"linf[{j}]={self.linf[j]:g} tightened to l2[{j}]={self.l2[j]:g}")
            free = np.isinf(self.linf)
            self._set("linf", np.where(free, math.inf, np.minimum(self.linf, self.l2)))
            self.linf.setflags(write=False)
        self.l2.setflags(write=False)
        longest = math.hypot(*self.radii)
        if self.cap is not None and self.cap > longest * (1 + ALIKE):
            notes.append(f"cap={self.cap:g} cannot be reached; tightened to {longest:g}")
            self._set("cap", longest)
        if not longest > 0:
            raise ValueError("linf must leave something to hide, got zero for every block")
        self._set("_notes", tuple(notes))
