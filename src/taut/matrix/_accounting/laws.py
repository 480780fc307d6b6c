"""Laws of random sums: how far an example moves one row of C x, rounded to a safe side."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betainc, log_ndtr, ndtri, xlog1py, xlogy

from taut._base.arrays import Matrix, Vector
from taut._base.floats import RELATIVE_ERROR

__all__ = ["binomial_law", "pushed", "sum_laws", "tail_point"]

PRUNED = 1e-22
"""Mass of a sum beyond its last component: counted as betrayed, or left out below."""
_STARTS = np.linspace(0.5, 1.05, 8)  # of Chernoff's tangents, in units of the normal quantile
# Of a sum that is rounded to the grid, relative: a sum this close above a node is taken for it, or
# every entry that lies on the grid would be rounded up a whole step. Shifts are stretched for it.
_FUZZ = 1e-11
# Of a tail point, relative: cumulated sums of a few thousand rows, and quotients that cancel down
# to 1e-3, are known to 1e-12.
_POINT_ERROR = 1e-11


def binomial_law(size: int, rate: float, most: float, *, up: bool) -> tuple[Vector, float]:
    """Return binomial probabilities of counts 0, 1, ..., and a bound on the mass left out.

    The law is not below the true one (not above it) in the order of distributions, whatever
    floating point did: small relative errors are paid for by the least (largest) counts.

    Args:
        size: number of trials.
        rate: probability of each.
        most: mass that may be left out; without ``up`` it counts as zero successes.
        up: whether the law is to be too large (else too small).
    """
    trials, chance = np.array([float(size)]), np.array([rate])
    top = _most_likely(trials, chance, most)
    masses, error = _probabilities(top, trials, chance)
    left = _beyond(top, trials, chance) if up else np.zeros(1)
    return pushed(masses, left, error, up=up)[0], float(left[0])


def pushed(law: Matrix, beyond: Vector, error: float, *, up: bool) -> Matrix:
    """Return laws that are not below (above) all whose probabilities are off by ``error``.

    All probabilities are multiplied by 1 + error and the least values give up what is too much, or
    by 1 - error and zero takes what is missing: every survival probability moves to the safe side
    (docs/theory/mixtures.md, larger shifts).

    Args:
        law: probabilities of increasing values from zero, shape (rows, values), off by a relative
            ``error`` at most.
        beyond: bounds on the mass above all values, shape (rows,).
        error: relative error of the probabilities.
        up: whether the laws are to be too large (else too small).
    """
    if not up:
        low: Matrix = law * (1 - error)
        low[:, 0] += np.maximum(1 - low.sum(axis=1), 0.0)
        return low
    high: Matrix = law * (1 + error)
    through = np.cumsum(high, axis=1)
    excess = np.maximum(through[:, -1] + beyond - 1, 0.0)[:, None]
    return high - np.clip(excess - (through - high), 0.0, high)


def _probabilities(top: int, trials: Vector, rate: Vector) -> tuple[Matrix, float]:
    """Return binomial probabilities of 0, 1, ..., ``top`` successes, a row for every binomial.

    Ratios of neighbours are multiplied, since differences of factorials would lose digits. The
    second value bounds their relative errors: those of the logarithms that are added up.
    """
    counts = np.arange(1.0, top + 1)
    rest = np.maximum(trials[:, None] - counts, -1.0)
    with np.errstate(divide="ignore"):
        logs = np.cumsum(np.log((rest + 1) / counts), axis=1)
    logs = np.concatenate([np.zeros((len(trials), 1)), logs], axis=1)
    counts, rest = np.arange(top + 1.0), np.maximum(trials[:, None] - np.arange(top + 1.0), 0.0)
    odds = xlogy(counts, rate[:, None]) + xlog1py(rest, -rate[:, None])
    masses: Matrix = np.exp(logs + odds)
    seen = masses > 0
    size = float(np.abs(logs[seen]).max(initial=0.0))
    error = RELATIVE_ERROR * ((top + 4) * size + float(np.abs(odds[seen]).max(initial=0.0)) + 1)
    return masses, error


def _beyond(count: int, trials: Vector, rate: Vector) -> Vector:
    """Return bounds on the probabilities of more than ``count`` successes: beta integrals.

    From `scipy.special`, since `scipy.stats` would double the time that an import takes.
    """
    some = trials > count
    tail = betainc(count + 1, np.where(some, trials - count, 1.0), rate)
    return np.where(some, tail * _BETA_FACTOR, 0.0)


# Beta integrals of SciPy were within 2e-12, relative, of forty digits in 400 random cases of up to
# 10^6 trials; more than a hundredfold of that costs no printed digit.
_BETA_FACTOR = 1 + 1e-9


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
        share: probability that may be exceeded with, below one half.
    """
    far = -float(ndtri(share))
    best = np.full(np.shape(deviation), math.inf)
    for start in (_STARTS * far).tolist():
        log_tail = float(log_ndtr(-start))
        slope = math.exp(-0.5 * start**2 - 0.5 * math.log(2 * math.pi) - log_tail)
        rise = slope / deviation
        top = np.maximum(rise * largest, 1e-9)
        with np.errstate(over="ignore", invalid="ignore"):
            bend = np.where(top < 1e-3, 0.5 + top / 4, (np.expm1(top) - top) / top**2)
            total = rate * (rise * mean + rise**2 * bend * square)
            tau = deviation * (start + (log_tail - math.log(share) + total) / slope)
        best = np.minimum(best, np.where(np.isnan(tau), math.inf, tau))
    return best * (1 + _POINT_ERROR)


