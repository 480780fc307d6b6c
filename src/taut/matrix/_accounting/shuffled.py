"""A binary tree over a shuffled order: what is known without a theorem of use."""

from __future__ import annotations

import math

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss, between, gaussian
from taut.errors import UnsoundConfiguration

__all__ = ["shuffled_tree_bounds"]


def shuffled_tree_bounds(
    steps: int, sigma: float, *, adjacency: Adjacency | str = "zero_out"
) -> PrivacyLoss:
    """Return what a binary tree over a shuffled order costs, at least and at most.

    A diagnosis, not a sampler: upper bounds are those of a public order. Along the sum of all
    columns an example moves the nodes by sqrt(2 - 1/steps) in every order, so that no proof
    can bring the loss below that of Gaussian noise with this sensitivity; without shuffling it is
    sqrt(log2(steps) + 1). Use :class:`BallsInBins` for amplification that is proven.

    Args:
        steps: number of steps, a power of two, each of one example.
        sigma: standard deviation of the noise of every node, for examples of norm at most one.
        adjacency: zero-out.

    **Guarantee**: both bounds are certified. The theorem for shuffled trees (Choquette-Choo,
    Ganesh, Steinke and Thakurta 2024, Theorem 5.2) is not used: its constants say nothing below
    2^149 steps, and its proof has gaps (docs/errata.md).

    Raises:
        ValueError: if ``steps`` is not a power of two, or ``sigma`` is not positive.
        UnsoundConfiguration: under another relation: without the record the tree has another size.

    Example:
        >>> from taut.matrix import shuffled_tree_bounds
        >>> lower, upper = shuffled_tree_bounds(1024, sigma=20.0).epsilon_bounds(1e-6)
        >>> round(lower, 2), round(upper, 2)
        (0.27, 0.68)
    """
    size = validate.positive_integer(steps=steps)
    if size & (size - 1):
        raise ValueError(f"steps must be a power of two, got steps={size}")
    noise = validate.positive(sigma=sigma)
    relation = Adjacency(adjacency)
    if relation is not Adjacency.ZERO_OUT:
        raise UnsoundConfiguration(
            f"bounds on a shuffled tree are for adjacency='zero_out', got {str(relation)!r}: "
            "without the record the tree would have another size"
        )
    above = gaussian(noise, math.sqrt(size.bit_length()), adjacency=relation)
    below = gaussian(noise, math.sqrt(2 - 1 / size) * (1 - 1e-12), adjacency=relation)
    return between(above, above, below, name=f"shuffled tree({size} steps)", adjacency=relation)
