"""Clipping of rows: norms that neither overflow nor vanish, and exact projections.

Every function takes a table of finite float64 rows and returns a new one. None of them promises a
bound to the last digit: a sensitivity set checks what it clipped, in the type that it returns.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Matrix, Vector, along_rows, real_numbers

__all__ = [
    "NON_FINITE",
    "as_table",
    "clip_l2",
    "clip_l2_then_linf",
    "clip_linf",
    "clip_lp",
    "project_l1",
    "project_l2_box",
    "resized",
    "row_norms",
]

_MOST_POWER = 1e300  # p of a norm: a double, and its norms those of the maximum to all digits
_FAR = 2.0**400  # radii: the square of the inverse is a double
_ALL_EXPONENTS = 2200  # more than lie between the largest double and the smallest
NON_FINITE = ("zero", "raise")
"""What may happen to a row with a NaN or an infinity: it becomes the zero row, or an error."""


def as_table(rows: ArrayLike, dimension: int, non_finite: str = "zero") -> Matrix:
    """Return the rows as a new float64 table without NaN and infinities.

    A NaN that reaches a sum tells everybody who contributed it. Under ``"zero"`` its whole row
    becomes zero; under ``"raise"`` the call fails, which is for data whose flaws are no secret.

    Raises:
        ValueError: for another shape, an unknown policy, or a non-finite row under ``"raise"``.
    """
    if non_finite not in NON_FINITE:
        raise ValueError(f"non_finite must be 'zero' or 'raise', got non_finite={non_finite!r}")
    table = np.array(real_numbers(rows, "rows"), order="C", ndmin=2)
    if table.ndim != 2 or table.shape[1] != dimension:
        raise ValueError(
            f"rows must have {dimension} columns, the dimension of the set, "
            f"got an array of shape {np.shape(rows)}"
        )
    broken = ~along_rows(np.logical_and, np.isfinite(table), True)
    if broken.any():
        if non_finite == "raise":
            raise ValueError(
                f"rows must be finite, got {int(broken.sum())} with NaN or infinity; "
                "repair them, or use non_finite='zero' to count them as zero rows"
            )
        table[broken] = 0.0
    return table


def row_norms(rows: Matrix, p: float) -> Vector:
    """Return the l_p norm of every row, for 0 < p <= inf, whatever the size of its entries."""
    largest, _, lengths = _unit_rows(rows, p)
    with np.errstate(over="ignore", under="ignore"):
        return largest * lengths


def resized(rows: Matrix, p: float, lengths: Vector) -> Matrix:
    """Scale every row that is longer than its length in l_p down to it (the zero row stays)."""
    largest, unit, own = _unit_rows(rows, p)
    with np.errstate(all="ignore"):  # products of the largest doubles, quotients of the smallest
        longer = own > lengths / np.where(largest > 0, largest, 1.0)
        return np.where(longer[:, None], unit * (lengths / own)[:, None], rows)


def _unit_rows(rows: Matrix, p: float) -> tuple[Vector, Matrix, Vector]:
    """Return the largest entries, the rows divided by them, and the l_p norms of what that gives.

    Those norms are between 1 and the dimension to the power 1 / p, or zero.
    """
    size = np.abs(rows)
    largest: Vector = along_rows(np.maximum, size, 0.0)
    with np.errstate(over="ignore", under="ignore"):
        unit = rows / np.where(largest > 0, largest, 1.0)[:, None]
        if p == math.inf:
            return largest, unit, np.where(largest > 0, 1.0, 0.0)
        return largest, unit, along_rows(np.add, np.abs(unit) ** p, 0.0) ** (1 / p)


def clip_lp(rows: Matrix, p: float, radius: float) -> Matrix:
    """Scale every row that is longer than ``radius`` in l_p down to it (the zero row stays)."""
    # In few bits the limit would overflow beside it.
    power = p if isinstance(p, int) else float(p)
    if not (0 < power <= _MOST_POWER or power == math.inf):
        raise ValueError(
            f"p must be greater than 0 and at most {_MOST_POWER:g}, or inf, got p={p!r}"
        )
    return resized(rows, float(power), np.full(len(rows), validate.positive(radius=radius)))


def clip_l2(rows: Matrix, radius: float) -> Matrix:
    """Project every row onto the l2 ball."""
    return clip_lp(rows, 2.0, radius)


def clip_linf(rows: Matrix, bounds: ArrayLike) -> Matrix:
    """Project every row onto the box: each entry is cut at its bound."""
    bound = np.asarray(bounds, dtype=np.float64)
    return np.clip(rows, -bound, bound)


def clip_l2_then_linf(rows: Matrix, radius: float, bound: float) -> Matrix:
    """Scale to the l2 ball, then cut entries: the order of Xiao, Wan and Devadas (2023).

    The result obeys both bounds, yet is shorter than the projection, `project_l2_box`.
    """
    return clip_linf(clip_l2(rows, radius), validate.positive(bound=bound))


def project_l1(rows: Matrix, radius: float) -> Matrix:
    """Project every row onto the l1 ball: shrink all entries by the same amount, down to zero.

    Duchi, Shalev-Shwartz, Singer and Chandra (2008), Figure 1.
    """
    outside = row_norms(rows, 1.0) > radius
    if not outside.any():
        return rows.copy()
    size = np.abs(rows[outside])
    with np.errstate(over="ignore", under="ignore"):
        # How far entries are below the largest, in radii. An entry a radius below it becomes zero.
        below = np.minimum((size.max(axis=1)[:, None] - size) / radius, 1.0)
    sorted_up = np.sort(below, axis=1)
    count = np.arange(1, rows.shape[1] + 1)
    level = (1.0 + np.cumsum(sorted_up, axis=1)) / count
    kept = np.count_nonzero(sorted_up < level, axis=1)
    threshold = np.take_along_axis(level, np.maximum(kept, 1)[:, None] - 1, axis=1)
    result = rows.copy()
    result[outside] = np.sign(rows[outside]) * (np.maximum(threshold - below, 0.0) * radius)
    return result


def project_l2_box(rows: Matrix, bounds: ArrayLike, radius: float) -> Matrix:
    """Project every row onto the box |s_i| <= bound_i cut by the l2 ball.

    The projection is s_i = sign(v_i) min(t |v_i|, bound_i) with one t in (0, 1] for the row. The
    norm grows with t and bends where an entry reaches its bound, so t follows from a sort of the
    bends, b_i = bound_i / |v_i|.
    """
    bound = np.broadcast_to(np.asarray(bounds, dtype=np.float64), rows.shape)
    cut = clip_linf(rows, bound)
    outside = row_norms(cut, 2.0) > radius
    if outside.any():
        limits = np.minimum(bound[outside], radius)
        with np.errstate(all="ignore"):
            size = _brought_near(np.abs(rows[outside]), limits, radius)
            factor = _common_factor(size, limits, radius)
            kept = np.minimum(size * factor[:, None], limits)
        cut[outside] = np.sign(rows[outside]) * kept
    return cut


def _brought_near(size: Matrix, bound: Matrix, radius: float) -> Matrix:
    """Divide rows that are far outside by powers of two, so that the radius is not lost beside.

    The power is the last at which a row, cut at the bounds, is still longer than the radius: the
    factor that remains is between a half and one. Of an entry, four bounds are then enough.
    """
    far = np.flatnonzero(size.max(axis=1) > radius * _FAR)
    if not far.size:
        return size
    rows, limits = size[far], bound[far]
    low, high = np.zeros(far.size, dtype=np.intc), np.full(far.size, _ALL_EXPONENTS, dtype=np.intc)
    while (high - low > 1).any():
        middle = (low + high) // 2
        cut = np.minimum(np.ldexp(rows, -middle[:, None]), limits)
        longer = row_norms(cut, 2.0) > radius
        low, high = np.where(longer, middle, low), np.where(longer, high, middle)
    result = size.copy()
    result[far] = np.minimum(np.ldexp(rows, -low[:, None]), 4 * limits)
    return result


def _common_factor(size: Matrix, bound: Matrix, radius: float) -> Vector:
    """Return t with || min(t size, bound) || = radius for rows that are longer at t = 1."""
    largest = size.max(axis=1)[:, None]
    size, bound, reach = size / largest, bound / largest, radius / largest[:, 0]
    # Past t = 1 nothing bends that matters.
    bends = np.full_like(size, math.inf)
    np.divide(bound, size, out=bends, where=(bound <= size) & (size > 0))
    order = np.argsort(bends, axis=1)
    bends, size, bound = (np.take_along_axis(a, order, axis=1) for a in (bends, size, bound))
    cut_off = np.cumsum(bound**2, axis=1)
    free = np.cumsum((size**2)[:, ::-1], axis=1)[:, ::-1]
    free_after = np.concatenate([free[:, 1:], np.zeros((len(free), 1))], axis=1)
    steps = np.where(np.isfinite(bends), bends, 0.0)
    squares = np.where(np.isfinite(bends), cut_off + steps**2 * free_after, math.inf)
    count = np.count_nonzero(squares <= reach[:, None] ** 2, axis=1)
    rows = np.arange(len(size))
    at_bound = np.where(count > 0, cut_off[rows, np.maximum(count, 1) - 1], 0.0)
    rest = free[rows, np.minimum(count, size.shape[1] - 1)]
    room = np.maximum(reach**2 - at_bound, 0.0)
    factor: Vector = np.sqrt(room / np.where(rest > 0, rest, 1.0))
    # At the last bend the row still fits: where rounding leaves no room beyond it, stay there.
    passed = np.where(count > 0, steps[rows, np.maximum(count, 1) - 1], 0.0)
    return np.maximum(factor, passed)
