"""Integrals of log-concave functions, enclosed by their values at equal distances.

Between two knots a concave function lies above their chord, and below the chords of the cells at
either side. So values alone enclose the integral of its exponential, from knots that are close to
within the second order, and no derivative is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taut._base.arrays import Matrix, Vector

__all__ = ["LogIntegrals", "log_integrals"]

_ADDED = 2.0**-50  # relative error of a sum of exponentials, for each term and each unit of a log


class LogIntegrals(NamedTuple):
    """Bounds on the logarithms of integrals, one for every function, shape (m,)."""

    lower: Vector
    upper: Vector


def log_integrals(
    logs: Matrix, width: float, doubts: Matrix, *, begins: bool = False
) -> LogIntegrals:
    """Return bounds on log of the integral of exp(L) for concave functions L.

    Args:
        logs: values of L at equal distances, shape (m, n + 1), minus infinity where exp(L) is
            zero.
        width: distance of two knots.
        doubts: how far off values may be, shape (m, n + 1).
        begins: whether exp(L) is zero to the left of the first knot.
    """
    with np.errstate(invalid="ignore"):  # differences of infinities, which are masked
        lower = _chords(logs - doubts)
        upper = _extended(logs, doubts, begins=begins)
    size = np.abs(np.where(np.isfinite(logs), logs, 0.0)).max(axis=1)
    room = _ADDED * (logs.shape[1] + size)
    return LogIntegrals(
        _summed(lower) + np.log(width) - room, _summed(upper) + np.log(width) + room
    )


def _chords(logs: Matrix) -> Matrix:
    """Return the logarithms of cells below chords, in cell widths."""
    return _exponential(logs[:, :-1], logs[:, 1:])


def _extended(logs: Matrix, doubts: Matrix, *, begins: bool) -> Matrix:
    """Return the logarithms of cells below the chords of their neighbours, and of both tails."""
    left, right = logs[:, :-1], logs[:, 1:]
    # Twice the doubt of the end of a chord, and once that of its start, wherever it is extended.
    room = 3 * np.maximum(doubts[:, :-1], doubts[:, 1:])
    onward = np.full_like(left, np.inf)
    onward[:, 1:] = _exponential(left, 2 * left - np.roll(left, 1, axis=1))[:, 1:]
    back = np.full_like(left, np.inf)
    back[:, :-1] = _exponential(2 * right - np.roll(right, -1, axis=1), right)[:, :-1]
    first = np.isfinite(np.roll(left, 1, axis=1)) & np.isfinite(left)
    last = np.isfinite(np.roll(right, -1, axis=1)) & np.isfinite(right)
    cells = np.minimum(np.where(first, onward, np.inf), np.where(last, back, np.inf))
    # Where a function is positive is an interval: no cell outside of its knots holds any of it.
    somewhere = np.isfinite(logs).any(axis=1, keepdims=True)
    outside = ~(np.isfinite(left) | np.isfinite(right)) & somewhere
    neighbours = np.maximum(room, np.maximum(np.roll(room, 1, axis=1), np.roll(room, -1, axis=1)))
    cells = np.where(outside, -np.inf, cells + neighbours)
    ends = [_tail(logs[:, -1], logs[:, -2], doubts[:, -2:])]
    if not begins:
        ends.append(_tail(logs[:, 0], logs[:, 1], doubts[:, :2]))
    return np.concatenate([cells, np.stack(ends, axis=1)], axis=1)


def _tail(last: Vector, before: Vector, doubts: Matrix) -> Vector:
    """Return the logarithm, in cell widths, of what lies beyond the last knot, where L falls."""
    doubt = doubts.max(axis=1)
    fall = before - last - 2 * doubt
    with np.errstate(divide="ignore", invalid="ignore"):
        falling = last + doubt - np.log(np.maximum(fall, 0.0))
    return np.where(np.isneginf(last), -np.inf, falling)


def _exponential(first: Matrix, second: Matrix) -> Matrix:
    """Return log of the mean of exp over lines from one value to another; -inf if one is."""
    top = np.maximum(first, second)
    fall = np.abs(first - second)
    small = fall < 1e-8  # the mean is then 1 - fall / 2, and 1 within the doubt of values
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(small, -fall / 2, np.log(-np.expm1(-fall) / np.where(small, 1.0, fall)))
    known = np.isfinite(first) & np.isfinite(second)
    return np.where(known, top + share, -np.inf)


def _summed(logs: Matrix) -> Vector:
    """Return the logarithm of the sum of exponentials in every row."""
    top = logs.max(axis=1)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        total: Vector = np.log(np.exp(logs - safe[:, None]).sum(axis=1))
    return np.where(np.isposinf(top), np.inf, safe + total)
