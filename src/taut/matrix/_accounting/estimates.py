"""Estimates by sampling, where bounds are apart: never a guarantee, and named so."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from taut._base import validate
from taut._base.arrays import Matrix, Vector
from taut.errors import UnsoundConfiguration
from taut.matrix._accounting.samplers import BallsInBins
from taut.matrix._encoders.encoder import Encoder
from taut.matrix._workloads import refuse_dense

__all__ = ["AmplifiedEstimate", "estimate_balls_in_bins"]

# Outputs are drawn around multiples of a bin's vector, moved along the mean of all by deviations.
_SCALES, _MOVES = (1.0, 1.5, 2.0, 2.75), (0.0, 2.5, 5.0)
# The same without a bin's vector: outputs that speak against the record, for adding one.
_AWAY = (0.0, -2.5, -4.5)
_LARGEST_ESTIMATE = 200.0  # that is looked for


@dataclass(frozen=True)
class AmplifiedEstimate:
    """An epsilon found by sampling, with no guarantee.

    Attributes:
        epsilon: value at which the estimated delta is the one asked for; the larger direction.
        delta_error: relative standard error of that delta.
    """

    epsilon: float
    delta_error: float


def estimate_balls_in_bins(
    encoder: Encoder,
    sampler: BallsInBins,
    sigma: float,
    *,
    delta: float = 1e-6,
    draws: int = 120_000,
    seed: int = 0,
) -> AmplifiedEstimate:
    """Return an **estimate** of epsilon of balls in bins, to see how far the bounds are from it.

    Outputs are drawn by importance sampling; publish the upper bound of :func:`amplified_loss`
    instead.

    Args:
        encoder: matrix that correlates the noise, without entries below zero.
        sampler: number of bins.
        sigma: standard deviation of the independent noise.
        delta: delta of the guarantee that is looked for.
        draws: number of outputs.
        seed: seed of the draws, which are no secret.

    Raises:
        ValueError: if an argument is out of its range, or the matrix would be too large.
        UnsoundConfiguration: for entries below zero, where the worst contributions are not known.

    Example:
        >>> from taut.matrix import BallsInBins, Workload, estimate_balls_in_bins, square_root
        >>> encoder = square_root(Workload(40), bands=4)
        >>> found = estimate_balls_in_bins(encoder, BallsInBins(20), 4.0, draws=20_000)
        >>> 0.5 < found.epsilon < 1.5
        True
    """
    noise = validate.positive(sigma=sigma)
    target = validate.below_one(delta=validate.positive(delta=delta))
    count = validate.positive_integer(draws=draws)
    refuse_dense(encoder.steps)
    if not encoder.non_negative:
        raise UnsoundConfiguration(
            "an estimate needs the worst contributions, which are known for encoders without "
            "entries below zero only"
        )
    vectors = _bin_vectors(encoder, min(sampler.bins, encoder.steps), sampler.bins) / noise
    random = np.random.default_rng(seed)
    log_ratio, log_weight = _draws(vectors, count, random)
    found = [
        _solve(np.exp(log_weight + log_ratio), log_ratio, target),
        _solve(np.exp(log_weight), -log_ratio, target),
    ]
    return max(found, key=lambda estimate: estimate.epsilon)


def _bin_vectors(encoder: Encoder, used: int, bins: int) -> Matrix:
    """Return coordinates of the bins' vectors, shape (bins, used): inner products are kept."""
    sums = np.zeros((encoder.rows, used))
    for first in range(0, encoder.steps, used):
        some = np.arange(first, min(first + used, encoder.steps))
        sums[:, : some.size] += encoder.columns(some)
    values, directions = np.linalg.eigh(sums.T @ sums)
    vectors: Matrix = directions * np.sqrt(np.maximum(values, 0.0))
    return np.vstack([vectors, np.zeros((bins - used, used))])


def _draws(vectors: Matrix, count: int, random: np.random.Generator) -> tuple[Vector, Vector]:
    """Return logarithms of the ratio and of the weights of outputs without the record."""
    bins, size = vectors.shape
    mean = vectors.mean(axis=0)
    length = max(float(np.linalg.norm(mean)), 1e-300)
    proposals = [(scale, move / length) for scale in _SCALES for move in _MOVES]
    proposals += [(0.0, move / length) for move in _AWAY]
    each = -(-count // len(proposals))
    outputs = np.concatenate(
        [
            random.standard_normal((each, size))
            + scale * vectors[random.integers(bins, size=each)]
            + move * mean
            for scale, move in proposals
        ]
    )
    products, along = outputs @ vectors.T, outputs @ mean
    squares, crossed = (vectors**2).sum(axis=1), vectors @ mean
    log_ratio = logsumexp(products - squares / 2, axis=1) - math.log(bins)
    drawn = [
        logsumexp(
            scale * products
            + move * along[:, None]
            - (scale**2 * squares + 2 * scale * move * crossed + move**2 * length**2) / 2,
            axis=1,
        )
        - math.log(bins * len(proposals))
        for scale, move in proposals
    ]
    return log_ratio, -logsumexp(drawn, axis=0)


def _solve(masses: Vector, losses: Vector, delta: float) -> AmplifiedEstimate:
    """Return where the mean of mass (1 - exp(epsilon - loss))_+ is delta, and its error there."""

    def terms(epsilon: float) -> Vector:
        values: Vector = masses * -np.expm1(np.minimum(epsilon - losses, 0.0))
        return values

    def excess(epsilon: float) -> float:
        return float(terms(epsilon).mean()) - delta

    epsilon = brentq(excess, 0.0, _LARGEST_ESTIMATE) if excess(0.0) > 0 else 0.0
    error = float(terms(epsilon).std()) / math.sqrt(losses.size) / delta
    return AmplifiedEstimate(float(epsilon), error)
