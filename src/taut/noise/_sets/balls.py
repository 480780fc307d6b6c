"""Balls and intersections of balls: sets that know neither coordinates nor signs apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut._base.floats import ALIKE
from taut.noise._sets.projections import (
    clip_l2,
    clip_linf,
    clip_lp,
    project_l1,
    project_l2_box,
    row_norms,
)
from taut.noise._sets.sets import Outline, SensitivitySet, even_outline

__all__ = ["L1Ball", "L2Ball", "LInfBall", "LpIntersection"]


@dataclass(frozen=True, eq=False)
class _Radii(Mapping[float, float]):
    """Radii by exponent that nobody can change."""

    pairs: tuple[tuple[float, float], ...]

    def __getitem__(self, p: float) -> float:
        return dict(self.pairs)[p]

    def __iter__(self) -> Iterator[float]:
        return (p for p, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return repr(dict(self.pairs))


@dataclass(frozen=True, eq=False)
class LpIntersection(SensitivitySet):
    """All vectors that several norms bound at once: ||s||_p <= radius, for every given p.

    Args:
        dimension: number of coordinates.
        radii: the bound for every exponent p, 0 < p <= inf.

    Bounds that the others make impossible to reach are tightened, and `notes` says so.
    `max_l2` is exact for one p, and for p <= 2 together with infinity; otherwise it is Hölder's
    upper bound, and `notes` says so too.

    **Guarantee**: Gaussian noise for the set is isotropic, and of least total variance among all
    covariances if `max_l2` is exact (Xiao, Wan and Devadas 2023, Theorem 4.3 and Corollary 4.4). An
    l_inf bound is worth nothing to it unless it lowers the largest l2 norm.

    `clip` is the Euclidean projection for {1}, {2}, {inf} and {2, inf}; otherwise entries are
    cut first and the row is scaled into what remains.

    Example:
        >>> from taut.noise import LpIntersection
        >>> both = LpIntersection(10, {1: 3.0, float("inf"): 0.8})
        >>> round(both.max_l2, 6)
        1.509967
        >>> both.clip([3.0, 0.1, 0, 0, 0, 0, 0, 0, 0, 0]).max()
        np.float64(0.8)
    """

    dimension: int
    radii: Mapping[float, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("dimension", validate.positive_integer(dimension=self.dimension))
        given = {_exponent(p): validate.positive(radius=c) for p, c in dict(self.radii).items()}
        if not given:
            raise ValueError("radii must name at least one norm, got an empty mapping")
        tight = _tightened(given, self.dimension)
        self._set("radii", _Radii(tuple(sorted(tight.items()))))
        self._set("_notes", tuple(_tightenings(given, tight)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Bounds that were tightened, and whether `max_l2` is only an upper bound."""
        if self.max_l2_is_exact:
            return self._notes
        return (*self._notes, f"max_l2={self.max_l2:g} is an upper bound (Hölder's inequality)")

    @property
    def max_l2_is_exact(self) -> bool:
        """Whether a vector of the set has the length `max_l2`."""
        finite = [p for p in self.radii if p < math.inf]
        return len(self.radii) == 1 or (len(finite) == 1 and finite[0] <= 2)

    @cached_property
    def max_l2(self) -> float:
        """The largest l2 norm, or Hölder's upper bound on it."""
        bounds = [_largest(p, c, self.dimension) for p, c in self.radii.items()]
        if math.inf in self.radii:
            bounds += [
                _vertex_norm(p, c, self.radii[math.inf], self.dimension)
                for p, c in self.radii.items()
                if p <= 2
            ]
        bounds += [
            _hoelder(p, c, r, b)
            for p, c in self.radii.items()
            for r, b in self.radii.items()
            if p < 2 < r
        ]
        return min(bounds)

    def gauges(self, rows: Matrix) -> Vector:
        """Return the largest ratio of norm and radius for every row."""
        ratios = [row_norms(rows, p) / c for p, c in self.radii.items()]
        largest: Vector = np.max(ratios, axis=0)
        return largest

    def reach(self) -> Vector:
        """Return the least radius: all norms of a vector with one entry are the same."""
        return np.full(self.dimension, min(self.radii.values()))

    def outline(self, *, by_axis: bool = False) -> Outline:
        """Return one block, or under weights one block per coordinate with a common cap."""
        if not by_axis:
            return replace(super().outline(), exact=self.max_l2_is_exact)
        ones, longest = np.ones(self.dimension), min(self.radii.values())
        # A box in a ball is all there is to {2, inf}; if a single coordinate can have the whole
        # length, the ball is as good as the set.
        exact = set(self.radii) <= {2.0, math.inf} or longest >= self.max_l2
        radii = ones * min(longest, self.max_l2)
        return Outline(ones, radii, self.max_l2, exact=exact and self.max_l2_is_exact)

    def l1_outline(self, *, by_axis: bool = False) -> Outline:
        """Return the largest entry, and the l1 norm of equal entries."""
        # They are the longest in l1 in every ball with p >= 1 at once.
        d = self.dimension
        whole = min(c * d ** max(0.0, 1 - 1 / p) for p, c in self.radii.items())
        exact = len(self.radii) == 1 or min(self.radii) >= 1
        if by_axis:
            exact = exact and set(self.radii) <= {1.0, math.inf}
        return even_outline(d, min(self.radii.values()), whole, by_axis=by_axis, exact=exact)

    def _project(self, rows: Matrix) -> Matrix:
        norms = dict(self.radii)
        if set(norms) == {2.0, math.inf}:
            return project_l2_box(rows, norms[math.inf], norms[2.0])
        if set(norms) == {1.0}:
            return project_l1(rows, norms[1.0])
        if math.inf in norms:
            rows = clip_linf(rows, norms.pop(math.inf))
        for p, radius in norms.items():
            rows = clip_lp(rows, p, radius)
        return rows

    def _doubled(self) -> Self:
        # Below p = 1 the triangle inequality holds for the p-th power only.
        doubled = {p: c * 2 ** max(1.0, 1 / p) for p, c in self.radii.items()}
        if min(doubled) < 1:
            doubled[2.0] = min(2 * self.max_l2, doubled.get(2.0, math.inf))
        return replace(self, radii=doubled)


