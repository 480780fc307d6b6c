"""Conditional composition (MMCC): rows one after the other, given that histories are likely."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import expit, ndtri

from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency, PrivacyLoss, between, mixture_of_gaussians, zero
from taut.matrix._accounting.laws import PRUNED, binomial_law, sum_laws, tail_point
from taut.matrix._accounting.rows import composed_profile
from taut.matrix._encoders.encoder import Encoder

__all__ = ["conditional_loss", "projected_loss"]

_SHARE = 0.2  # of delta for unlikely histories: near the best in all cases tried, and sound
_RATIO = 1.01  # of neighbours of the grid of sums: rounding up costs half of it at most
_GROUPED = 1.005  # entries closer than this are added together, where there are many
_FEW_COLUMNS = 256  # up to which every entry is added, and every row is taken, by itself
_HEADROOM = 1.3  # of the grid above the largest sum that is likely
_LEAST_ENTRY = 1e-6  # of the largest entry: smaller ones are raised to it, and cost nothing
_LOWER_COMPONENTS = 400  # of the projected mixture
_FINER = 16  # nodes of the grid of its sums for each of them
_LOWER_GROUPED = 1.001  # its entries closer than this are added together, where there are many
_CUT_COUNTS = 1e-6  # of delta, for all counts that are left out
_TOGETHER = 64  # rows that one law may stand for
_LARGER = 1.002  # mean and mean square of such a law, against the average of its rows
_FACTOR_LOSS = 1e-4  # of the noise, which an inexact factor may cost at most
_WORTH_A_LOOK = 1.5  # size of rows over the least at which they are still looked at; all are sound
_FIRST_ORDER = 0.8  # epsilon up to which sizes order losses in all cases tried
_ODDS_FACTOR = 1 + 1e-12  # expit of logits up to 700 is known to 2e-13


def conditional_loss(
    encoder: Encoder, groups: int, rate: float, sigma: float, delta: float, relation: Adjacency
) -> PrivacyLoss:
    """Return the best of several orders of conditioning, in each direction."""
    firsts = [0] if groups == 1 or encoder.non_increasing else list(range(groups))
    chosen = [
        np.abs(encoder.columns(np.arange(first, encoder.steps, groups)))[first:] for first in firsts
    ]
    reached = projected_loss(
        encoder.columns(np.arange(0, encoder.steps, groups)), rate, sigma, relation
    )
    if not any(part.any() for part in chosen):
        return zero(adjacency=relation)
    shape = -(-chosen[0].shape[0] // groups), chosen[0].shape[1]
    orders = _orders(chosen, groups)
    losses = {}
    for direction in ("remove", "add"):
        found = [_one_block(chosen, rate, sigma)]
        for ordered, less in orders:
            noise = sigma * (1 - less)
            parts = [
                _conditioned(part, rate, noise, _SHARE * delta, direction, shape)
                for part in ordered
            ]
            entries = np.maximum.reduce([part[0] for part in parts])
            rates = np.maximum.reduce([part[1] for part in parts])
            found.append(_Rows(entries, rates, noise, max(part[2] for part in parts)))
        losses[direction] = _best(found, delta, direction)
    name = (
        f"matrix({encoder.steps} steps, groups={groups}, rate={rate:g}, sigma={sigma:g}, "
        f"near delta={delta:g})"
    )
    return between(losses["remove"], losses["add"], reached, name=name, adjacency=relation)


def _best(found: list[_Rows], delta: float, direction: str) -> PrivacyLoss:
    """Return the least loss; rows that look much worse are computed if epsilon is large."""
    by_size = sorted(found, key=lambda rows: rows.size())
    best = _profile(by_size[0], delta, direction)
    epsilon = best.epsilon(delta)
    for rows in by_size[1:]:
        if rows.size() > _WORTH_A_LOOK * by_size[0].size() and epsilon < _FIRST_ORDER:
            break
        other = _profile(rows, delta, direction)
        if (value := other.epsilon(delta)) < epsilon:
            best, epsilon = other, value
    return best


@dataclass(frozen=True)
class _Rows:
    """Rows that were made independent: one of several upper bounds.

    Attributes:
        entries: how far every step moves a row, shape (rows, n).
        rates: probabilities of the steps, shape (rows, n).
        sigma: standard deviation of the noise.
        bad: mass of unlikely histories.
    """

    entries: Matrix
    rates: Matrix
    sigma: float
    bad: float

    def size(self) -> float:
        """Return the first terms of the chi-squared divergence: which rows are worth a closer look.

        E exp(c c' / sigma^2) - 1 for two independent copies of a row's shift.
        """
        mean = (self.entries * self.rates).sum(axis=1) / self.sigma
        spread = (self.entries**2 * self.rates * (1 - self.rates)).sum(axis=1) / self.sigma**2
        return float((mean**2 + (spread + mean**2) ** 2 / 2).sum())


def _one_block(chosen: list[Matrix], rate: float, sigma: float) -> _Rows:
    """Return all rows as one: whoever took part in some steps moved it by their norms at most."""
    width = chosen[0].shape[1]
    norms = [np.sqrt((part**2).sum(axis=0)) * (1 + 1e-12) for part in chosen]
    entries = np.maximum.reduce([np.pad(row, (0, width - row.size)) for row in norms])[None, :]
    return _Rows(entries, np.full(entries.shape, rate), sigma, 0.0)


def _orders(chosen: list[Matrix], groups: int) -> list[tuple[list[list[Matrix]], float]]:
    """Return blocks of rows in the orders that are tried: of release, reversed, and a factor.

    With each comes the share of the noise that it costs to take an inexact factor.
    """
    if groups > 1:
        blocks = [
            [part[start : start + groups] for start in range(0, part.shape[0], groups)]
            for part in chosen
        ]
        return [(blocks, 0.0), ([part[::-1] for part in blocks], 0.0)]
    (matrix,) = chosen
    rows = _single(matrix)
    found: list[tuple[list[list[Matrix]], float]] = [([rows[::-1]], 0.0)]
    factor, less = _upper_factor(matrix)
    if factor is not None:
        found.append(([_single(factor)], less))
    return found if matrix.shape[1] > _FEW_COLUMNS else [([rows], 0.0), *found]


def _single(matrix: Matrix) -> list[Matrix]:
    """Return the rows as blocks of one."""
    return [matrix[i : i + 1] for i in range(matrix.shape[0])]


def _upper_factor(matrix: Matrix) -> tuple[Matrix | None, float]:
    """Return an upper-triangular non-negative F with the inner products of the matrix, if any.

    Computed, it satisfies |FᵀF - CᵀC| <= e (Higham 2002, Theorem 10.3), so that FᵀF is at least
    (1 - e |F⁻¹|²) CᵀC: C is F with a little less noise, and more noise on top. The second value
    is that little.
    """
    gram = matrix.T @ matrix
    size = gram.shape[0]
    try:
        factor = np.linalg.cholesky(gram).T
    except np.linalg.LinAlgError:
        return None, 0.0
    if (factor < -_SIGN_ERROR).any():
        return None, 0.0
    error = 8 * np.finfo(np.float64).eps * (size + matrix.shape[0]) * float(np.trace(gram))
    error += 2 * _SIGN_ERROR * size * math.sqrt(float(np.trace(gram)))
    inverse = solve_triangular(factor, np.eye(size))
    less = error * float((inverse**2).sum())
    return (np.maximum(factor, 0.0), less) if less < _FACTOR_LOSS else (None, 0.0)


_SIGN_ERROR = 1e-12  # entries this far below zero are zero but for rounding


def _conditioned(
    blocks: list[Matrix],
    rate: float,
    sigma: float,
    unlikely: float,
    direction: str,
    shape: tuple[int, int],
) -> tuple[Matrix, Matrix, float]:
    """Return norms of the blocks by column, probabilities given likely histories, and their cost.

    The inner products of histories enter through their row sums, row sums of squares, and
    diagonal, which are updated block by block.
    """
    size = blocks[0].shape[1]
    norms = np.array([np.sqrt((block**2).sum(axis=0)) for block in blocks])
    own = np.vstack([np.zeros(size), np.cumsum(norms**2, axis=0)[:-1]])
    mean, square = _history_sums(blocks)
    used = (norms > 0) & (own > 0)
    pairs = int(used.sum())
    rates = np.full(norms.shape, rate)
    if pairs:
        share = unlikely / pairs
        deviation = sigma * np.sqrt(own[used])
        if direction == "add":
            tau = -float(ndtri(share)) * deviation * (1 + 1e-12)
        else:
            longest = np.sqrt(own.max(axis=1))[:, None] * np.sqrt(own)
            tau = tail_point(deviation, mean[used], square[used], longest[used], rate, share)
        surprise = (2 * tau - own[used] * (1 - 1e-12)) / (2 * sigma**2)
        rates[used] = expit(math.log(rate) - math.log1p(-rate) + np.maximum(surprise, -700.0))
        rates[used] = np.minimum(rates[used] * _ODDS_FACTOR, 1.0)
    pad = ((0, shape[0] - len(blocks)), (0, shape[1] - size))
    return np.pad(norms * (1 + 1e-12), pad), np.pad(rates, pad), unlikely if pairs else 0.0


def _history_sums(blocks: list[Matrix]) -> tuple[Matrix, Matrix]:
    """Return sums and sums of squares of the rows of the history's Gram matrix, before each block.

    For blocks of one row no Gram matrix is formed: with K = F Fᵀ, (G_i f_i)_j is a product of the
    part of K above its diagonal with F.
    """
    size = blocks[0].shape[1]
    if all(block.shape[0] == 1 for block in blocks):
        rows = np.vstack(blocks)
        kernel = rows @ rows.T
        moved = np.tril(kernel, -1) @ rows
        more = rows * rows.sum(axis=1)[:, None]
        squares = 2 * rows * moved + rows**2 * np.diagonal(kernel)[:, None]
        zero = np.zeros((1, size))
        return (
            np.vstack([zero, np.cumsum(more, axis=0)[:-1]]),
            np.vstack([zero, np.cumsum(squares, axis=0)[:-1]]),
        )
    gram = np.zeros((size, size))
    mean, square = np.zeros((len(blocks), size)), np.zeros((len(blocks), size))
    for i, block in enumerate(blocks):
        mean[i], square[i] = gram.sum(axis=1), (gram**2).sum(axis=1)
        gram += block.T @ block
    return mean, square


def _profile(rows: _Rows, delta: float, direction: str) -> PrivacyLoss:
    """Return the loss of independent rows, with the mass of unlikely histories at infinity."""
    some = (rows.entries > 0).any(axis=1)
    # Larger entries dominate: tiny ones would only stretch the grid.
    tiny = _LEAST_ENTRY * float(rows.entries.max())
    raised = np.where(rows.entries > 0, np.maximum(rows.entries, tiny), 0.0)
    entries, rates, counts = _merged(raised[some], rows.rates[some])
    most = min(PRUNED, _CUT_COUNTS * delta / (entries.size * float(counts.max())))
    grid = _grid(entries, rates, most)
    group = 1.0 if entries.shape[1] <= _FEW_COLUMNS else _GROUPED
    values, law, beyond = sum_laws(entries, rates, grid, group, most, up=True)
    lost = rows.bad + float(counts @ beyond)
    return composed_profile(law, counts, values / rows.sigma, lost, delta, direction)


def _merged(entries: Matrix, rates: Matrix) -> tuple[Matrix, Matrix, Vector]:
    """Return fewer rows, each for several neighbours, and how many.

    A row's law depends on its entries with their rates in any order. The largest entries of several
    rows, the next largest, and so on, each with the largest of their rates, are not below any of
    them; rows are taken together as long as that is not much above their average.
    """
    order = np.argsort(-entries, axis=1, kind="stable")
    entries = np.take_along_axis(entries, order, axis=1)
    rates = np.take_along_axis(rates, order, axis=1)
    single = np.ones(len(entries))
    if entries.shape[1] <= _FEW_COLUMNS and len(entries) <= 2 * _FEW_COLUMNS:
        return entries, rates, single
    means, squares = (entries * rates).sum(axis=1), (entries**2 * rates).sum(axis=1)
    found: list[tuple[Vector, Vector, int]] = []
    start, most = 0, _TOGETHER
    while start < len(entries):
        some = slice(start, start + most)
        entry, chance = entries[some].max(axis=0), rates[some].max(axis=0)
        count = min(most, len(entries) - start)
        close = entry @ chance <= _LARGER * means[some].mean()
        if count == 1 or (close and entry**2 @ chance <= _LARGER * squares[some].mean()):
            found.append((entry, chance, count))
            start, most = start + count, min(2 * most, _TOGETHER)
        else:
            most = max(count // 2, 1)
    rows, chances, counts = zip(*found, strict=True)
    return np.array(rows), np.array(chances), np.array(counts, dtype=float)


def _grid(entries: Matrix, rates: Matrix, most: float) -> Vector:
    """Return zero and a geometric sequence from the least entry beyond every likely sum."""
    least = float(entries[entries > 0].min())
    mean = (entries * rates).sum(axis=1)
    spread = np.sqrt((entries**2 * rates).sum(axis=1))
    # Bernstein: beyond mean + z spread + z^2 largest / 3 there is about what may be left out.
    far = math.sqrt(-2.2 * math.log(most))
    sums = mean + far * spread + far**2 * entries.max(axis=1) / 3
    top = float(np.minimum(sums, entries.sum(axis=1)).max()) * _HEADROOM
    steps = math.ceil(math.log(top / least) / math.log(_RATIO)) + 2
    return np.append(0.0, least * _RATIO ** np.arange(steps))


def projected_loss(matrix: Matrix, rate: float, sigma: float, relation: Adjacency) -> PrivacyLoss:
    """Return what is seen along the sum of all columns, with shifts rounded down."""
    direction = matrix.sum(axis=1)
    size = float(np.linalg.norm(direction))
    if size == 0:
        return zero(adjacency=relation)
    # Contributions may have either sign: one that helps is chosen for every step.
    shifts = np.abs(direction @ matrix) / size
    shifts *= 1 - 1e-12
    spread = shifts[shifts > 0]
    if np.ptp(spread) <= 1e-9 * spread.max():
        masses, _ = binomial_law(spread.size, rate, PRUNED, up=False)
        return mixture_of_gaussians(
            masses, spread.min() * np.arange(masses.size), sigma, adjacency=relation
        )
    rates = np.full((1, shifts.size), rate)
    whole = _grid(shifts[None, :], rates, PRUNED)
    fine = np.append(0.0, np.geomspace(whole[1], whole[-1], _FINER * _LOWER_COMPONENTS))
    group = 1.0 if shifts.size <= _FEW_COLUMNS else _LOWER_GROUPED
    values, law, _ = sum_laws(shifts[None, :], rates, fine, group, PRUNED, up=False)
    # Sums are rounded down on a fine grid many times, and once to the least of several nodes.
    start = np.append(0, 1 + _FINER * np.arange(_LOWER_COMPONENTS))
    return mixture_of_gaussians(
        np.add.reduceat(law[0], start), values[start], sigma, adjacency=relation
    )