def sum_laws(
    entries: Matrix, rates: Matrix, grid: Vector, group: float, most: float, *, up: bool
) -> tuple[Matrix, Vector, Vector]:
    """Return laws of sum_j x_j entries[i, j] for every row i, and the mass above the grid.

    Entries are added from the smallest to the largest; running sums are rounded up, or down, to the
    grid. Entries within the ratio ``group`` of each other are added as one binomial number of the
    largest (smallest), with the largest (smallest) of their probabilities.

    Args:
        entries: non-negative numbers, shape (rows, n).
        rates: probabilities of the coins, shape (rows, n).
        grid: zero, then a geometric sequence.
        group: ratio of entries that are taken as equal.
        most: mass of large counts that may be left out of every addition.
        up: whether laws are to be too large (else too small).

    Returns:
        Values, shape (len(grid),): the grid, stretched (shrunk) for sums that were taken for a
        node a little below (above). Probabilities of the values, shape (rows, len(grid)), and what
        lies above, (rows,).
    """
    order = np.argsort(entries, axis=1)
    values = np.take_along_axis(entries, order, axis=1)
    chances = np.take_along_axis(rates, order, axis=1)
    rows, size = values.shape
    law = np.zeros((rows, grid.size + 1))
    law[:, 0] = 1.0
    at = np.argmax(values > 0, axis=1)
    at[values[:, -1] <= 0] = size
    places = np.arange(size)
    additions, error = 0, 0.0
    while (active := np.flatnonzero(at < size)).size:
        start = at[active]
        first = values[active, start]
        stop = start + 1
        if group > 1:
            stop = np.maximum(np.sum(values[active] <= first[:, None] * group, axis=1), stop)
            chosen = (places >= start[:, None]) & (places < stop[:, None])
            part = chances[active]
            outer = np.where(chosen, part, 0.0).max(axis=1)
            chance = outer if up else np.where(chosen, part, 1.0).min(axis=1)
        else:
            chance = chances[active, start]
        unit = values[active, stop - 1] if up else first
        law[active], more = _added(law[active], unit, stop - start, chance, grid, most, up=up)
        at[active] = stop
        additions, error = additions + 1, error + more
    stretch = 1 + (additions + 1) * _FUZZ if up else 1 - (additions + 1) * _FUZZ
    beyond = law[:, -1] * (1 + error)
    return grid * stretch, pushed(law[:, :-1], beyond, error, up=up), beyond


def _added(
    law: Matrix,
    unit: Vector,
    counts: Vector,
    chance: Vector,
    grid: Vector,
    most: float,
    *,
    up: bool,
) -> tuple[Matrix, float]:
    """Return the laws after a binomial number of ``unit`` was added, and their relative error."""
    rows, size = law.shape
    top = max(_most_likely(counts, chance, most), 1)
    weights, error = _probabilities(top, counts, chance)
    ratio = math.log(grid[2] / grid[1])
    fuzz = _FUZZ / (2 * ratio)
    result: Matrix = law * weights[:, :1]
    result[:, -1] = law[:, -1]
    finite = law[:, :-1]
    base = np.arange(rows)[:, None] * size
    for k in range(1, top + 1):
        place = np.log((grid[None, :] + k * unit[:, None]) / grid[1]) / ratio
        index = 1 + (np.ceil(place - fuzz) if up else np.floor(place + fuzz)).astype(np.int64)
        index = np.clip(index, 0, size - 1 if up else size - 2)
        moved = np.bincount(
            (base + index).ravel(), (finite * weights[:, k : k + 1]).ravel(), rows * size
        )
        result += moved.reshape(rows, size)
    if up:
        result[:, -1] += _beyond(top, counts, chance)
    # A sum into one node has at most as many terms, and so roundings, as there are nodes.
    return result, error + _TWO_ROUNDINGS * (size + 2 * top + 4)


_TWO_ROUNDINGS = float(np.finfo(np.float64).eps)  # twice the relative error of one operation
