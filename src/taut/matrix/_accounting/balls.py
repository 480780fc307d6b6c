"""Balls in bins: one secret draw decides the steps of an example in all epochs."""

from __future__ import annotations

import numpy as np

from taut._base.arrays import Vector
from taut.accounting import Adjacency, PrivacyLoss, between, gaussian
from taut.matrix._accounting.samplers import BallsInBins
from taut.matrix._encoders.encoder import Encoder

__all__ = ["balls_in_bins_loss"]

_NORM_ERROR = 1e-12  # relative, of norms: sums of some ten thousand products
_ASKED_DELTA = 1e-6  # at which bounds are compared; any of them is sound


def balls_in_bins_loss(
    encoder: Encoder, sampler: BallsInBins, sigma: float, relation: Adjacency
) -> PrivacyLoss:
    """Return a mixture over bins between two that can be computed.

    The vector of a bin is the sum of the columns of its steps. If no two vectors share a row, the
    ratio is a mean of independent ones: random allocation, once for all epochs.
    """
    bins = min(sampler.bins, encoder.steps)
    lengths = _lengths(encoder, bins)
    largest, least = (
        float(lengths.max()) * (1 + _NORM_ERROR),
        float(lengths.min()) * (1 - _NORM_ERROR),
    )
    apart = bins // encoder.reach if encoder.reach <= bins else 1
    if encoder.reach == 1 or bins == 1:
        apart = bins
    above = gaussian(sigma, largest, adjacency=relation).allocated(apart)
    if apart == bins and largest * (1 - 4 * _NORM_ERROR) <= least:
        return above
    below = [_mean_direction(encoder, bins, sigma, relation)]
    if encoder.non_negative:
        below.append(gaussian(sigma, least, adjacency=relation).allocated(bins))
    reached = max(below, key=lambda loss: loss.epsilon_bounds(_ASKED_DELTA).lower)
    name = f"balls in {bins} bins ({encoder.steps} steps, sigma={sigma:g})"
    return between(above, above, reached, name=name, adjacency=relation)


def _lengths(encoder: Encoder, bins: int) -> Vector:
    """Return bounds on the norm of every bin's vector, for any contributions."""
    if encoder.reach <= bins:
        squares = np.append(encoder.column_norms() ** 2, np.zeros(-encoder.steps % bins))
        lengths: Vector = np.sqrt(squares.reshape(-1, bins).sum(axis=0))
        return lengths
    grams = [encoder.gram(np.arange(first, encoder.steps, bins)) for first in range(bins)]
    return np.sqrt([float(np.abs(gram).sum()) for gram in grams])


def _mean_direction(encoder: Encoder, bins: int, sigma: float, relation: Adjacency) -> PrivacyLoss:
    """Return what is seen along the sum of all columns: no bin moves it by less than this."""
    total = np.zeros(encoder.rows)
    for first in range(0, encoder.steps, _COLUMNS_AT_ONCE):
        some = np.arange(first, min(first + _COLUMNS_AT_ONCE, encoder.steps))
        total += encoder.columns(some).sum(axis=1)
    size = float(np.linalg.norm(total))
    moved = np.zeros(encoder.steps + (-encoder.steps % bins))
    for first in range(0, encoder.steps, _COLUMNS_AT_ONCE):
        some = np.arange(first, min(first + _COLUMNS_AT_ONCE, encoder.steps))
        # Contributions may have either sign: one that helps is chosen.
        moved[some] = np.abs(total @ encoder.columns(some))
    least = float(moved.reshape(-1, bins).sum(axis=0).min()) / size
    return gaussian(sigma / max(least * (1 - _NORM_ERROR), _LEAST_SHIFT), adjacency=relation)


_COLUMNS_AT_ONCE = 256  # of a matrix that is not written out: 20 megabytes for ten thousand rows
_LEAST_SHIFT = 1e-12  # where a direction sees nothing, its loss is as good as zero
