"""Trees under Poisson sampling: nodes are conditioned on from the root downwards."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from taut._base.arrays import Vector
from taut.accounting import Adjacency, PrivacyLoss, approximate, between, mixture_of_gaussians, zero
from taut.matrix._accounting.laws import PRUNED, binomial_law, pushed
from taut.matrix._encoders.tree import TreeEncoder

__all__ = ["forest_loss"]

_SPLITS = (0.05, 0.2)  # shares of delta for unlikely histories that are tried; all are sound
_LEAST_SHARED = 1e-280  # probability: shared by a billion histories, it is still a float
_LEFT_OUT = 1e-60  # of a binomial law, before histories make large counts likelier
_FACTOR_ERROR = 8 * float(np.finfo(np.float64).eps)  # of a factor, for every unit of its logarithm
_LARGEST_GAIN = 700.0  # logarithm of a factor that floats can hold


def forest_loss(
    encoder: TreeEncoder, rate: float, sigma: float, delta: float, relation: Adjacency
) -> PrivacyLoss:
    """Return the loss of a forest of trees, each completed, between two mixtures."""
    height, trees = encoder.height, -(-encoder.steps // encoder.leaves)
    candidates: dict[str, list[PrivacyLoss]] = {"remove": [], "add": []}
    for direction, found in candidates.items():
        found.append(_one_block(height, trees, rate, sigma, direction))
        found.extend(
            _root_first(height, trees, rate, sigma, share * delta, direction)
            for share in _SPLITS
            if share * delta > _LEAST_SHARED
        )
    best = {
        direction: min(found, key=lambda loss: loss.epsilon(delta, 1e-2))
        for direction, found in candidates.items()
    }
    reached = _projected(height, encoder.steps // encoder.leaves, rate, sigma, relation)
    name = f"tree({encoder.steps} steps, rate={rate:g}, sigma={sigma:g})"
    return between(best["remove"], best["add"], reached, name=name, adjacency=relation)


def _one_block(height: int, trees: int, rate: float, sigma: float, direction: str) -> PrivacyLoss:
    """Return the loss of a tree as one row: the norm is at most the count times a column's."""
    masses, left = binomial_law(1 << (height - 1), rate, _LEFT_OUT, up=True)
    tree = _mixture(masses, math.sqrt(height), sigma, direction)
    return trees * tree + approximate(0.0, min(trees * left, 0.5), adjacency=direction)


def _root_first(
    height: int, trees: int, rate: float, sigma: float, unlikely: float, direction: str
) -> PrivacyLoss:
    """Return the sum over levels; ``unlikely`` is the mass of histories that are given up."""
    total, lost = zero(adjacency=direction), unlikely if height > 1 else 0.0
    share = unlikely / (trees * max((1 << (height - 1)) - 1, 1))
    for level in range(height - 1, -1, -1):
        above = height - 1 - level
        masses, left = binomial_law(1 << level, rate, _LEFT_OUT, up=True)
        if above:
            tau = _history(height, level, rate, sigma, share, direction)
            masses, left = _tilted(masses, left, tau, above, sigma)
        nodes = trees << above
        lost += nodes * left
        total = total + nodes * _mixture(masses, 1.0, sigma, direction)
    return total + approximate(0.0, min(lost, 0.999), adjacency=direction)


def _tilted(
    masses: Vector, left: float, tau: float, above: int, sigma: float
) -> tuple[Vector, float]:
    """Return the law of a node's count given that the nodes above it sum to ``tau``.

    The factor exp((k tau - k^2 above / 2) / sigma^2) rises up to k = tau / above, then falls; its
    largest value at a count left out bounds what they gain.
    """

    def log_factor(counts: Vector) -> Vector:
        tilt: Vector = (counts * tau - counts**2 * above / 2) / sigma**2
        return tilt

    factors = log_factor(np.arange(float(masses.size)))
    peak = float(factors.max())
    tilted = masses * np.exp(factors - peak)
    scale = float(tilted.sum())
    error = _FACTOR_ERROR * (1 + float(np.abs(factors).max()))
    if left > 0:
        worst = np.array([max(tau / above, float(masses.size))])
        gain = min(float(log_factor(worst)[0]) - peak, _LARGEST_GAIN)
        left = min(left * math.exp(gain) / scale * (1 + 2 * error), 1.0)
    return pushed(tilted[None, :] / scale, np.array([left]), 2 * error, up=True)[0], left


def _history(
    height: int, level: int, rate: float, sigma: float, share: float, direction: str
) -> float:
    """Return what the sum of the nodes above a node exceeds with probability ``share`` at most."""
    above = height - 1 - level
    deviation = sigma * math.sqrt(above)
    if direction == "add":
        return -float(ndtri(share)) * deviation
    values, masses, lost = _shared(height, level, rate, share)
    goal = share - lost

    def excess(tau: float) -> float:
        return float(masses @ ndtr((values - tau) / deviation)) - goal

    low, high = 0.0, float(values[-1]) - float(ndtri(goal / 2)) * deviation
    return float(brentq(excess, low, high, xtol=1e-9 * high)) * (1 + 1e-8)


def _shared(height: int, level: int, rate: float, share: float) -> tuple[Vector, Vector, float]:
    """Return the law of the sum over drawn leaves of the nodes shared with one at ``level``."""
    law, lost = np.ones(1), 0.0
    for meet in range(level + 1, height):
        weight = height - meet
        leaves = 1 << (level + 1 if meet == level + 1 else meet - 1)
        masses, left = binomial_law(leaves, rate, share * 1e-3 / height, up=True)
        spread = np.zeros(weight * (masses.size - 1) + 1)
        spread[::weight] = masses
        law = np.convolve(law, spread)
        lost += left
    return np.arange(law.size, dtype=float), law, lost


def _mixture(masses: Vector, unit: float, sigma: float, direction: str) -> PrivacyLoss:
    """Return shifts by multiples of ``unit``; what lacks to one goes to the largest."""
    whole = masses.copy()
    whole[-1] += max(1 - float(whole.sum()), 0.0)
    return mixture_of_gaussians(
        whole / whole.sum(), unit * np.arange(whole.size), sigma, adjacency=direction
    )


def _projected(
    height: int, trees: int, rate: float, sigma: float, relation: Adjacency
) -> PrivacyLoss:
    """Return what is seen of complete trees along the sum of all columns."""
    if trees == 0:
        return zero(adjacency=relation)
    leaves = 1 << (height - 1)
    nodes = sum((leaves >> level) * 4**level for level in range(height))
    shift = (2 * leaves - 1) / math.sqrt(trees * nodes) * (1 - 1e-12)
    masses, _ = binomial_law(trees * leaves, rate, PRUNED, up=False)
    return mixture_of_gaussians(masses, shift * np.arange(masses.size), sigma, adjacency=relation)
