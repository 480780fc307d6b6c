"""What a sensitivity set is: a region that holds all that one record can change."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector, real_numbers
from taut.accounting import Adjacency
from taut.errors import UnsoundConfiguration
from taut.noise._sets.named_tables import NamedTable, arranged, checked_names
from taut.noise._sets.projections import as_table

__all__ = [
    "Outline",
    "SensitivitySet",
    "Source",
    "checked_vector",
    "even_outline",
    "frozen_vector",
    "refuse_basis",
]

_GAUGE_ERROR = 1e-12  # relative, of a norm: how far a row that was just clipped may seem outside


class Source(StrEnum):
    """Why a sensitivity bound holds.

    Attributes:
        DECLARED: somebody says so; the guarantee is as good as the word.
        CLIPPED: every record is clipped to the set before it is used.
        ESTIMATED: the bound was released privately, and its own loss is accounted for elsewhere.
    """

    DECLARED = "declared"
    CLIPPED = "enforced_by_clipping"
    ESTIMATED = "privately_estimated"


@dataclass(frozen=True, eq=False)
class Outline:
    """The bounds of a set that Gaussian noise sees: lengths of orthogonal blocks, and in total.

    Attributes:
        ranks: how many directions every block has.
        radii: how long the part in a block can be, in l2.
        cap: how long the whole can be, in l2.
        exact: whether every combination within the bounds occurs, in all directions of a block
            that are equal up to signs and order. If not, the outline is larger than the set: noise
            that hides it hides the set, but less might do.
    """

    ranks: Vector
    radii: Vector
    cap: float
    exact: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class SensitivitySet(ABC):
    """All that one record can add to a released vector: the value to which noise is fitted.

    Attributes:
        adjacency: the relation for which the set is meant. A set for replace-one holds differences
            of two contributions; `differences` derives it from the set of contributions.
        source: why the bound holds, see `Source`.
        contributions: set of single contributions; for a set of differences, the set that it was
            derived from.
        columns: the names of the coordinates, if they have some; see `named`.
        dimension: the number of coordinates.

    **Guarantee**: none by itself. A set is a promise about data, kept by `clip` or by whoever
    declares it; it must not depend on the private data unless that was paid for. A mechanism
    for the set is private for every query whose neighbouring values differ by a member.
    """

    adjacency: Adjacency = Adjacency.ADD_REMOVE
    source: Source = Source.DECLARED
    contributions: SensitivitySet | None = field(default=None, init=False, repr=False)
    columns: tuple[str, ...] | None = field(default=None, init=False, repr=False)
    dimension: int = field(init=False, repr=False)
    _notes: tuple[str, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set("adjacency", Adjacency(self.adjacency))
        try:
            self._set("source", Source(self.source))
        except ValueError:
            names = ", ".join(repr(str(member)) for member in Source)
            raise ValueError(f"source must be one of {names}, got {self.source!r}") from None

    def _begin(self, adjacency: Adjacency | str, source: Source | str) -> None:
        """Set what all sets have, for those with a constructor of their own."""
        self._set("adjacency", adjacency)
        self._set("source", source)
        SensitivitySet.__post_init__(self)

    @property
    @abstractmethod
    def max_l2(self) -> float:
        """The largest l2 norm in the set, or an upper bound on it."""

    @property
    def rounding(self) -> float:
        """By how much, in l2, a change by a clipped row can be off the set, beside 1e-13 of it."""
        return 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What was changed or is only a bound, in sentences to show."""
        return self._notes

    @abstractmethod
    def gauges(self, rows: Matrix) -> Vector:
        """Return for every row by how much the set must be scaled to hold it; 1 is the boundary."""

    @abstractmethod
    def _project(self, rows: Matrix) -> Matrix:
        """Return rows in the set, up to rounding."""

    @abstractmethod
    def _doubled(self) -> Self:
        """Return the set of differences of two members."""

    @abstractmethod
    def reach(self) -> Vector:
        """Return for every coordinate the largest |s_i| in the set, or an upper bound on it."""

    @property
    def row_columns(self) -> tuple[str, ...] | None:
        """The names of the columns that `clip` takes: those of the coordinates."""
        return self.columns

    def named(self, columns: Iterable[str]) -> Self:
        """Return the set with names for its coordinates.

        Rows may then come as a mapping or a data frame: its columns are taken by name, in the order
        of the set, and others are left out.

        Example:
            >>> from taut.noise import L1Ball
            >>> L1Ball(2, 1.0).named(["a", "b"]).clip({"b": [0.0, 3.0], "c": [9, 9], "a": [0.5, 0]})
            array([[0.5, 0. ],
                   [0. , 1. ]])
        """
        result = copy(self)
        result._set("columns", checked_names(columns, self.dimension))
        if self.contributions is not None:
            result._set("contributions", self.contributions.named(result.columns or ()))
        return result

    def contains(self, vector: ArrayLike, tolerance: float = _GAUGE_ERROR) -> bool:
        """Say whether a vector lies in the set, scaled by 1 + tolerance."""
        above = validate.non_negative(tolerance=tolerance)
        (row,) = as_table(np.atleast_1d(real_numbers(vector, "vector")), self.dimension, "raise")
        with np.errstate(all="ignore"):
            return bool(self.gauges(row[None, :])[0] <= 1 + above)

    def clip(self, rows: ArrayLike | NamedTable, non_finite: str = "zero") -> Matrix:
        """Bring every row into the set, and check the result in the type that is returned.

        Args:
            rows: one vector, or a table with one row per record; a mapping or a data frame is put
                in the order of `columns`. Arrays of float32 or float16 keep their type, everything
                else becomes float64.
            non_finite: ``"zero"`` counts a row with NaN or infinity as a row of zeros; ``"raise"``
                refuses it, which tells that it was there.

        **Guarantee**: with every record clipped, the sum of the rows has this sensitivity set for
        add/remove and zero-out (up to rounding, which all scales allow for). If the set is one of
        `differences`, rows are clipped to the contributions it was derived from. A row is clipped
        by itself, to the last bit, and no row makes the call fail or warn (under ``"zero"``).

        Raises:
            UnsoundConfiguration: for a set declared for replace-one, where two rows in the set can
                differ by more than the set.
        """
        if self.contributions is not None:
            return self.contributions.clip(rows, non_finite)
        if self.adjacency is Adjacency.REPLACE:
            raise UnsoundConfiguration(
                "a set declared for replace-one bounds differences of rows, so rows cannot be "
                "clipped to it; declare what one record contributes (adjacency='zero_out', say), "
                "clip to that and use its differences()"
            )
        rows, _ = arranged(rows, self.columns)
        given = real_numbers(rows, "rows")
        table = as_table(given, self.dimension, non_finite)
        own = np.asarray(rows).dtype
        kept = own if own in (np.float32, np.float16) else np.dtype(np.float64)
        with np.errstate(all="ignore"):  # no record may be told by a warning
            clipped = self._inside(self._project(table).astype(kept))
        return clipped.reshape(given.shape)

    def differences(self) -> Self:
        """Return the set of differences of two contributions, for the replace-one relation.

        **Guarantee**: for releases of all records. For sampled ones replace-one is another theorem
        than doubling; sample the loss, not the set.

        Raises:
            UnsoundConfiguration: if the set is already one of differences.
        """
        if self.adjacency is Adjacency.REPLACE:
            raise UnsoundConfiguration(
                "the set is already one of replace-one differences; "
                "take differences() of the set of contributions"
            )
        doubled = self._doubled()._for_relation(Adjacency.REPLACE)
        doubled._set("contributions", self)
        doubled._set("columns", self.columns)
        return doubled

    def _for_relation(self, adjacency: Adjacency) -> Self:
        """Return the same set, declared for another relation."""
        return replace(self, adjacency=adjacency)

    def outline(self, *, by_axis: bool = False) -> Outline:
        """Return the blocks and radii that Gaussian noise is fitted to.

        Args:
            by_axis: whether directions may be treated differently, as weights ask for; otherwise
                directions that are alike share a block.
        """
        if by_axis:
            ones = np.broadcast_to(np.float64(1.0), (self.dimension,))
            return Outline(ones, ones * self.max_l2, self.max_l2, exact=False)
        rank = np.array([float(self.dimension)])
        return Outline(rank, np.array([self.max_l2]), self.max_l2, exact=True)

    def l1_outline(self, *, by_axis: bool = False) -> Outline:
        """Return blocks of coordinates with bounds on their l1 norms, and on that of the whole.

        Scales of least error are constant within a block: the error is convex in 1 / scale, and
        what one record can change is symmetric under signs and permutations of the block.

        Args:
            by_axis: whether coordinates may be treated differently, as weights ask for.

        Raises:
            UnsoundConfiguration: for a set with a basis, whose blocks are none of coordinates.
        """
        whole = math.sqrt(self.dimension) * self.max_l2
        return even_outline(self.dimension, self.max_l2, whole, by_axis=by_axis, exact=False)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            _same(getattr(self, item.name), getattr(other, item.name))
            for item in fields(self)
            if item.compare
        )

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), self.dimension, self.max_l2, self.adjacency, self.source))

    def __hash__(self) -> int:
        return self._hash

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _inside(self, rows: Matrix) -> Matrix:
        """Shrink rows that rounding left outside; the sets are star-shaped around zero.

        A row that is still outside when a third of it is left has no place in this type: it becomes
        zero, which always has.
        """
        shrink = 4 * float(np.finfo(rows.dtype).eps)
        left = np.arange(len(rows))
        while (left := left[~(self.gauges(rows[left].astype(np.float64)) <= 1.0)]).size:
            rows[left] = rows[left] * rows.dtype.type(1 - shrink) if shrink < 1 else 0.0
            shrink *= 2
        return rows


