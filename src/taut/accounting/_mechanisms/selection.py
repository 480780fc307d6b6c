"""Mechanisms that select or answer one of a few: their releases and factories."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from taut._base import validate
from taut._base.floats import UP
from taut._base.validate import Positive, Probability
from taut.accounting._adjacency import Adjacency, Half, halves
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.given import Finite
from taut.accounting._pairs.exponential import (
    check_reach,
    exponential_mechanism_pair,
    laplace_pair,
    permute_and_flip_pair,
)
from taut.accounting._pairs.finite import FailingPair, FinitePair, binary_pair
from taut.accounting._pairs.pair import Pair
from taut.accounting._releases.release import Release
from taut.accounting._releases.selected import Selected, routes
from taut.accounting._releases.sums import as_one
from taut.accounting._releases.trials import Trials
from taut.errors import AdjacencyMismatch

__all__ = [
    "Exponential",
    "PermuteAndFlip",
    "RandomizedResponse",
    "StabilityRelease",
    "best_of",
    "exponential",
    "permute_and_flip",
    "randomized_response",
    "selection_routes",
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


def best_of(runs: PrivacyLoss | Iterable[PrivacyLoss], trials: Trials) -> PrivacyLoss:
    """Return the loss of publishing the best of a random number of private runs.

    Every run draws its setting from a list, uniformly and independently, and ends with an output
    and a score; the output and the score of the run with the largest score are published, all
    others forgotten. The score may be any function of the output, and of public data.

    Args:
        runs: loss of one run; several if settings differ in it, one for each setting.
        trials: law of the number of runs, which must stay secret. That of the best run alone
            would not be enough: trials are not free.

    **Guarantee**: the relation of the runs. At every threshold the least of what three theorems
    prove: from the profile of one run (docs/theory/selection.md, sharper than Koskela, Redberg and
    Wang 2024), from runs that fail with some probability (Liu and Talwar 2019; exact constants),
    and, for runs known by Renyi divergences only, from those (Papernot and Steinke 2022). Runs
    must be independent given the data, and ties be broken without a look at the outputs.

    Raises:
        TypeError: if ``runs`` are not losses, or ``trials`` no law.
        ValueError: if there is no loss.
        AdjacencyMismatch: if the losses are for different relations.

    Example:
        >>> import taut
        >>> from taut.accounting import Trials, best_of
        >>> run = 1_000 * taut.gaussian(sigma=1.0).poisson(rate=0.01)
        >>> total = best_of(run, Trials.logarithmic(mean=10))
        >>> round(run.epsilon(delta=1e-6), 2), round(total.epsilon(delta=1e-6), 2)
        (2.12, 2.84)
    """
    if not isinstance(trials, Trials):
        raise validate.WrongType(
            f"trials must be a law such as Trials.geometric(10), got one of class "
            f"{type(trials).__name__}"
        )
    given = [runs] if isinstance(runs, PrivacyLoss) else runs
    if not isinstance(given, Iterable):
        raise validate.WrongType(f"runs must be losses, got {runs!r}")
    losses = list(given)
    if not losses:
        raise ValueError("runs must hold one loss at least: there is nothing to choose from")
    for loss in losses:
        if not isinstance(loss, PrivacyLoss):
            raise TypeError(f"runs must be losses, got {loss!r}")
        if loss.adjacency is not losses[0].adjacency:
            raise AdjacencyMismatch(
                f"runs must be for one relation, got adjacency={str(losses[0].adjacency)!r} and "
                f"{str(loss.adjacency)!r}"
            )
    counts = Counter(as_one(loss.terms) or Finite((1.0,), (1.0,)) for loss in losses)
    if not any(loss.terms for loss in losses):
        return losses[0]
    chosen = sorted(counts.items(), key=lambda item: repr(item[0]))
    common = math.gcd(*counts.values())
    bases, weights = zip(*((base, n // common) for base, n in chosen), strict=True)
    law = (trials.law, trials.parameter, trials.shape, trials.cap)
    return PrivacyLoss([(Selected(bases, weights, *law), 1)], losses[0].adjacency)


def selection_routes(loss: PrivacyLoss, delta: float) -> dict[str, float]:
    """Return the epsilon that each theorem proves for a loss of `best_of`, by name; least first.

    Args:
        loss: loss that `best_of` made.
        delta: probability delta of the guarantee.

    **Guarantee**: each is an upper bound; that of the loss is no larger than the least, because
    it may take another theorem at another threshold.

    Raises:
        ValueError: if the loss is not that of one selection.
    """
    validate.instance(PrivacyLoss, loss=loss)
    level = validate.below_one(delta=delta)
    terms = loss.terms
    if len(terms) != 1 or terms[0][1] != 1 or not isinstance(terms[0][0], Selected):
        raise ValueError(f"loss must be that of one selection, made by best_of, got {loss!r}")
    found = [routes(terms[0][0], half, level) for half in halves(loss.adjacency)]
    worst = {str(route): max(each[route] for each in found) for route in found[0]}
    return dict(sorted(worst.items(), key=lambda item: item[1]))
