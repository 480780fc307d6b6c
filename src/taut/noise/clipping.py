"""Clips of rows by norms, one row per record, for where no sensitivity set is at hand.

All of them take one vector or a table and return float64 of the same shape. Rows with NaN or
infinity become rows of zeros (``non_finite="zero"``) or an error (``"raise"``).

**Guarantee**: bounds hold up to rounding, which a sensitivity set's ``clip`` takes care of: use
that where noise is fitted to the set, as in ``LpIntersection(d, {2: 1.0, inf: 0.5}).clip(rows)``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from taut._base import arrays, validate
from taut.noise._sets import projections as _clipping

__all__ = ["clip_l2", "clip_l2_then_linf", "clip_linf", "clip_lp", "project_l2_linf", "row_norms"]


def clip_lp(
    rows: npt.ArrayLike, p: float, radius: float, *, non_finite: str = "zero"
) -> arrays.Matrix:
    """Scale every row that is longer than the radius in l_p down to it, for 0 < p <= inf.

    Example:
        >>> from taut.noise.clipping import clip_lp
        >>> clip_lp([3.0, 1.0], 1, 2.0)
        array([1.5, 0.5])
    """
    table = _table(rows, non_finite)
    return _clipping.clip_lp(table, p, radius).reshape(np.shape(rows))


def clip_l2(rows: npt.ArrayLike, radius: float, *, non_finite: str = "zero") -> arrays.Matrix:
    """Scale every row that is longer than the radius in l2 down to it: the Euclidean projection.

    Example:
        >>> from taut.noise.clipping import clip_l2
        >>> clip_l2([[3.0, 4.0], [0.1, 0.2]], 1.0)
        array([[0.6, 0.8],
               [0.1, 0.2]])
    """
    return clip_lp(rows, 2.0, radius, non_finite=non_finite)


def clip_linf(rows: npt.ArrayLike, bound: float, *, non_finite: str = "zero") -> arrays.Matrix:
    """Cut every entry at the bound, up to sign: the Euclidean projection.

    Example:
        >>> from taut.noise.clipping import clip_linf
        >>> clip_linf([3.0, -0.2], 1.0)
        array([ 1. , -0.2])
    """
    table = _table(rows, non_finite)
    return _clipping.clip_linf(table, validate.positive(bound=bound)).reshape(np.shape(rows))


def clip_l2_then_linf(
    rows: npt.ArrayLike, radius: float, bound: float, *, non_finite: str = "zero"
) -> arrays.Matrix:
    """Scale rows into the l2 ball, then cut entries: the order of Xiao, Wan and Devadas (2023).

    The result obeys both bounds, and is shorter than that of `project_l2_linf`.

    Example:
        >>> from taut.noise.clipping import clip_l2_then_linf
        >>> clip_l2_then_linf([3.0, -4.0], 1.0, 0.7)
        array([ 0.6, -0.7])
    """
    table = _table(rows, non_finite)
    return _clipping.clip_l2_then_linf(table, radius, bound).reshape(np.shape(rows))


def project_l2_linf(
    rows: npt.ArrayLike, radius: float, bound: float, *, non_finite: str = "zero"
) -> arrays.Matrix:
    """Move every row to the nearest one that obeys both bounds: the Euclidean projection.

    Example:
        >>> from taut.noise.clipping import project_l2_linf
        >>> project_l2_linf([3.0, -4.0], 1.0, 0.7).round(4)
        array([ 0.7, -0.7])
    """
    table = _table(rows, non_finite)
    length, largest = validate.positive(radius=radius), validate.positive(bound=bound)
    return _clipping.project_l2_box(table, largest, length).reshape(np.shape(rows))


def row_norms(rows: npt.ArrayLike, p: float) -> arrays.Vector:
    """Return the l_p norm of every row, for 0 < p <= inf, whatever the size of its entries.

    Args:
        rows: a table with one vector per row, or a single vector.
        p: the exponent of the norm, such as 2 or `math.inf`.

    Example:
        >>> from taut.noise.clipping import row_norms
        >>> row_norms([[3e200, 4e200]], 2)
        array([5.e+200])
    """
    power = p if isinstance(p, float) and p == np.inf else validate.positive(p=p)
    return _clipping.row_norms(_table(rows, "raise"), power)


def _table(rows: npt.ArrayLike, non_finite: str) -> arrays.Matrix:
    shape = np.shape(rows)
    if len(shape) not in (1, 2):
        raise ValueError(f"rows must be a vector or a table, got shape {shape}")
    return _clipping.as_table(rows, shape[-1], non_finite)