def even_outline(
    dimension: int, entry: float, whole: float, *, by_axis: bool, exact: bool
) -> Outline:
    """Return the l1 outline of a set that is symmetric in its coordinates.

    Args:
        dimension: number of coordinates.
        entry: largest entry.
        whole: largest l1 norm.
        by_axis: whether every coordinate is a block of its own, or all of them are one.
        exact: whether the set has all that these bounds allow.
    """
    if by_axis:
        ones = np.ones(dimension)
        return Outline(ones, ones * entry, whole, exact=exact)
    return Outline(np.array([float(dimension)]), np.array([whole]), whole, exact=exact)


def refuse_basis(sensitivity: SensitivitySet) -> None:
    """Raise for sets that are described in another basis than the coordinates."""
    if getattr(sensitivity, "basis", None) is not None:
        raise UnsoundConfiguration(
            "this noise lies along coordinates, and the set has a basis; release the coefficients "
            "instead, value @ basis, with the same set without its basis"
        )


def frozen_vector(values: ArrayLike, name: str, *, allow_zero: bool) -> Vector:
    """Return finite numbers above zero (or, on request, at least zero) as a read-only vector."""
    vector = checked_vector(np.array(real_numbers(values, name)), name, allow_zero=allow_zero)
    vector.setflags(write=False)
    return vector


def checked_vector(values: ArrayLike, name: str, *, allow_zero: bool) -> Vector:
    """Return finite numbers above zero (or at least zero) as a vector, not copied if it is one."""
    vector = real_numbers(values, name)
    if vector.ndim != 1 or not vector.size:
        raise ValueError(f"{name} must be a non-empty vector, got shape {vector.shape}")
    smallest, largest = float(vector.min()), float(vector.max())  # NaN comes through
    if not (smallest >= 0 and largest < math.inf):
        bad = int(np.argmin(np.isfinite(vector) & (vector >= 0)))
        raise ValueError(
            f"{name} must be finite and not negative, got {name}[{bad}]={float(vector[bad])!r}"
        )
    if smallest == 0 and not allow_zero:
        raise ValueError(
            f"{name} must be greater than 0, got {name}[{int(np.argmin(vector))}]=0.0; zero says "
            "that no record can change this part, so that it is left without noise: "
            "if that is meant, pass allow_zero=True"
        )
    if not largest > 0:
        raise ValueError(f"{name} must not be zero everywhere: there is nothing to hide")
    return vector


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(np.asarray(one), np.asarray(other))
    return one == other
