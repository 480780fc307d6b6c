"""Balls in bins: one secret draw decides the steps of an example in all epochs."""

from __future__ import annotations

import math

import numpy as np

from taut._base.arrays import Vector
from taut.accounting import Adjacency, PrivacyLoss, between, gaussian, mixture_of_gaussians, zero
from taut.matrix._accounting.chain import chain_losses
from taut.matrix._accounting.samplers import BallsInBins
from taut.matrix._encoders.encoder import Encoder, Indices

__all__ = ["balls_in_bins_loss", "bin_products"]

_NORM_ERROR = 1e-12  # relative, of norms: sums of some ten thousand products
_COLUMNS_AT_ONCE = 256  # of a matrix that is not written out: 20 megabytes for ten thousand rows
_MOST_SHIFTS = 200  # of a mixture that is a lower bound: more are rounded down to these


def balls_in_bins_loss(
    encoder: Encoder, sampler: BallsInBins, sigma: float, delta: float, relation: Adjacency
) -> PrivacyLoss:
    """Return a mixture over bins between some that can be computed.

    The vector of a bin is the sum of the columns of its steps. If no two vectors share a row, the
    ratio is a mean of independent ones: random allocation, once for all epochs. With fewer steps
    than bins, who is in a bin without a step does not take part: a Poisson sample.
    """
    bins = min(sampler.bins, encoder.steps)
    if bins < sampler.bins:
        part = balls_in_bins_loss(encoder, BallsInBins(bins), sigma, delta, relation)
        return part.poisson(bins / sampler.bins)
    lengths = _lengths(encoder, bins)
    largest, least = float(lengths.max()) * (1 + _NORM_ERROR), float(lengths.min())
    if largest == 0:
        return zero(adjacency=relation)
    above = _dominating(encoder, bins, largest, sigma, relation)
    if encoder.reach == 1 and largest * (1 - 4 * _NORM_ERROR) <= least:
        return above[0]
    best = {}
    chained = _around(encoder, bins, largest, sigma, delta)
    for half in ("remove", "add"):
        found = [PrivacyLoss(loss.terms, half) for loss in above]
        found.extend([chained[half]] if chained else [])
        best[half] = min(found, key=lambda loss: loss.epsilon(delta, 1e-3))
    below = [_mean_direction(encoder, bins, sigma, relation)]
    if encoder.non_negative and least > 0:
        length = least * (1 - _NORM_ERROR)
        below.append(gaussian(sigma, length, adjacency=relation).allocated(bins))
    reached = max(below, key=lambda loss: loss.epsilon_bounds(delta, 1e-3).lower)
    name = f"balls in {bins} bins ({encoder.steps} steps, sigma={sigma:g})"
    return between(best["remove"], best["add"], reached, name=name, adjacency=relation)


