"""Noisy screening and noisy votes: which queries have a consensus, and what it is.

Screening tells whether the largest of the vote counts, with N(0, sigma^2) added, exceeds a
threshold. Between neighbours that count moves by at most one, up or down: under a fixed number of
neighbours k a record that joins may displace one of the majority, a record that leaves may let one
in, and a record that is exchanged does either. So all halves of every relation share one family of
Bernoulli pairs, with p_t = Phi((t - threshold) / sigma):

    (p_t, p_{t+1}) and (p_{t+1}, p_t) for 0 <= t < k.

*Renyi.* The divergence of order a is the maximum over the family (Zhu, Yu, Chandraker
and Wang 2020; Zhu 2023, Theorem 4.3.1, with t from 0: a sample may hold fewer than k records). A
Poisson sample of rate r turns a pair (p, q), with and without the record, into
((1 - r) q + r p, q), again a Bernoulli pair; joint convexity covers the other records' sample, so
the maximum over the family stays exact.

*Hockey stick.* The points (q, p) of the family lie on the trade-off curve of the Gaussian with
mu = 1/sigma. Their concave hull is the tight profile of one release; its pair is that Gaussian,
told only up to the interval between neighbouring points. Summed over many releases this pair is
almost the Gaussian, although every member of the family is about 2/pi of it, because no t is worst
at all thresholds at once. So many releases are accounted by their Renyi divergences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut._base.floats import RELATIVE_ERROR
from taut._base.validate import Finite, Positive, PositiveInteger, Probability
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.noise import Gaussian
from taut.accounting._pairs.finite import finite_pair
from taut.accounting._pairs.pair import Pair, gauss_rule
from taut.accounting._pairs.sampled import SampledPair
from taut.accounting._releases.product import EnclosedPair
from taut.accounting._releases.release import refuse_sampled_exchange
from taut.accounting._releases.renyi_only import RenyiOnly

__all__ = [
    "NoisyScreening",
    "ScreeningPair",
    "bernoulli_divergences",
    "check_counts",
    "noisy_screening",
    "noisy_vote",
    "screening_rdp",
]

# Divergences increase with the order, so asking here instead of nearer to one is sound; nearer, the
# rounding of a moment, over the excess of the order, would show beyond 1e-10.
_LEAST_SCREENING_ORDER = 1 + 1e-5
_MOST_COUNTS = 10**6  # each is looked at, at every order
_FARTHEST_COUNT = 1e100  # deviations from the threshold, whose squares are doubles
_LOOKED_AT = 1 << 20  # orders times counts that are looked at together: arrays of 16 megabytes
_MODERATE_EXPONENT = 300.0  # its double is within the range of exp; larger ones stay logarithms
_INTERVAL_NODES, _INTERVAL_WEIGHTS = gauss_rule(8)  # for intervals below `_NARROW_INTERVAL`
_NARROW_INTERVAL = 0.5  # width times (1 + position + mu); eight nodes then err by less than 1e-20


@dataclass(frozen=True)
class NoisyScreening(RenyiOnly):
    """Whether the largest of the votes of k neighbours, plus N(0, sigma^2), exceeds a threshold.

    The votes are those of a Poisson sample of the records if ``rate`` is below one.
    """

    kind = "noisy_screening"
    k: PositiveInteger
    threshold: Finite
    sigma: Positive
    rate: Probability = 1.0
    has_pair = True

    def check_fields(self) -> None:
        """Check that the noise hides something of the counts."""
        check_counts(self.k, self.threshold, self.sigma)

    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return the maximum over the family, the same in every direction."""
        return screening_rdp(self.k, self.threshold, self.sigma, orders, self.rate)

    def pair(self, half: Half) -> Pair:
        """Return the tight pair of one release; for sums the Renyi divergences are better."""
        pair = screening_pair(self.k, self.threshold, self.sigma)
        return pair if self.rate == 1 else SampledPair(pair, self.rate, half)

    def sampled(self, rate: float) -> NoisyScreening:
        """Return the release on a Poisson sample; sampling twice multiplies the rates."""
        return NoisyScreening(self.k, self.threshold, self.sigma, self.rate * rate)

    def check(self, adjacency: Adjacency) -> None:
        """Exchanging a record is covered, unless the record may not be in the sample."""
        refuse_sampled_exchange(self, self.rate, adjacency)

    def __str__(self) -> str:
        """Return the call."""
        inside = f"k={self.k}, threshold={self.threshold:g}, sigma={self.sigma:g}"
        return f"noisy_screening({inside}{f', rate={self.rate:g}' if self.rate < 1 else ''})"


