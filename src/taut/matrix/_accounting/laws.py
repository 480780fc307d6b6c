"""Laws of random sums: how far an example moves one row of C x, rounded to a safe side."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betainc, log_ndtr, ndtri, xlog1py, xlogy

from taut._base.arrays import Matrix, Vector
from taut._base.floats import UP

__all__ = ["binomial_law", "sum_laws", "tail_point"]

PRUNED = 1e-22
"""Mass of a sum beyond its last component: counted as betrayed, or left out below."""
_STARTS = np.linspace(0.5, 1.05, 8)  # of Chernoff's tangents, in units of the normal quantile


def binomial_law(size: int, rate: float, most: float) -> tuple[Vector, float]:
    """Return binomial probabilities of counts 0, 1, ..., and a bound on the mass left out.

    Args:
        size: number of trials.
        rate: probability of each.
        most: mass that may be left out.
    """
    trials, chance = np.array([float(size)]), np.array([rate])
    top = _most_likely(trials, chance, most)
    masses = _probabilities(top, trials, chance)[0]
    return masses, float(_beyond(top, trials, chance)[0])


def _probabilities(top: int, trials: Vector, rate: Vector) -> Matrix:
    """Return binomial probabilities of 0, 1, ..., ``top`` successes, a row for every binomial.

    Ratios of neighbours are multiplied, since differences of factorials would lose digits.
    """
    counts = np.arange(1.0, top + 1)
    rest = np.maximum(trials[:, None] - counts, -1.0)
    with np.errstate(divide="ignore"):
        logs = np.cumsum(np.log((rest + 1) / counts), axis=1)
    logs = np.concatenate([np.zeros((len(trials), 1)), logs], axis=1)
    counts, rest = np.arange(top + 1.0), np.maximum(trials[:, None] - np.arange(top + 1.0), 0.0)
    odds = xlogy(counts, rate[:, None]) + xlog1py(rest, -rate[:, None])
    masses: Matrix = np.exp(logs + odds)
    return masses


def _beyond(count: int, trials: Vector, rate: Vector) -> Vector:
    """Return the probabilities of more than ``count`` successes: beta integrals.

    From `scipy.special`, since `scipy.stats` would double the time that an import takes.
    """
    some = trials > count
    tail = betainc(count + 1, np.where(some, trials - count, 1.0), rate)
    return np.where(some, tail * UP, 0.0)


def _most_likely(trials: Vector, rate: Vector, mass: float) -> int:
    """Return the least count that every one of some binomials exceeds with at most ``mass``."""
    low, high = -1, int(trials.max())
    while high - low > 1:
        middle = (low + high) // 2
        if _beyond(middle, trials, rate).max() <= mass:
            high = middle
        else:
            low = middle
    return high


def tail_point(
    deviation: Vector, mean: Vector, square: Vector, largest: Vector, rate: float, share: float
) -> Vector:
    """Return tau with P[deviation Z + sum_j x_j a_j > tau] <= share, for independent coins x_j.

    A tangent to the logarithm of the normal tail gives one for every starting point; the
    exponential of a small number is bounded by its second Taylor polynomial with a larger
    coefficient (docs/theory/amplified.md).

    Args:
        deviation: standard deviation of the normal part, positive.
        mean: sum of the a_j.
        square: sum of their squares.
        largest: bound on every a_j.
        rate: probability of every coin.
        share: probability that may be exceeded with.
    """
    far = -float(ndtri(share))
    best = np.full(np.shape(deviation), math.inf)
    for start in (_STARTS * far).tolist():
        log_tail = float(log_ndtr(-start))
        slope = math.exp(-0.5 * start**2 - 0.5 * math.log(2 * math.pi) - log_tail)
        rise = slope / deviation
        top = np.maximum(rise * largest, 1e-9)
        with np.errstate(over="ignore"):
            bend = np.where(top < 1e-3, 0.5 + top / 4, (np.expm1(top) - top) / top**2)
            total = rate * (rise * mean + rise**2 * bend * square)
        tau = deviation * (start + (log_tail - math.log(share) + total) / slope)
        best = np.minimum(best, np.where(np.isnan(tau), math.inf, tau))
    return best * UP


def sum_laws(
    entries: Matrix, rates: Matrix, grid: Vector, group: float, *, up: bool
) -> tuple[Matrix, Vector]:
    """Return laws of sum_j x_j entries[i, j] for every row i, and the mass above the grid.

    Entries are added from the smallest to the largest; running sums are rounded up, or down, to the
    grid. Entries within the ratio ``group`` of each other are added as one binomial number of the
    largest (smallest), with the largest (smallest) of their probabilities.

    Args:
        entries: non-negative numbers, shape (rows, n).
        rates: probabilities of the coins, shape (rows, n).
        grid: zero, then a geometric sequence.
        group: ratio of entries that are taken as equal.
        up: whether laws are to be too large (else too small).

    Returns:
        Probabilities of the grid's values, shape (rows, len(grid)), and what lies above, (rows,).
    """
    order = np.argsort(entries, axis=1)
    values = np.take_along_axis(entries, order, axis=1)
    chances = np.take_along_axis(rates, order, axis=1)
    rows, size = values.shape
    law = np.zeros((rows, grid.size + 1))
    law[:, 0] = 1.0
    at = np.argmax(values > 0, axis=1)
    at[values[:, -1] <= 0] = size
    ratio = math.log(grid[2] / grid[1])
    while (active := np.flatnonzero(at < size)).size:
        start = at[active]
        first = values[active, start]
        stop = np.sum(values[active] <= first[:, None] * group, axis=1)
        stop = np.maximum(stop, start + 1)
        chosen = (np.arange(size) >= start[:, None]) & (np.arange(size) < stop[:, None])
        part = chances[active]
        if up:
            chance = np.where(chosen, part, 0.0).max(axis=1)
            unit = values[active, stop - 1]
        else:
            chance = np.where(chosen, part, 1.0).min(axis=1)
            unit = first
        law[active] = _added(law[active], unit, stop - start, chance, grid, ratio, up=up)
        at[active] = stop
    return law[:, :-1], law[:, -1]


def _added(
    law: Matrix,
    unit: Vector,
    counts: Vector,
    chance: Vector,
    grid: Vector,
    ratio: float,
    *,
    up: bool,
) -> Matrix:
    """Return the laws after a binomial number of ``unit`` was added to every row's sum."""
    rows, size = law.shape
    most = max(_most_likely(counts, chance, PRUNED), 1)
    weights = _probabilities(most, counts, chance)
    result: Matrix = law * weights[:, :1]
    result[:, -1] = law[:, -1]
    finite = law[:, :-1]
    base = np.arange(rows)[:, None] * size
    for k in range(1, most + 1):
        target = grid[None, :] + k * unit[:, None]
        place = np.log(target / grid[1]) / ratio
        index = 1 + (np.ceil(place - 1e-9) if up else np.floor(place + 1e-9)).astype(np.int64)
        index = np.clip(index, 0, size - 1 if up else size - 2)
        moved = np.bincount(
            (base + index).ravel(), (finite * weights[:, k : k + 1]).ravel(), rows * size
        )
        result += moved.reshape(rows, size)
    if up:
        result[:, -1] += _beyond(most, counts, chance)
    else:
        result[:, 0] += np.maximum(1 - result.sum(axis=1), 0.0)
    return result
