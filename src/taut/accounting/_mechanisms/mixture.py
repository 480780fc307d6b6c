"""Mixtures of Gaussians: a shift that is drawn at random, hidden by normal noise.

With the record the output is N(c, s^2) for a random shift c >= 0, without it N(0, s^2). The pair
dominates vector-valued shifts of the same norms in both directions, and grows with the shifts
(Choquette-Choo, Ganesh, Steinke and Thakurta 2024, Lemma B.2 and Corollary B.6; a short proof is in
docs/theory/mixtures.md). Group privacy of sampled Gaussians and matrix mechanisms stand on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector, numbers_in_a_row
from taut._base.validate import Positive
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._loss import PrivacyLoss
from taut.accounting._pairs.finite import binary_pair
from taut.accounting._pairs.gaussian import GaussianPair
from taut.accounting._pairs.mixture import MixturePair
from taut.accounting._pairs.pair import Pair
from taut.accounting._pairs.sampled import SampledPair
from taut.accounting._releases.release import Release

__all__ = [
    "MixtureOfGaussians",
    "group_fixed_size",
    "group_poisson",
    "linear_last_iterate",
    "mixture_of_gaussians",
]


_MOST_SHIFTED = 1e100  # shift in units of the noise: its square is a double
_MOST_COUNTED_SHIFTS = (
    100_000  # by one record: their binomials take a second, and losses far longer
)


@dataclass(frozen=True)
class MixtureOfGaussians(Release):
    """Normal noise of deviation sigma on a value that the record shifts by a random amount."""

    kind = "mixture_of_gaussians"
    no_exchange = (
        "mixture_of_gaussians compares a random shift with none, so it has no pair under "
        "adjacency='replace'; use adjacency='add_remove' or 'zero_out'"
    )
    probabilities: tuple[float, ...]
    shifts: tuple[float, ...]
    sigma: Positive

    def check_fields(self) -> None:
        """Check the parameters."""
        _check_mixture(self.probabilities, self.shifts)
        farthest = max(self.shifts) / self.sigma
        if not farthest < _MOST_SHIFTED:
            raise ValueError(
                f"shifts must be below {_MOST_SHIFTED:g} times sigma, got {farthest:g} for "
                f"sigma={self.sigma!r}; noise so small hides nothing"
            )

    def pair(self, half: Half) -> Pair:
        """Return a sampled mixture; one shift alone is a sampled Gaussian, or a plain one."""
        terms = zip(self.probabilities, self.shifts, strict=True)
        some = [(p, c / self.sigma) for p, c in terms if c > 0]
        taking_part = math.fsum(p for p, _ in some)
        total = math.fsum(self.probabilities)
        # What a sum below one lacks is given to all alike, one above one makes zero less likely.
        absent = math.fsum(p for p, c in zip(self.probabilities, self.shifts, strict=True) if not c)
        # Far more than sums of probabilities round, and far less than was lost in printing them.
        stay = absent / total if total <= 1 + 1e-12 else max(absent - (total - 1), 0.0)
        if not some:
            return binary_pair(0.0)
        weights, shifts = zip(*some, strict=True)
        if len(some) == 1:
            base: Pair = GaussianPair(shifts[0])
        else:
            base = MixturePair(tuple(w / taking_part for w in weights), shifts, half)
        rate = min(taking_part / min(total, 1.0), math.nextafter(1.0, 0.0))
        return SampledPair(base, rate, half, stay) if stay > 0 else base

    def __str__(self) -> str:
        """Return the call, with the shifts counted if there are many."""
        if len(self.shifts) > 4:
            return f"mixture_of_gaussians({len(self.shifts)} shifts, sigma={self.sigma:g})"
        probabilities = ", ".join(f"{p:g}" for p in self.probabilities)
        shifts = ", ".join(f"{c:g}" for c in self.shifts)
        return f"mixture_of_gaussians([{probabilities}], [{shifts}], sigma={self.sigma:g})"


def mixture_of_gaussians(
    probabilities: ArrayLike,
    shifts: ArrayLike,
    sigma: float,
    *,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of normal noise on a value that the record shifts by a random amount.

    Args:
        probabilities: probabilities of the shifts; they sum to one.
        shifts: how far the record moves the value, in l2-norm, so at least zero. Equal shifts are
            merged.
        sigma: standard deviation of the noise.
        adjacency: add/remove, one of its halves, or zero-out.

    **Guarantee**: exact for a one-dimensional value. For vectors it bounds every choice of
    directions of the given norms, and every random shift that is stochastically smaller, in both
    directions (docs/theory/mixtures.md; Choquette-Choo et al. 2024, Lemma B.2, Corollary B.6). The
    shift is drawn independently of everything else and stays secret. Several draws that depend on
    each other, such as the rows of a matrix mechanism, need a theorem of their own.

    Raises:
        ValueError: if the vectors do not describe a distribution, or ``sigma`` is not positive.
        UnsoundConfiguration: under replace-one.

    Example:
        >>> from taut.accounting import mixture_of_gaussians
        >>> loss = mixture_of_gaussians([0.81, 0.18, 0.01], [0.0, 1.0, 2.0], sigma=1.0)
        >>> round(loss.delta(epsilon=1.0), 6)
        0.003826
    """
    masses, norms = numbers_in_a_row(probabilities=probabilities), numbers_in_a_row(shifts=shifts)
    if masses.shape != norms.shape:
        raise ValueError(
            f"probabilities and shifts must have equal length, got {masses.size} and {norms.size}"
        )
    _check_mixture(tuple(masses.tolist()), tuple(norms.tolist()))
    distinct, index = np.unique(norms, return_inverse=True)
    merged = np.array([math.fsum(masses[index == i]) for i in range(distinct.size)])
    keep = merged > 0
    release = MixtureOfGaussians(
        tuple(merged[keep].tolist()),
        tuple(distinct[keep].tolist()),
        validate.positive(sigma=sigma),
    )
    return PrivacyLoss([(release, 1)], adjacency)