def noisy_screening(
    k: int,
    threshold: float,
    sigma: float,
    *,
    rate: float = 1.0,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of telling whether a query has a consensus among its neighbours.

    The release is the one bit max_j n_j + N(0, sigma^2) > threshold, where n_j counts the votes
    for class j among the k nearest records.

    Args:
        k: how many neighbours vote.
        threshold: the public level that the noisy count must exceed, usually near 0.6 k.
        sigma: standard deviation of the noise on the count.
        rate: probability with which each record is in the sample that is searched; every release
            draws a fresh one.
        adjacency: any relation without sampling; add/remove, its halves or zero-out with it.

    **Guarantee**: the largest Renyi divergence over all counts, exact at every real order, sampled
    or not (Zhu, Yu, Chandraker and Wang 2020, with the range of counts and the sampling argument
    corrected; see docs/errata.md). Ties in distance must be broken by a rule that looks at the
    records alone, and fewer than k records must not be treated differently in public. The number of
    answers that pass depends on the data: fix a cap in advance, or spend through a filter.

    Raises:
        ValueError: if a parameter is out of range.
        UnsoundConfiguration: for a sampled release under replace-one.

    Example:
        >>> from taut.accounting import noisy_screening
        >>> loss = noisy_screening(k=300, threshold=210, sigma=85, rate=0.25)
        >>> loss
        <PrivacyLoss noisy_screening(k=300, threshold=210, sigma=85, rate=0.25); adjacency=add_remove>
    """  # noqa: E501
    release = NoisyScreening(
        validate.positive_integer(k=k),
        validate.finite(threshold=threshold),
        validate.positive(sigma=sigma),
        validate.probability(rate=rate),
    )
    return PrivacyLoss([(release, 1)], adjacency)


def noisy_vote(
    sigma: float, *, neighbours: str = "fixed", adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of a vote among neighbours with N(0, sigma^2) added to every count.

    Args:
        sigma: standard deviation of the noise on every class's count.
        neighbours: ``"fixed"`` if the k nearest records vote. One that leaves lets another in, so
            one count falls and another rises: the l2-sensitivity is sqrt(2), weighted or not.
            ``"radius"`` if all records within a distance vote with weight at most one: then it is
            1, and sqrt(2) only if a record is exchanged.
        adjacency: the relation.

    **Guarantee**: exact for the vector of noisy counts, hence for anything made of it, such as
    the winner (Balle and Wang 2018, Theorem 8). Sample with ``.poisson(rate)``, a fresh sample for
    every vote.

    Example:
        >>> from taut.accounting import noisy_vote
        >>> noisy_vote(sigma=25).rdp(order=2) == 2 / 25**2
        True
    """
    relation = Adjacency(adjacency)
    if neighbours not in ("fixed", "radius"):
        raise ValueError(f"neighbours must be 'fixed' or 'radius', got neighbours={neighbours!r}")
    two_counts = neighbours == "fixed" or relation is Adjacency.REPLACE
    release = Gaussian(validate.positive(sigma=sigma), math.sqrt(2.0) if two_counts else 1.0)
    return PrivacyLoss([(release, 1)], relation)


def screening_rdp(
    k: int, threshold: float, sigma: float, orders: Sequence[float] | Vector, rate: float = 1.0
) -> Vector:
    """Return the Renyi divergences of one noisy screening at real orders, shape (m,).

    Args:
        k: how many neighbours vote.
        threshold: the level that the noisy count must exceed.
        sigma: standard deviation of the noise.
        orders: real numbers, at least one. Below 1.00001 the value there is returned.
        rate: Poisson sampling rate.

    **Guarantee**: every relation without sampling, add/remove or zero-out with it. The exact
    maximum over counts 0 <= t < k and both orders, rounded up.
    """
    most, level = validate.positive_integer(k=k), validate.finite(threshold=threshold)
    deviation, share = validate.positive(sigma=sigma), validate.probability(rate=rate)
    check_counts(most, level, deviation)
    at = real_numbers(orders, "orders")
    if at.ndim != 1 or not (at >= 1).all() or not np.isfinite(at).all():
        raise ValueError(f"orders must be finite numbers of at least 1, got orders={orders!r}")
    z = (np.arange(most + 1.0) - level) / deviation
    divergence = np.zeros(at.shape)
    counts = max(_LOOKED_AT // max(at.size, 1), 1)
    for start in range(0, most, counts):
        part = z[start : start + counts + 1]
        for low, high in ((part[:-1], part[1:]), (part[1:], part[:-1])):
            found = bernoulli_divergences(high, low, at, share)
            divergence = np.maximum(divergence, found.max(axis=1))
    return divergence


def check_counts(k: int, threshold: float, sigma: float) -> None:
    """Raise for more counts than can be looked at, and for noise beside which squares overflow."""
    if k > _MOST_COUNTS:
        raise ValueError(f"k must be at most {_MOST_COUNTS}, got k={k!r}; count larger groups")
    if not (k + abs(threshold)) / sigma <= _FARTHEST_COUNT:
        raise ValueError(
            f"sigma must be at least 1e-100 of k and of threshold, got sigma={sigma!r}; noise that "
            "small hides nothing"
        )


def bernoulli_divergences(
    with_record: Vector, without: Vector, orders: Vector, rate: float = 1.0
) -> Vector:
    """Return Renyi divergences of bits with probabilities Phi(z), the larger of both directions.

    Args:
        with_record: the z with the record, shape (n,).
        without: the z without it, shape (n,).
        orders: at least one, shape (m,).
        rate: probability that the record is in the sample.

    Returns:
        Upper bounds that are exact but for rounding, shape (m, n).
    """
    if rate == 0:
        return np.zeros((orders.size, with_record.size))
    log_q = np.stack([log_ndtr(without), log_ndtr(-without)])
    ratio = np.stack([log_ndtr(with_record), log_ndtr(-with_record)]) - log_q
    blur = 2 * (np.abs(log_q) + np.abs(ratio))  # of a difference of logarithms, in roundings
    if rate < 1:
        with np.errstate(over="ignore"):
            grown = rate * np.exp(np.minimum(ratio, 700.0))
            mixed = np.log1p(rate * np.expm1(np.minimum(ratio, 700.0)))
        blur = blur * (grown / (1 - rate + grown)) + 2 * np.abs(mixed)
        ratio = np.where(ratio < 700.0, mixed, ratio + math.log(rate))
    forward = _divergence(log_q, ratio, blur, orders)
    return np.maximum(forward, _divergence(log_q + ratio, -ratio, blur, orders))


def _divergence(log_q: Vector, ratio: Vector, blur: Vector, orders: Vector) -> Vector:
    """Return the divergence of q exp(ratio) from q, for outcomes along the first axis.

    log sum q exp(a r) loses digits near zero; sum q (exp(a r) - 1 - a (exp(r) - 1)) has no
    negative term and is the same but for one, because both distributions sum to one.
    """
    a = np.maximum(orders, _LEAST_SCREENING_ORDER)[:, None, None]
    q = np.exp(log_q)
    with np.errstate(over="ignore", invalid="ignore"):  # the small are for what is near alone
        power = np.expm1(np.minimum(a * ratio, 2 * _MODERATE_EXPONENT))
        base = np.expm1(np.minimum(ratio, 2 * _MODERATE_EXPONENT))
        excess = np.maximum((q * (power - a * base)).sum(axis=1), 0.0)
        doubt = (q * (np.abs(power) + a * (np.abs(base) + blur * (1 + power)))).sum(axis=1)
        small = np.log1p(excess + RELATIVE_ERROR * doubt)
    with np.errstate(over="ignore"):  # infinite is above all
        large = np.logaddexp.reduce(log_q + a * ratio, axis=1)
        large_doubt = (a * (1 + blur + np.abs(ratio)) + np.abs(log_q)).max(axis=1)
        near = (a * np.abs(ratio)).max(axis=1) < _MODERATE_EXPONENT
        value = np.where(near, small, large + RELATIVE_ERROR * large_doubt)
        divergence: Vector = np.maximum(value, 0.0) / (a[:, 0] - 1)
    return divergence


class ScreeningPair(EnclosedPair):
    """The tight pair of one screening; in sums only that of two neighbouring counts is reached."""

    tight = True


def screening_pair(k: int, threshold: float, sigma: float) -> ScreeningPair:
    """Return the pair whose profile is the maximum over the family, for every direction.

    It is N(-1/sigma, 1) against N(0, 1), told up to the interval between neighbouring points of
    the family; the family is closed under swapping, so the pair is symmetric.
    """
    mu = 1 / sigma
    z = (np.arange(k + 0.0) - threshold) / sigma
    points = np.unique(np.concatenate([z, -z - mu]))
    ends = np.concatenate([[-math.inf], points, [math.inf]])
    q, p = _interval_masses(ends[:-1], ends[1:], mu)
    keep = (p > 0) & (q > 0)
    whole = finite_pair(p[keep], q[keep])
    nearest = z[np.argmin(np.abs(z + mu / 2))]
    bit = [ndtr(np.array([x, -x])) for x in (nearest + mu, nearest)]
    return ScreeningPair(
        whole.losses,
        whole.log_masses,
        float(p[~keep].sum()),
        float(q[~keep].sum()),
        inside=finite_pair(*bit),
    )


def _interval_masses(left: Vector, right: Vector, mu: float) -> tuple[Vector, Vector]:
    """Return the N(0, 1) and N(-mu, 1) masses of intervals; narrow ones by Gauss's rule."""
    with np.errstate(invalid="ignore"):
        narrow = (right - left) * (1 + np.abs(left) + mu) < _NARROW_INTERVAL
    masses = []
    for shift in (0.0, mu):
        low, high = left + shift, right + shift
        above = low > 0
        mass = ndtr(np.where(above, -low, high)) - ndtr(np.where(above, -high, low))
        width = (right - left)[narrow, None]
        density = np.exp(-0.5 * (low[narrow, None] + width * _INTERVAL_NODES) ** 2)
        mass[narrow] = (density * width * _INTERVAL_WEIGHTS).sum(axis=1) / math.sqrt(2 * math.pi)
        masses.append(mass)
    return masses[0], masses[1]