def _dominating(
    encoder: Encoder, bins: int, largest: float, sigma: float, relation: Adjacency
) -> list[PrivacyLoss]:
    """Return losses that dominate: of bins that share no row, or of pairs of neighbours.

    Both are means over rotations, by convexity. The bins of a pair share rows with each other only;
    their inner product may be raised to the largest of all (Kahane 1986), and what they have in
    common is then a factor of both.
    """
    reach = encoder.reach
    whole = gaussian(sigma, largest, adjacency=relation)
    if reach == 1 or bins == 1:
        return [whole.allocated(bins)]
    if reach > bins:
        return [whole]
    found = [whole.allocated(bins // reach)]
    pairs = bins // (reach + 1)
    shared = float(bin_products(encoder, bins, 1).max()) * (1 + _NORM_ERROR)
    own = largest**2 - shared
    if pairs and own > 0:
        common = gaussian(sigma, math.sqrt(shared), adjacency=relation)
        each = gaussian(sigma, math.sqrt(own) * (1 + _NORM_ERROR), adjacency=relation)
        found.append((common + each.allocated(2)).allocated(pairs))
    return found


def _around(
    encoder: Encoder, bins: int, largest: float, sigma: float, delta: float
) -> dict[str, PrivacyLoss] | None:
    """Return losses of bins half a reach apart, each of which shares rows with two others."""
    apart = (encoder.reach + 1) // 2
    length = bins // apart
    if not 1 < encoder.reach <= bins or length < _SHORTEST_CIRCLE:
        return None
    shared = max(
        float(bin_products(encoder, bins, lag).max()) for lag in range(apart, 2 * apart)
    ) * (1 + _NORM_ERROR)
    if shared == 0:
        return None
    own = max(largest**2 - 2 * shared, 0.0)
    return chain_losses(length, shared / sigma**2, own / sigma**2, delta)


_SHORTEST_CIRCLE = 3  # bins, so that neighbours to both sides differ


def _lengths(encoder: Encoder, bins: int) -> Vector:
    """Return bounds on the norm of every bin's vector, for any contributions."""
    if encoder.reach <= bins:
        squares = np.append(encoder.column_norms() ** 2, np.zeros(-encoder.steps % bins))
        lengths: Vector = np.sqrt(squares.reshape(-1, bins).sum(axis=0))
        return lengths
    grams = [encoder.gram(np.arange(first, encoder.steps, bins)) for first in range(bins)]
    return np.sqrt([float(np.abs(gram).sum()) for gram in grams])


def bin_products(encoder: Encoder, bins: int, apart: int) -> Vector:
    """Return inner products of vectors of bins ``apart`` steps apart, around the circle.

    Entries are taken by their size. Only columns closer than the encoder's reach, which must not
    exceed the bins, have products.

    Args:
        encoder: matrix whose columns are added up.
        bins: number of bins.
        apart: distance of the bins, less than their number.
    """
    products = np.zeros(bins)
    for lag in (apart, bins - apart):
        if lag >= min(encoder.reach, encoder.steps):
            continue
        inner = _lagged(encoder, lag)
        # A step and one ``bins - apart`` later: the later one is in the bin ``apart`` before.
        first = np.arange(inner.size) if lag == apart else np.arange(inner.size) + lag
        np.add.at(products, first % bins, inner)
        if apart == bins - apart:
            break
    return products


def _lagged(encoder: Encoder, lag: int) -> Vector:
    """Return inner products of columns ``lag`` steps apart, entries by size, shape (n - lag,)."""
    parts = []
    for some in _chunks(encoder.steps - lag):
        left = np.abs(encoder.columns(some))
        parts.append(np.einsum("ij,ij->j", left, np.abs(encoder.columns(some + lag))))
    return np.concatenate(parts)


def _chunks(size: int) -> list[Indices]:
    """Return the numbers below ``size``, some at a time."""
    return [
        np.arange(first, min(first + _COLUMNS_AT_ONCE, size))
        for first in range(0, size, _COLUMNS_AT_ONCE)
    ]


def _mean_direction(encoder: Encoder, bins: int, sigma: float, relation: Adjacency) -> PrivacyLoss:
    """Return what is seen along the sum of all columns: a mixture over the bins."""
    total = np.zeros(encoder.rows)
    for some in _chunks(encoder.steps):
        total += encoder.columns(some).sum(axis=1)
    size = float(np.linalg.norm(total))
    if size == 0:
        return zero(adjacency=relation)
    moved = np.zeros(encoder.steps + (-encoder.steps % bins))
    for some in _chunks(encoder.steps):
        # Contributions may have either sign: one that helps is chosen.
        moved[some] = np.abs(total @ encoder.columns(some))
    shifts = np.sort(moved.reshape(-1, bins).sum(axis=0)) / size * (1 - _NORM_ERROR)
    least = np.unique(np.linspace(0, bins, min(bins, _MOST_SHIFTS), endpoint=False).astype(int))
    masses = np.diff(np.append(least, bins)) / bins
    return mixture_of_gaussians(masses, shifts[least], sigma, adjacency=relation)
