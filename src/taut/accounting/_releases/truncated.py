"""Poisson samples with a hard cap on their size: the loss of a step whose memory is bounded."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.special import betainc, betaincc

from taut._base import validate
from taut._base.validate import PositiveInteger, Probability
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._pairs.either import EitherPair
from taut.accounting._pairs.finite import binary_pair
from taut.accounting._pairs.pair import Pair
from taut.accounting._pairs.sampled import SampledPair
from taut.accounting._releases.release import Base, Release
from taut.accounting._releases.renyi_only import need_pairs
from taut.errors import UnsoundConfiguration

__all__ = ["TruncatedPoisson", "truncation_probability"]

# Relative error of a binomial tail, rounding included: incomplete beta integrals were within 1e-11
# of forty digits for populations up to 1e9, and a hundredfold costs no printed digit.
_BINOMIAL_ERROR = 1e-9


@dataclass(frozen=True)
class TruncatedPoisson(Release):
    """``base`` on a Poisson sample, of which at most ``cap`` records are kept, at random.

    ``base`` is the loss of adding or removing a record of the sample, ``exchange`` that of
    exchanging one: where the sample of the others fills the batch, a record takes the place of
    another (docs/theory/sampling.md). ``population`` is the larger one of two neighbours, or, with
    ``or_fewer``, the most records of a dataset to which one may still be added.
    """

    kind = "truncated_poisson"
    draws_batches = True
    base: Base
    exchange: Base
    rate: Probability
    cap: PositiveInteger
    population: PositiveInteger
    or_fewer: bool = False

    def check_fields(self) -> None:
        """Check the parameters."""
        need_pairs(
            "a capped batch needs pairs; use poisson(rate) without a cap",
            base=self.base,
            exchange=self.exchange,
        )
        if not isinstance(self.or_fewer, bool):
            raise ValueError(f"or_fewer must be True or False, got or_fewer={self.or_fewer!r}")
        if self.or_fewer:
            self._check_order()

    def _check_order(self) -> None:
        """Refuse what smaller datasets are not covered for: the bound must grow with the size."""
        base, exchange = self.base.pair(Half.REMOVE), self.exchange.pair(Half.REPLACE)
        if not base.gaussian_mu or not exchange.gaussian_mu >= base.gaussian_mu:
            raise UnsoundConfiguration(
                "or_fewer is proven for Gaussian noise whose exchange costs no less than a "
                f"removal, got base={self.base} and exchange={self.exchange}; leave or_fewer out, "
                "for one size of dataset"
            )

    def pair(self, half: Half) -> Pair:
        """Return the mixture of both cases, the fullness of the batch being seen."""
        if self.rate == 0:
            return binary_pair(0.0)
        base = self.base.pair(half)
        plain = base if self.rate == 1 else SampledPair(base, self.rate, half)
        if self.or_fewer:
            return self._at_most_so_many(plain, half)
        full = truncation_probability(self.rate, self.cap, self.population)
        if full == 0:
            return plain
        exchanged = self.exchange.pair(Half.REPLACE)
        kept = min(_kept(self.rate, self.cap, self.population) / full * (1 + _BINOMIAL_ERROR), 1.0)
        other = exchanged if kept == 1 else SampledPair(exchanged, kept, half)
        # A dataset of null records reaches this: the record takes part, whoever makes room.
        share = min((1 - full) * self.rate + full * kept, self.rate) * (1 - 4 * _BINOMIAL_ERROR)
        inside = SampledPair(base.reached, share, half)
        if full >= 1 - _BINOMIAL_ERROR:
            return EitherPair(plain, other, _BINOMIAL_ERROR, 1.0, inside)
        stay = min(_at_most(self.cap - 1, self.population - 1, self.rate), 1.0)
        return EitherPair(
            plain,
            other,
            min(stay * (1 + _BINOMIAL_ERROR), 1.0),
            min(full * (1 + _BINOMIAL_ERROR), 1.0),
            inside,
        )

    def _at_most_so_many(self, plain: Pair, half: Half) -> Pair:
        """Return a pair for all datasets up to a size: the record is kept, however full it is.

        A dataset of few records, whose batches are never full, reaches the Poisson sample.
        """
        size = self.population + 1
        full = truncation_probability(self.rate, self.cap, size) * (1 + _BINOMIAL_ERROR)
        if full == 0:
            return plain
        exchanged = self.exchange.pair(Half.REPLACE)
        other = exchanged if self.rate == 1 else SampledPair(exchanged, self.rate, half)
        stay = _at_most(self.cap - 1, size - 1, self.rate) * (1 + _BINOMIAL_ERROR)
        if stay <= _BINOMIAL_ERROR:
            return EitherPair(plain, other, _BINOMIAL_ERROR, 1.0, plain)
        return EitherPair(plain, other, min(stay, 1.0), min(full, 1.0), plain)

    def check(self, adjacency: Adjacency) -> None:
        """Add/remove and its halves; null records would take places in a full batch."""
        self.exchange.check(Adjacency.REPLACE)
        if adjacency in (Adjacency.REPLACE, Adjacency.ZERO_OUT):
            raise UnsoundConfiguration(
                f"truncated_poisson is for add/remove, got adjacency={str(adjacency)!r}: use "
                "poisson without a cap, or fixed_size(batch_size, population, "
                f"adjacency={str(adjacency)!r})"
            )
        self.base.check(adjacency)

    def __str__(self) -> str:
        """Return the call chain."""
        return (
            f"{self.base}.truncated_poisson(rate={self.rate:g}, cap={self.cap}, "
            f"population={self.population}{', or_fewer=True' if self.or_fewer else ''})"
        )


def truncation_probability(rate: float, cap: int, population: int) -> float:
    """Return the probability that the other records of a population fill a capped batch.

    Args:
        rate: probability with which every record is sampled.
        cap: most records of a batch.
        population: size of the dataset, the record in question included.

    Example:
        >>> from taut.accounting import truncation_probability
        >>> f"{truncation_probability(rate=0.01, cap=160, population=10_000):.1e}"
        '1.7e-08'
    """
    share = validate.probability(rate=rate)
    most = validate.positive_integer(cap=cap)
    total = validate.positive_integer(population=population)
    return _more_than(most - 1, total - 1, share)


def _kept(rate: float, cap: int, population: int) -> float:
    """Return the probability that a record is sampled, the batch is too full, and it is kept."""
    return _more_than(cap, population, rate) * cap / population


def _more_than(count: int, trials: int, rate: float) -> float:
    """Return the probability of more than ``count`` successes: a binomial tail is a beta integral.

    From `scipy.special`, since `scipy.stats` would double the time that an import takes.
    """
    return float(betainc(count + 1, trials - count, rate)) if count < trials else 0.0


def _at_most(count: int, trials: int, rate: float) -> float:
    """Return the probability of at most ``count`` successes."""
    return float(betaincc(count + 1, trials - count, rate)) if count < trials else 1.0
