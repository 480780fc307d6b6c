"""Products: several statistics at once, each with a sensitivity set of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from taut._base.arrays import Matrix, Vector
from taut._base.floats import ALIKE
from taut.accounting import Adjacency
from taut.noise._sets.blocks import Blocks
from taut.noise._sets.boxes import Box
from taut.noise._sets.finite import FiniteSet, Polytope
from taut.noise._sets.ranges import CentredRanges
from taut.noise._sets.sets import Outline, SensitivitySet, Source

__all__ = ["Product", "parts_of"]


@dataclass(frozen=True, eq=False)
class Product(SensitivitySet):
    """All vectors whose parts lie in given sets: one record can change each part as far as it goes.

    Args:
        parts: the sets of the parts, in order, for one and the same relation. Sets of l1 balls of
            groups are products of `L1Ball`.

    **Guarantee**: noise for the product hides all parts at once. Gaussian noise is of least total
    variance among all covariances, and Laplace noise for a pure promise of least error among
    independent Laplace noise, if that holds for the parts and none has a bound over several blocks
    (a box or blocks with a common bound); such a part gets noise of one size, for the ball that its
    bound allows. The loss of Laplace noise is exact for l1 balls, l_inf balls, histograms and
    boxes without bounds on norms.

    Example:
        >>> from taut.noise import Histogram, L1Ball, Product, Ranges, optimal_laplace
        >>> table = Product(Ranges({"age": (18, 90)}), Histogram(["north", "south"]))
        >>> table.columns
        ('age', 'north', 'south')
        >>> table.clip([[99.0, 0.0, 1.0]])
        array([[90.,  0.,  1.]])
        >>> optimal_laplace(Product(L1Ball(3, 1.0), L1Ball(5, 0.5)), epsilon=1.0).scales.round(4)
        array([1.7469, 1.7469, 1.7469, 1.1694, 1.1694, 1.1694, 1.1694, 1.1694])
    """

    parts: tuple[SensitivitySet, ...]

    def __init__(self, *parts: SensitivitySet, source: Source | str | None = None) -> None:
        flat = tuple(inner for part in parts for inner in _inner(part))
        if not flat:
            raise ValueError("parts must be at least one set, got none")
        relations = sorted({str(part.adjacency) for part in flat})
        if len(relations) > 1:
            raise ValueError(f"parts must be for one relation, got {' and '.join(relations)}")
        self._begin(flat[0].adjacency, _weakest(flat) if source is None else source)
        self._set("parts", flat)
        self._set("dimension", sum(part.dimension for part in flat))
        self._set("columns", _joined_columns(flat))
        if all(part.contributions is not None for part in flat):
            own = (part.contributions for part in flat if part.contributions is not None)
            self._set("contributions", Product(*own, source=self.source))

    @property
    def max_l2(self) -> float:
        """The largest l2 norm: all parts at theirs."""
        return math.hypot(*(part.max_l2 for part in self.parts))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the parts note."""
        return tuple(note for part in self.parts for note in part.notes)

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """Where the coordinates of every part are."""
        ends = np.cumsum([0, *(part.dimension for part in self.parts)]).tolist()
        return tuple(slice(start, end) for start, end in pairwise(ends))

    def gauges(self, rows: Matrix) -> Vector:
        """Return the largest gauge of a part for every row."""
        pairs = zip(self.parts, self.places, strict=True)
        largest: Vector = np.max([part.gauges(rows[:, at]) for part, at in pairs], axis=0)
        return largest

    def reach(self) -> Vector:
        """Return what the parts can reach."""
        return np.concatenate([part.reach() for part in self.parts])

    def outline(self, *, by_axis: bool = False) -> Outline:
        """Return the blocks of all parts; one for a part with a bound over several of them."""
        return _joined(
            [part.outline(by_axis=by_axis) for part in self.parts],
            lambda radii: math.hypot(*radii),
        )

    def l1_outline(self, *, by_axis: bool = False) -> Outline:
        """Return the blocks of all parts; one for a part with a bound over several of them."""
        return _joined(
            [part.l1_outline(by_axis=by_axis) for part in self.parts],
            lambda lengths: float(lengths.sum()),
        )

    def _project(self, rows: Matrix) -> Matrix:
        # Checked and repaired part by part: shrinking a row would move parts that are inside.
        clipped = [part.clip(rows[:, at]) for part, at in zip(self.parts, self.places, strict=True)]
        return np.concatenate(clipped, axis=1)

    def _inside(self, rows: Matrix) -> Matrix:
        return self._project(rows.astype(np.float64))

    def _doubled(self) -> Self:
        return self

    def _for_relation(self, adjacency: Adjacency) -> Self:
        doubled = (part.differences() for part in self.parts)
        return type(self)(*doubled, source=self.source)


def parts_of(product: Product) -> Iterator[tuple[SensitivitySet, slice]]:
    """Yield every part with the place of its coordinates."""
    return zip(product.parts, product.places, strict=True)


def _joined(outlines: Sequence[Outline], together: Callable[[Vector], float]) -> Outline:
    """Return the outlines of all parts as one, which can be larger than the product, never smaller.

    Args:
        outlines: outlines of the parts, in l1 or l2.
        together: function that returns the length that radii have together, in that norm.
    """
    found = [_without_cap(outline, together) for outline in outlines]
    radii = np.concatenate([one.radii for one in found])
    ranks = np.concatenate([one.ranks for one in found])
    return Outline(ranks, radii, together(radii), exact=all(one.exact for one in found))


def _without_cap(outline: Outline, together: Callable[[Vector], float]) -> Outline:
    """Return the outline if its cap binds nothing, and else the ball of the cap."""
    if together(outline.radii) <= outline.cap * (1 + ALIKE):
        return outline
    rank, cap = np.array([float(outline.ranks.sum())]), np.array([outline.cap])
    # If every direction alone reaches the cap, a ball is what noise has to hide.
    alone = bool((outline.radii >= outline.cap * (1 - ALIKE)).all())
    return replace(outline, ranks=rank, radii=cap, exact=outline.exact and alone)


def _inner(part: SensitivitySet) -> tuple[SensitivitySet, ...]:
    """Return the parts that are multiplied; products of products are flat."""
    if isinstance(part, Product):
        return part.parts
    if isinstance(part, FiniteSet | Polytope | CentredRanges):
        raise ValueError(
            f"parts must be sets along coordinates whose rows have as many columns, got one of "
            f"the kind {type(part).__name__}; release it by itself and add the losses"
        )
    if isinstance(part, Box | Blocks) and part.basis is not None:
        raise ValueError("parts must not have a basis; release the coefficients, value @ basis")
    return (part,)


def _weakest(parts: tuple[SensitivitySet, ...]) -> Source:
    """Return why all bounds hold: declared, if one is, and clipped only if all are."""
    order = (Source.DECLARED, Source.ESTIMATED, Source.CLIPPED)
    return min((part.source for part in parts), key=order.index)


def _joined_columns(parts: tuple[SensitivitySet, ...]) -> tuple[str, ...] | None:
    """Return the names of all parts, if all have some and no two are the same."""
    names = [name for part in parts for name in part.columns or ()]
    if any(part.columns is None for part in parts) or len(set(names)) < len(names):
        return None
    return tuple(names)
