"""Conditional composition (MMCC): rows one after the other, given that histories are likely."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, ndtri

from taut._base.arrays import Matrix, Vector
from taut.accounting import Adjacency, PrivacyLoss, between, mixture_of_gaussians
from taut.matrix._accounting.laws import PRUNED, binomial_law, sum_laws, tail_point
from taut.matrix._accounting.rows import composed_profile
from taut.matrix._encoders.encoder import Encoder

__all__ = ["conditional_loss"]

_SHARE = 0.2  # of delta for unlikely histories: near the best in all cases tried, and sound
_RATIO = 1.01  # of neighbours of the grid of sums: rounding up costs half of it at most
_GROUPED = 1.005  # entries closer than this are added together, where there are many
_FEW_COLUMNS = 256  # up to which every entry is added by itself
_HEADROOM = 1.3  # of the grid above the largest sum that is likely
_LOWER_COMPONENTS = 400  # of the projected mixture


def conditional_loss(
    encoder: Encoder, groups: int, rate: float, sigma: float, delta: float, relation: Adjacency
) -> PrivacyLoss:
    """Return the best of several orders of conditioning, in each direction."""
    firsts = [0] if groups == 1 or encoder.non_increasing else list(range(groups))
    chosen = [
        np.abs(encoder.columns(np.arange(first, encoder.steps, groups)))[first:] for first in firsts
    ]
    shape = -(-chosen[0].shape[0] // groups), chosen[0].shape[1]
    losses = {}
    for direction in ("remove", "add"):
        profiles = []
        for ordered in _orders(chosen, groups):
            parts = [
                _conditioned(part, rate, sigma, _SHARE * delta, direction, shape)
                for part in ordered
            ]
            entries = np.maximum.reduce([part[0] for part in parts])
            rates = np.maximum.reduce([part[1] for part in parts])
            bad = max(part[2] for part in parts)
            profiles.append(_profile(entries, rates, sigma, bad, delta, direction))
        losses[direction] = min(profiles, key=lambda loss: loss.epsilon(delta))
    first = encoder.columns(np.arange(0, encoder.steps, groups))
    reached = _projected(first, rate, sigma, relation)
    name = (
        f"matrix({encoder.steps} steps, groups={groups}, rate={rate:g}, sigma={sigma:g}, "
        f"near delta={delta:g})"
    )
    return between(losses["remove"], losses["add"], reached, name=name, adjacency=relation)


def _orders(chosen: list[Matrix], groups: int) -> list[list[list[Matrix]]]:
    """Return blocks of rows in the orders that are tried: of release, reversed, and a factor."""
    if groups > 1:
        blocks = [
            [part[start : start + groups] for start in range(0, part.shape[0], groups)]
            for part in chosen
        ]
        return [blocks, [part[::-1] for part in blocks]]
    (matrix,) = chosen
    rows = [[matrix[i : i + 1] for i in range(matrix.shape[0])]]
    found = [[rows[0][::-1]]]
    try:
        factor = np.linalg.cholesky(matrix.T @ matrix).T
        if (factor >= -1e-12).all():
            factor = np.maximum(factor, 0.0)
            found.append([[factor[i : i + 1] for i in range(factor.shape[0])]])
    except np.linalg.LinAlgError:
        pass
    return found if matrix.shape[1] > _FEW_COLUMNS else [rows, *found]


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
            tau = -float(ndtri(share)) * deviation
        else:
            longest = np.sqrt(own.max(axis=1))[:, None] * np.sqrt(own)
            tau = tail_point(deviation, mean[used], square[used], longest[used], rate, share)
        surprise = (2 * tau - own[used]) / (2 * sigma**2)
        rates[used] = expit(math.log(rate) - math.log1p(-rate) + np.maximum(surprise, -700.0))
        rates[used] = np.minimum(rates[used] * (1 + 1e-12), 1.0)
    pad = ((0, shape[0] - len(blocks)), (0, shape[1] - size))
    return np.pad(norms, pad), np.pad(rates, pad), unlikely if pairs else 0.0


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


def _profile(
    entries: Matrix, rates: Matrix, sigma: float, bad: float, delta: float, direction: str
) -> PrivacyLoss:
    """Return the loss of independent rows, with the mass of unlikely histories at infinity."""
    few = entries.shape[1] <= _FEW_COLUMNS
    grid = _grid(entries, rates)
    law, beyond = sum_laws(entries, rates, grid, 1.0 if few else _GROUPED, up=True)
    return composed_profile(law, grid / sigma, bad + float(beyond.sum()), delta, direction)


def _grid(entries: Matrix, rates: Matrix) -> Vector:
    """Return zero and a geometric sequence from the least entry beyond every likely sum."""
    least = float(entries[entries > 0].min())
    mean = (entries * rates).sum(axis=1)
    spread = np.sqrt((entries**2 * rates).sum(axis=1))
    # Bernstein: beyond mean + z spread + z^2 largest / 3 there is less than what is pruned.
    far = 10.5
    sums = mean + far * spread + far**2 * entries.max(axis=1) / 3
    top = float(np.minimum(sums, entries.sum(axis=1)).max()) * _HEADROOM
    steps = math.ceil(math.log(top / least) / math.log(_RATIO)) + 2
    return np.append(0.0, least * _RATIO ** np.arange(steps))


def _projected(matrix: Matrix, rate: float, sigma: float, relation: Adjacency) -> PrivacyLoss:
    """Return what is seen along the sum of all columns, with shifts rounded down."""
    direction = matrix.sum(axis=1)
    # Contributions may have either sign: one that helps is chosen for every step.
    shifts = np.abs(direction @ matrix) / float(np.linalg.norm(direction))
    shifts *= 1 - 1e-12
    spread = shifts[shifts > 0]
    if np.ptp(spread) <= 1e-9 * spread.max():
        masses, _ = binomial_law(spread.size, rate, PRUNED)
        masses[0] += max(1 - float(masses.sum()), 0.0)
        return mixture_of_gaussians(
            masses / masses.sum(), spread.min() * np.arange(masses.size), sigma, adjacency=relation
        )
    rates = np.full((1, shifts.size), rate)
    whole = _grid(shifts[None, :], rates)
    steps = min(whole.size, _LOWER_COMPONENTS)
    grid = np.append(0.0, np.geomspace(whole[1], whole[-1], steps - 1))
    law, _ = sum_laws(shifts[None, :], rates, grid, 1.0, up=False)
    masses = law[0]
    masses[0] += max(1 - float(masses.sum()), 0.0)
    return mixture_of_gaussians(masses / masses.sum(), grid, sigma, adjacency=relation)