def group_poisson(
    sigma: float,
    rate: float,
    group_size: int,
    sensitivity: float = 1.0,
    *,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of one noisy sum over a Poisson sample, for a group of records at once.

    How many of the group are sampled is Binomial(group_size, rate), and they move the sum by at
    most that many times ``sensitivity``.

    Args:
        sigma: standard deviation of the noise.
        rate: probability with which each record is sampled, independently.
        group_size: records that one person, household or firm may have.
        sensitivity: largest l2-norm of one record's contribution.
        adjacency: add/remove or zero-out **of a whole group**. Add the result only to losses that
            are about the same group.

    **Guarantee**: exact when all contributions point in one direction; the group theorem applied to
    a black box is far looser (docs/theory/mixtures.md; Ganesh 2024).

    Example:
        >>> from taut.accounting import group_poisson
        >>> household = 1_000 * group_poisson(sigma=1.0, rate=0.01, group_size=2)
        >>> round(household.epsilon(delta=1e-6), 1)
        4.6
    """
    share = validate.probability(rate=rate)
    size = validate.positive_integer(group_size=group_size)
    unit = validate.positive(sensitivity=sensitivity)
    return mixture_of_gaussians(
        _binomial(size, share), _multiples(unit, size), sigma, adjacency=adjacency
    )


def group_fixed_size(
    sigma: float,
    batch_size: int,
    population: int,
    group_size: int,
    sensitivity: float = 1.0,
) -> PrivacyLoss:
    """Return the loss of one noisy sum over a batch of fixed size, for a group of records at once.

    How many of the group are in a batch drawn without replacement is hypergeometric.

    Args:
        sigma: standard deviation of the noise.
        batch_size: records in the batch.
        population: records in the dataset, those of the group included.
        group_size: records that one person, household or firm may have.
        sensitivity: largest l2-norm of one record's contribution.

    **Guarantee**: zero-out of a whole group, whose records keep their places in the dataset and
    contribute nothing; exact when all contributions point in one direction
    (docs/theory/mixtures.md; Ganesh 2024). Other relations change who else is in the batch, and
    have no such pair.

    Raises:
        ValueError: if the sizes do not fit.

    Example:
        >>> from taut.accounting import group_fixed_size
        >>> family = 1_000 * group_fixed_size(1.0, batch_size=10, population=1_000, group_size=4)
        >>> round(family.epsilon(delta=1e-6), 1)
        10.0
    """
    batch = validate.positive_integer(batch_size=batch_size)
    total = validate.positive_integer(population=population)
    size = validate.positive_integer(group_size=group_size)
    if batch > total or size > total:
        raise ValueError(
            f"batch_size and group_size must not exceed population={total}, "
            f"got batch_size={batch} and group_size={size}"
        )
    unit = validate.positive(sensitivity=sensitivity)
    _check_count(size)
    ways, absent = math.perm(total, size), total - batch
    masses = [
        math.comb(size, j) * math.perm(batch, j) * math.perm(absent, size - j) / ways
        for j in range(size + 1)
    ]
    return mixture_of_gaussians(masses, _multiples(unit, size), sigma, adjacency=Adjacency.ZERO_OUT)


def linear_last_iterate(
    sigma: float,
    rate: float,
    steps: int,
    sensitivity: float = 1.0,
    *,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of the last iterate alone of noisy descent on linear losses.

    The iterate is a sum over all steps: noise of deviation sqrt(steps) sigma on a shift that occurs
    Binomial(steps, rate) times.

    Args:
        sigma: standard deviation of the noise of every step.
        rate: probability with which each record is sampled in every step, independently.
        steps: number of steps, all with one learning rate.
        sensitivity: largest l2-norm of one record's contribution.
        adjacency: add/remove, one of its halves, or zero-out.

    **Guarantee**: only for **linear** losses, where contributions do not depend on the iterate, and
    if nothing but the last iterate is ever seen: no clipping that depends on it, no projection, no
    momentum, no checkpoint. Both directions are computed (Choquette-Choo, Ganesh, Steinke and
    Thakurta 2024, appendix F.5, where the smaller one is printed: docs/errata.md, E36).

    Example:
        >>> from taut.accounting import linear_last_iterate
        >>> round(linear_last_iterate(1.0, rate=1 / 128, steps=128).epsilon(delta=1e-6), 4)
        0.4199
    """
    share = validate.probability(rate=rate)
    count = validate.positive_integer(steps=steps)
    unit = validate.positive(sensitivity=sensitivity)
    noise = validate.positive(sigma=sigma) * math.sqrt(count)
    return mixture_of_gaussians(
        _binomial(count, share), _multiples(unit, count), noise, adjacency=adjacency
    )


def _binomial(size: int, rate: float) -> Vector:
    """Return binomial probabilities, small ones to full relative accuracy."""
    _check_count(size)
    if rate in (0.0, 1.0):
        certain: Vector = np.eye(size + 1)[size if rate else 0]
        return certain
    stay, go = math.log1p(-rate), math.log(rate)
    logs = [log + j * go + (size - j) * stay for j, log in enumerate(_log_choices(size))]
    masses: Vector = np.exp(np.array(logs))
    return masses


def _log_choices(size: int) -> list[float]:
    """Return the logarithms of all binomial coefficients of a size, each made from the last."""
    ways, logs = 1, [0.0]
    for j in range(size):
        ways = ways * (size - j) // (j + 1)
        logs.append(math.log(ways))
    return logs


def _multiples(unit: float, count: int) -> list[float]:
    """Return 0, unit, ..., count units; those beyond doubles are refused where they are used."""
    return [unit * j for j in range(count + 1)]


def _check_count(shifts: int) -> None:
    if shifts > _MOST_COUNTED_SHIFTS:
        raise ValueError(
            f"steps and group_size must be at most {_MOST_COUNTED_SHIFTS} where the times that "
            f"they shift a value are counted, got {shifts}"
        )


def _check_mixture(probabilities: tuple[float, ...], shifts: tuple[float, ...]) -> None:
    if len(probabilities) != len(shifts):
        raise ValueError(
            f"probabilities and shifts must have equal length, "
            f"got {len(probabilities)} and {len(shifts)}"
        )
    for probability in probabilities:
        validate.probability(probabilities=probability)
    for shift in shifts:
        validate.non_negative(shifts=shift)
    total = math.fsum(probabilities)
    if not abs(total - 1) <= 1e-9:  # as far off as decimals that were printed and read
        raise ValueError(f"probabilities must sum to 1, got a sum of {total!r}; divide by the sum")