@dataclass(frozen=True, eq=False)
class _Ball(SensitivitySet):
    dimension: int
    radius: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("dimension", validate.positive_integer(dimension=self.dimension))
        self._set("radius", validate.positive(radius=self.radius))

    def reach(self) -> Vector:
        """Return the radius for every coordinate."""
        return np.full(self.dimension, self.radius)

    def _doubled(self) -> Self:
        return replace(self, radius=2 * self.radius)


class _Round(_Ball):
    """A ball of which no vector is longer in l2 than one with a single entry."""

    _p: ClassVar[float]
    """The exponent of the norm that the radius bounds."""

    @property
    def max_l2(self) -> float:
        """The radius: a vector with one entry has the same length in every norm."""
        return self.radius

    def gauges(self, rows: Matrix) -> Vector:
        """Return the norm over the radius."""
        return row_norms(rows, self._p) / self.radius

    def outline(self, *, by_axis: bool = False) -> Outline:
        """Return the l2 ball of the same radius, exact for both.

        Every corner of the l1 ball has its length, so that no noise is wasted. In the l2 ball
        weights cannot buy anything, as the least noisy direction decides.
        """
        return replace(super().outline(by_axis=by_axis), exact=True)


class L1Ball(_Round):
    """All vectors with ||s||_1 <= radius. `clip` is the Euclidean projection.

    Example:
        >>> from taut.noise import L1Ball
        >>> L1Ball(2, 1.0).clip([2.0, 1.5])
        array([0.75, 0.25])
    """

    _p = 1.0

    def l1_outline(self, *, by_axis: bool = False) -> Outline:
        """Return the ball: one coordinate can have the whole length."""
        return even_outline(self.dimension, self.radius, self.radius, by_axis=by_axis, exact=True)

    def _project(self, rows: Matrix) -> Matrix:
        return project_l1(rows, self.radius)


