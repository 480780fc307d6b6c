"""Boxes: one bound per coordinate, the sensitivity profile of a vector query."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector, orthonormal
from taut._base.floats import ALIKE
from taut.accounting import Adjacency
from taut.noise._exact_sums import fine_axes, moderate
from taut.noise._sets.bases import SetInBasis, gauges_of, in_basis, out_of_basis
from taut.noise._sets.named_tables import checked_names
from taut.noise._sets.projections import clip_linf, clip_lp, project_l2_box, row_norms
from taut.noise._sets.sets import Outline, Source, frozen_vector, refuse_basis

__all__ = ["Box"]

# Of norms by cumulative sums of widths: up to some thousands of roundings, on the safe side.
_SUM_FACTOR = 1 + 1e-12


@dataclass(frozen=True, eq=False)
class Box(SetInBasis):
    """All vectors with |s_i| <= widths_i: coordinate i changes by at most ``widths[i]``.

    Args:
        widths: the sensitivity of every coordinate (of every coefficient, if there is a basis); a
            mapping gives them by the names of columns. Bounds that are not alike on both sides are
            `Ranges`.
        basis: a matrix with orthonormal columns; coefficients are the products with them.
        l2: a bound on the l2 norm of the whole, if it is below that of ``widths``: queries that are
            *coupled* need far less noise with it. A histogram, where a record is in one cell, is
            a `Histogram`, and needs less still.
        l1: the same for the l1 norm (of the coefficients).
        allow_zero: whether a width of zero is meant. No noise is added there, and the released
            value is a public constant.

    Bounds that contradict each other are tightened, and `notes` says so.

    **Guarantee**: Gaussian noise for the box has variances proportional to the widths, and is of
    least total variance among all covariances (Xiao, Wan and Devadas 2023, Theorem 4.5;
    Muthukrishnan and Kalyani 2025, Theorem 4). With ``l2`` the widths are levelled first; that is
    again least among all covariances. With ``l1`` only the l2 norm that it implies is used.

    Example:
        >>> from taut.noise import Box
        >>> box = Box([3.0, 1.0, 0.5])
        >>> box.clip([5.0, -0.2, -7.0])
        array([ 3. , -0.2, -0.5])
        >>> round(Box([1.0] * 100, l2=1.0).max_l2, 6)
        1.0
    """

    widths: Vector
    basis: Matrix | None = field(default=None, repr=False)
    l2: float | None = None
    l1: float | None = None
    allow_zero: bool = False

    def __init__(
        self,
        widths: ArrayLike | Mapping[str, float],
        basis: ArrayLike | None = None,
        *,
        l2: float | None = None,
        l1: float | None = None,
        allow_zero: bool = False,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
        source: Source | str = Source.DECLARED,
    ) -> None:
        self._start(adjacency, source, allow_zero=allow_zero)
        names = tuple(widths) if isinstance(widths, Mapping) else None
        widths = list(widths.values()) if isinstance(widths, Mapping) else widths
        self._set("widths", frozen_vector(widths, "widths", allow_zero=bool(allow_zero)))
        self._set("dimension", self.widths.size)
        self._set("columns", None if names is None else checked_names(names, self.dimension))
        self._set("basis", None if basis is None else self._full_basis(basis))
        self._set("l2", None if l2 is None else validate.positive(l2=l2))
        self._set("l1", None if l1 is None else validate.positive(l1=l1))
        self._tighten()
        self._refuse_thin(self.widths, "widths")

    @cached_property
    def max_l2(self) -> float:
        """The largest l2 norm; below a bound on l1 it is that of a corner or between two."""
        longest = _length(self.widths)
        if self.l2 is not None:
            longest = min(longest, self.l2)
        return longest if self.l1 is None else min(longest, _greedy_l2(self.widths, self.l1))

    def gauges(self, rows: Matrix) -> Vector:
        """Return the largest ratio of coefficient and width, or of norm and bound."""
        rows, factors = moderate(rows)
        coefficients = in_basis(rows, self.basis)
        ratios = gauges_of(np.abs(coefficients), self.widths, self._negligible)
        result: Vector = ratios.max(axis=1)
        for p, radius in ((2.0, self.l2), (1.0, self.l1)):
            if radius is not None:
                result = np.maximum(result, row_norms(coefficients, p) / radius)
        return result * factors

    def reach(self) -> Vector:
        """Return the widths; in a basis, what all coefficients together can reach."""
        if self.basis is None:
            return self.widths
        return np.minimum(np.abs(self.basis) @ self.widths, self.max_l2)

    def outline(self, *, by_axis: bool = False) -> Outline:
        """Return one block of rank one per coordinate, under the bound on the whole."""
        ranks = np.broadcast_to(np.float64(1.0), (self.dimension,))
        coupled = self.l1 is not None and self.max_l2 < _length(self.widths)
        return Outline(ranks, self.widths, self.max_l2, exact=not coupled)

    def l1_outline(self, *, by_axis: bool = False) -> Outline:
        """Return the widths, under the bound on the whole that l1 and l2 imply."""
        refuse_basis(self)
        cap, exact = min(float(self.widths.sum()), self.l1 or math.inf), True
        implied = math.inf if self.l2 is None else _greatest_l1(self.widths, self.l2)
        if implied < cap * (1 - ALIKE):
            cap, exact = implied, False
        ones = np.broadcast_to(np.float64(1.0), self.widths.shape)
        return Outline(ones, self.widths, cap, exact=exact)

    def _project(self, rows: Matrix) -> Matrix:
        # In a basis a row beyond 2^960 is clipped as a part of it, whose coefficients are floats.
        coefficients = rows if self.basis is None else in_basis(moderate(rows)[0], self.basis)
        if self.l2 is None:
            cut = clip_linf(coefficients, self.widths)
        else:
            cut = project_l2_box(coefficients, self.widths, self.l2)
        if self.l1 is not None:
            cut = clip_lp(cut, 1.0, self.l1)
        return cut if self.basis is None else out_of_basis(cut, self.basis)

    def _doubled(self) -> Self:
        return replace(
            self,
            widths=2 * self.widths,
            l2=None if self.l2 is None else 2 * self.l2,
            l1=None if self.l1 is None else 2 * self.l1,
        )

    def _full_basis(self, basis: ArrayLike) -> Matrix:
        columns = orthonormal(basis, self.dimension)
        if columns.shape[1] != self.dimension:
            raise ValueError(
                f"basis must have one column per width, got {columns.shape[1]} columns for "
                f"{self.dimension} widths"
            )
        return fine_axes(columns)

    def _tighten(self) -> None:
        """Bring widths and norms to what the others leave reachable, and note it."""
        if self.l2 is None and self.l1 is None:
            return
        notes = []
        least = min(self.l2 or math.inf, self.l1 or math.inf)
        if float(self.widths.max()) > least:
            changed = int(np.count_nonzero(self.widths > least))
            notes.append(f"{changed} widths were above the norm bound and tightened to {least:g}")
            self._set("widths", np.minimum(self.widths, least))
            self.widths.setflags(write=False)
        for name, implied in (("l2", _length(self.widths)), ("l1", float(self.widths.sum()))):
            given = getattr(self, name)
            if given is not None and given > implied * (1 + ALIKE):
                notes.append(f"{name}={given:g} cannot be reached and was tightened to {implied:g}")
                self._set(name, implied)
        self._set("_notes", tuple(notes))


def _length(widths: Vector) -> float:
    largest = float(widths.max())
    if 1e-140 < largest < 1e140:  # squares neither overflow nor vanish: spare a copy
        return math.sqrt(float(np.dot(widths, widths)))
    return largest * float(np.linalg.norm(widths / largest))


def _greatest_l1(widths: Vector, l2: float) -> float:
    """Return the largest l1 norm in a box and an l2 ball: that of min(width, level)."""
    up = np.sort(widths / l2)
    below = np.concatenate([[0.0], np.cumsum(up**2)[:-1]])
    left = np.arange(up.size, 0, -1)
    levels = np.sqrt(np.maximum(1 - below, 0.0) / left)
    free = levels <= up
    if not free.any():
        return float(widths.sum())
    first = int(np.argmax(free))
    return l2 * (float(up[:first].sum()) + float(left[first] * levels[first])) * _SUM_FACTOR


def _greedy_l2(widths: Vector, l1: float) -> float:
    """Return the largest l2 norm below widths and l1: the widest coordinates take all they can."""
    down = -np.sort(-widths)
    total = np.cumsum(down)
    full = int(np.searchsorted(total, l1, side="right"))
    rest = l1 - (float(total[full - 1]) if full else 0.0) if full < down.size else 0.0
    longest = math.hypot(float(np.linalg.norm(down[:full])), max(rest, 0.0))
    return longest * _SUM_FACTOR
