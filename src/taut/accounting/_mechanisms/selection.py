"""Mechanisms that select or answer one of a few: their releases and factories."""

from __future__ import annotations

import math
from dataclasses import dataclass

from taut._base import validate
from taut._base.floats import UP
from taut._base.validate import Positive, Probability
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._loss import PrivacyLoss
from taut.accounting._pairs.exponential import (
    check_reach,
    exponential_mechanism_pair,
    laplace_pair,
    permute_and_flip_pair,
)
from taut.accounting._pairs.finite import FailingPair, FinitePair, binary_pair
from taut.accounting._pairs.pair import Pair
from taut.accounting._releases.release import Release

__all__ = [
    "Exponential",
    "PermuteAndFlip",
    "RandomizedResponse",
    "StabilityRelease",
    "exponential",
    "permute_and_flip",
    "randomized_response",
    "stability_release",
]


@dataclass(frozen=True)
class RandomizedResponse(Release):
    """A bit that is true with probability p."""

    kind = "randomized_response"
    p: Probability

    def pair(self, half: Half) -> Pair:
        """Symmetric; p below one half is the mirrored mechanism, p of 0 or 1 hides nothing."""
        p = max(self.p, 1 - self.p)
        if p == 1:
            return FinitePair((), (), 1.0, 1.0)
        loss = math.log1p((2 * p - 1) / (1 - p))  # 2 p - 1 is exact, and so is 1 - p
        return binary_pair(loss * UP)


@dataclass(frozen=True)
class Exponential(Release):
    """A mechanism whose log-likelihood ratios span at most epsilon, such as private selection.

    It need not be near zero: only the width of the range is bounded, by half of what an arbitrary
    epsilon-DP release may have.
    """

    kind = "exponential"
    epsilon: Positive

    def __post_init__(self) -> None:
        """Check the parameter."""
        super().__post_init__()
        check_reach(self.epsilon, f"epsilon={self.epsilon!r}")

    def pair(self, half: Half) -> Pair:
        """Symmetric."""
        return exponential_mechanism_pair(self.epsilon)


@dataclass(frozen=True)
class PermuteAndFlip(Release):
    """Permute-and-flip: the largest of utilities with exponential noise.

    Its log-likelihood ratios span up to twice epsilon, like those of any epsilon-DP release.
    """

    kind = "permute_and_flip"
    epsilon: Positive

    def __post_init__(self) -> None:
        """Check the parameter."""
        super().__post_init__()
        check_reach(self.epsilon, f"epsilon={self.epsilon!r}")

    def pair(self, half: Half) -> Pair:
        """Symmetric: Laplace noise on the difference of two utilities."""
        return permute_and_flip_pair(self.epsilon)


@dataclass(frozen=True)
class StabilityRelease(Release):
    """The exact answer, or nothing, by a noisy distance-to-instability test.

    Failure has mass delta / 2, half of what is usually quoted: only one tail of the Laplace noise
    crosses the threshold log(1/delta)/epsilon.
    """

    kind = "stability_release"
    epsilon: Positive
    delta: float

    def check_fields(self) -> None:
        """Check the parameters."""
        if not validate.below_one(delta=self.delta) > 0:
            raise ValueError(f"delta must be greater than 0, got delta={self.delta!r}")
        check_reach(self.epsilon, f"epsilon={self.epsilon!r}")

    def pair(self, half: Half) -> Pair:
        """Symmetric: a shorter Laplace loss, or failure (docs/theory/stability.md)."""
        failure = self.delta / 2
        reach = self.epsilon + 2 * math.log1p(-failure)
        return FailingPair(laplace_pair(reach) if reach > 0 else binary_pair(0.0), failure)


def randomized_response(p: float, *, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the loss of reporting a bit truthfully with probability ``p``.

    ``p`` below one half is the same mechanism mirrored; 0 and 1 hide nothing, so epsilon is
    infinite.
    """
    return PrivacyLoss([(RandomizedResponse(validate.probability(p=p)), 1)], adjacency)


def exponential(epsilon: float, *, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the loss of a selection whose log-probabilities shift within a range of ``epsilon``.

    That is the exponential mechanism with weights exp(epsilon u / (2 sensitivity)),
    report-noisy-max with Gumbel noise, and every ``epsilon``-bounded-range release.

    **Guarantee**: the tight profile over all bounded-range releases (docs/theory/exponential.md);
    much below that of an arbitrary ``epsilon``-DP release.
    """
    return PrivacyLoss([(Exponential(validate.positive(epsilon=epsilon)), 1)], adjacency)


def permute_and_flip(epsilon: float, *, adjacency: Adjacency | str = "add_remove") -> PrivacyLoss:
    """Return the loss of selecting by permute-and-flip (McKenna and Sheldon 2020).

    Candidates are visited in random order, and each is taken with probability
    exp(epsilon (u - max u) / (2 sensitivity)): report-noisy-max with exponential noise.

    Args:
        epsilon: pure-DP parameter of the mechanism. If a neighbour can only raise all utilities,
            or only lower them, the factor 2 may be left out.
        adjacency: the relation for which the sensitivity of the utilities holds.

    **Guarantee**: the tight profile, that of Laplace noise with the same epsilon
    (docs/theory/exponential.md). It is no bounded-range release, so :func:`exponential` composes
    better and permute-and-flip selects better.

    Raises:
        ValueError: if ``epsilon`` is not positive.

    Example:
        >>> from taut.accounting import permute_and_flip
        >>> permute_and_flip(1.0).epsilon(delta=0)
        1.0
    """
    return PrivacyLoss([(PermuteAndFlip(validate.positive(epsilon=epsilon)), 1)], adjacency)


def stability_release(
    epsilon: float, delta: float, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of releasing an exact answer if its noisy distance to instability allows.

    The test is distance + Lap(1/epsilon) > log(1/delta)/epsilon. Failure has mass ``delta / 2``.
    """
    return PrivacyLoss(
        [(StabilityRelease(validate.positive(epsilon=epsilon), delta), 1)], adjacency
    )
