"""Losses where a sampler hides the steps of an example: one call for every sampler."""

from __future__ import annotations

import math

import numpy as np

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss, gaussian, zero
from taut.errors import UnsoundConfiguration
from taut.matrix._accounting.allocation import cyclic_allocation_loss
from taut.matrix._accounting.balls import balls_in_bins_loss
from taut.matrix._accounting.conditional import conditional_loss
from taut.matrix._accounting.forest import forest_loss
from taut.matrix._accounting.samplers import (
    BallsInBins,
    CyclicAllocation,
    CyclicPoisson,
    PoissonRounds,
    SecretSampler,
)
from taut.matrix._encoders.encoder import Encoder
from taut.matrix._encoders.tree import TreeEncoder
from taut.matrix._workloads import refuse_dense

__all__ = ["amplified_loss"]

_LARGEST_SIGMA = 1e100  # and one over it the least


def amplified_loss(
    encoder: Encoder,
    sampler: SecretSampler,
    sigma: float,
    *,
    delta: float = 1e-6,
    adjacency: Adjacency | str = "zero_out",
) -> PrivacyLoss:
    """Return the loss of a run of correlated noise in which the steps of an example are secret.

    Args:
        encoder: matrix that correlates the noise. Entries below zero are taken by their size, which
            is sound and may be loose.
        sampler: how the steps of every example are drawn.
        sigma: standard deviation of the independent noise, for contributions of norm at most one.
        delta: delta at which the bound is to be sharp. A part of it is set aside for unlikely
            outputs, so that epsilon at a much smaller delta is infinite; ask for another loss.
            Without effect where the loss is exact.
        adjacency: zero-out, add/remove, or one of its halves.

    **Guarantee**: an upper bound for inputs that may depend on earlier outputs, by conditional
    composition (Choquette-Choo, Ganesh, Steinke and Thakurta 2024; docs/theory/amplified.md), with
    a certified lower bound beside it. Exact, as for DP-SGD, for independent noise, and for cyclic
    sampling with at most as many bands as groups, which cyclic allocation needs.

    Raises:
        ValueError: if an argument is out of its range, or the matrix would be too large.
        UnsoundConfiguration: under replace-one, for cyclic allocation with more bands than groups,
            and for anything that is not a sampler with a theorem, such as a shuffled order.

    Example:
        >>> from taut.matrix import CyclicPoisson, Workload, amplified_loss, square_root
        >>> encoder = square_root(Workload(1_000), bands=8)
        >>> loss = amplified_loss(encoder, CyclicPoisson(groups=8, rate=0.08), sigma=2.0)
        >>> round(loss.epsilon(delta=1e-6), 2)
        3.46
    """
    validate.instance(Encoder, encoder=encoder)
    noise = _within_range(sigma)
    target = validate.below_one(delta=validate.positive(delta=delta))
    relation = _checked(Adjacency(adjacency), sampler)
    if isinstance(sampler, BallsInBins):
        return balls_in_bins_loss(encoder, sampler, noise, target, relation)
    if isinstance(sampler, CyclicAllocation):
        return cyclic_allocation_loss(encoder, sampler, noise, relation)
    assert isinstance(sampler, PoissonRounds | CyclicPoisson)
    if sampler.rate == 0:
        return zero(adjacency=relation)
    groups = sampler.groups if isinstance(sampler, CyclicPoisson) else 1
    groups = min(groups, encoder.steps)
    if encoder.reach <= groups:
        return _orthogonal(encoder, groups, sampler.rate, noise, relation)
    if groups == 1 and isinstance(encoder, TreeEncoder) and sampler.rate < 1:
        return forest_loss(encoder, sampler.rate, noise, target, relation)
    refuse_dense(encoder.steps)
    if sampler.rate == 1:
        return _certain(encoder, groups, noise, relation)
    return conditional_loss(encoder, groups, sampler.rate, noise, target, relation)


def _within_range(sigma: float) -> float:
    """Return a standard deviation whose square, and that of its inverse, are doubles."""
    noise = validate.positive(sigma=sigma)
    if not 1 / _LARGEST_SIGMA <= noise <= _LARGEST_SIGMA:
        raise ValueError(
            f"sigma must be between {1 / _LARGEST_SIGMA:g} and {_LARGEST_SIGMA:g}, got "
            f"sigma={sigma!r}; noise so small hides nothing, and noise so large everything"
        )
    return noise


def _checked(relation: Adjacency, sampler: object) -> Adjacency:
    """Return the relation, if sampler and relation have a theorem."""
    if not isinstance(sampler, PoissonRounds | CyclicPoisson | CyclicAllocation | BallsInBins):
        raise UnsoundConfiguration(
            f"no theorem covers sampler={sampler!r}. A shuffled order has none with "
            "constants of use, and the simple pair for it is not the worst (docs/errata.md): use "
            "BallsInBins(bins), PoissonRounds(rate), CyclicPoisson(groups, rate) or "
            "CyclicAllocation(groups, slots)"
        )
    if relation is Adjacency.REPLACE:
        raise UnsoundConfiguration(
            "secret steps have no theorem for adjacency='replace'; use 'zero_out' or 'add_remove'"
        )
    return relation


def _orthogonal(
    encoder: Encoder, groups: int, rate: float, sigma: float, relation: Adjacency
) -> PrivacyLoss:
    """Return a sum of sampled Gaussians: the columns of one example share no row.

    Within a round of all groups, the largest column decides; where columns do not grow, as in a
    Toeplitz matrix, that is exact, since the first group has the largest in every round.
    """
    norms = encoder.column_norms()
    total = zero(adjacency=relation)
    values, counts = np.unique(
        [float(norms[first : first + groups].max()) for first in range(0, norms.size, groups)],
        return_counts=True,
    )
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        total = total + count * gaussian(sigma, value, adjacency=relation).poisson(rate)
    return total


def _certain(encoder: Encoder, groups: int, sigma: float, relation: Adjacency) -> PrivacyLoss:
    """Return one Gaussian: nothing is left to chance."""
    worst = 0.0
    for first in range(groups):
        worst = max(
            worst, float(np.abs(encoder.gram(np.arange(first, encoder.steps, groups))).sum())
        )
    return gaussian(sigma, math.sqrt(worst) * (1 + 1e-12), adjacency=relation)