class L2Ball(_Round):
    """All vectors with ||s||_2 <= radius. `clip` scales longer rows down.

    Example:
        >>> from taut.noise import L2Ball
        >>> L2Ball(2, 1.0).clip([[3.0, 4.0], [0.1, float("nan")]])
        array([[0.6, 0.8],
               [0. , 0. ]])
    """

    _p = 2.0

    def l1_outline(self, *, by_axis: bool = False) -> Outline:
        """Return the ball around, which touches where all entries are equal."""
        return replace(super().l1_outline(by_axis=by_axis), exact=not by_axis)

    def _project(self, rows: Matrix) -> Matrix:
        return clip_l2(rows, self.radius)


class LInfBall(_Ball):
    """All vectors whose entries are at most the radius, up to sign. `clip` cuts entries.

    Example:
        >>> from taut.noise import LInfBall
        >>> LInfBall(4, 0.5).max_l2
        1.0
    """

    @property
    def max_l2(self) -> float:
        """The corner's length."""
        return math.sqrt(self.dimension) * self.radius

    def gauges(self, rows: Matrix) -> Vector:
        """Return the largest entry over the radius."""
        return row_norms(rows, math.inf) / self.radius

    def outline(self, *, by_axis: bool = False) -> Outline:
        """Return one block, or under weights a box of equal widths."""
        if not by_axis:
            return super().outline()
        ones = np.ones(self.dimension)
        return Outline(ones, ones * self.radius, self.max_l2, exact=True)

    def l1_outline(self, *, by_axis: bool = False) -> Outline:
        """Return the cube: all entries can be as large as the radius."""
        whole = self.dimension * self.radius
        return even_outline(self.dimension, self.radius, whole, by_axis=by_axis, exact=True)

    def _project(self, rows: Matrix) -> Matrix:
        return clip_linf(rows, self.radius)


def _exponent(p: float) -> float:
    if p == math.inf:
        return math.inf
    return validate.positive(p=p)


def _largest(p: float, c: float, d: int) -> float:
    """Return the largest l2 norm in one l_p ball."""
    return c if p <= 2 else float(d ** (0.5 - 1 / p)) * c


def _vertex_norm(p: float, c: float, c_inf: float, d: int) -> float:
    """Return the length of (c_inf, ..., c_inf, rest, 0, ...), the longest for p <= 2 and inf."""
    # A quotient that is whole but for rounding is taken for whole: the rest is then zero.
    full = min(math.floor((c / c_inf) ** p * (1 + 1e-14)), d)
    rest = max(c**p - full * c_inf**p, 0.0) ** (1 / p) if full < d else 0.0
    return math.hypot(math.sqrt(full) * c_inf, float(min(rest, c_inf)))


def _hoelder(p: float, c: float, r: float, b: float) -> float:
    """Return the bound on l2 that interpolates between l_p and l_r, p < 2 < r."""
    theta = 0.5 * p if r == math.inf else (0.5 - 1 / r) / (1 / p - 1 / r)
    return float(c**theta * b ** (1 - theta))


def _tightened(radii: Mapping[float, float], d: int) -> dict[float, float]:
    """Return for every norm the least of its own bound and those that the others imply."""
    return {
        p: min(c * (1.0 if r <= p else d ** (1 / p - 1 / r)) for r, c in radii.items())
        for p in radii
    }


def _tightenings(given: Mapping[float, float], tight: Mapping[float, float]) -> list[str]:
    return [
        f"the l{p:g} bound {given[p]:g} cannot be reached and was tightened to {tight[p]:g}"
        for p in given
        if tight[p] < given[p] * (1 - ALIKE)
    ]
