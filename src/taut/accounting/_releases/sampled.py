"""Sampled releases: a release around another, with the sampler's theorem checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from taut._base.arrays import Vector
from taut._base.floats import DOWN
from taut._base.validate import Probability
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._engines.half_sum import merge_gaussians
from taut.accounting._pairs.finite import FinitePair, binary_pair
from taut.accounting._pairs.opposite import OppositePair
from taut.accounting._pairs.pair import Pair
from taut.accounting._pairs.profile import Knots, convex_knots, pair_of_knots
from taut.accounting._pairs.sampled import ReplaceSampledPair, SampledPair
from taut.accounting._releases.product import EnclosedPair, product_pair
from taut.accounting._releases.release import (
    Base,
    FixedSizeSample,
    PoissonSample,
    Release,
    Several,
    refuse_batches,
)
from taut.accounting._releases.renyi_only import RenyiOnly, need_pairs
from taut.accounting._releases.sampled_renyi import FixedSizeRenyi, JointRenyi, PoissonRenyi
from taut.errors import UnsoundConfiguration

__all__ = ["FixedSize", "Joint", "Poisson", "PoissonReplace"]

# Of a profile that is known by its values. Chords lie above it, which is sound, by a share that
# falls with the square of their number.
_PROFILE_KNOTS = 4096
_PROFILE_TAIL = 1e-60  # mass beyond the last knot, where the profile is taken to be constant
_SAME_NOISE = 1e-9  # relative: what rounding adds to a scale that was divided or printed


@dataclass(frozen=True)
class Joint(Several):
    """Several releases that look at one sample of the records, all with dominating pairs."""

    kind = "joint"
    releases: tuple[Release, ...]
    counts: tuple[int, ...]

    def check_fields(self) -> None:
        """Check the parameters."""
        super().check_fields()
        for release in self.releases:
            if isinstance(release, RenyiOnly):
                raise ValueError(f"releases must have dominating pairs, got release={release!r}")

    def pair(self, half: Half) -> Pair:
        """Return the product of the pairs; Gaussians and constants merge exactly."""
        return _product(self, half)

    def known_divergences(self, half: Half, orders: Vector) -> Vector:
        """Return their sum: tails that the product pair cuts have finite moments."""
        return self.by_divergences.renyi(half, orders)

    @property
    def by_divergences(self) -> JointRenyi:
        """The same releases, seen by their Renyi divergences."""
        return JointRenyi(self.releases, self.counts)


@lru_cache(maxsize=64)
def _product(joint: Joint, half: Half) -> Pair:
    terms = zip(joint.releases, joint.counts, strict=True)
    whole = merge_gaussians(half, [(release.pair(half), count) for release, count in terms])
    if not whole.terms:
        return binary_pair(0.0)
    if any(pair.mass_inf >= 1 for pair, _ in whole.terms):
        return FinitePair((), (), 1.0, 1.0)
    return whole.single or product_pair(whole.terms)


@dataclass(frozen=True)
class Poisson(PoissonSample):
    """``base`` on a sample that contains each record independently with probability ``rate``."""

    kind = "poisson"
    no_exchange = (
        "poisson(rate) of a loss for adjacency='replace' also needs the cost of removing a "
        "record: a sampled record may be exchanged for an unsampled one. Pass it as "
        "poisson(rate, removal=...), for a sum clipped at C: "
        "gaussian(sigma, sensitivity=2 * C, adjacency='replace')"
        ".poisson(rate, removal=gaussian(sigma, sensitivity=C))"
    )
    base: Base
    rate: Probability

    def check_fields(self) -> None:
        """Check the parameters."""
        refuse_batches(self.base)

    def pair(self, half: Half) -> Pair:
        """Return the amplified half."""
        if self.rate == 0:
            return binary_pair(0.0)
        base = self.base.pair(half)
        return base if self.rate == 1 else SampledPair(base, self.rate, half)

    def known_divergences(self, half: Half, orders: Vector) -> Vector | None:
        """Return the binomial sum where the base is a product, whose pair has cut tails."""
        if not isinstance(self.base, Joint):
            return None
        return PoissonRenyi(self.base.by_divergences, self.rate).renyi(half, orders)

    def sampled(self, rate: float) -> Release:
        """Sampling twice multiplies the rates."""
        return Poisson(self.base, rate * self.rate)

    def check(self, adjacency: Adjacency) -> None:
        """Poisson sampling of one loss amplifies add/remove and zero-out."""
        self.base.check(adjacency)
        super().check(adjacency)


@dataclass(frozen=True)
class PoissonReplace(Release):
    """A Poisson sample under replace-one: the record may be exchanged, or not be sampled at all.

    ``exchange`` is the loss of exchanging a record of the sample, ``removal`` that of taking it
    out. With rate q and t' = 1 + q (t - 1), advanced joint convexity (Balle, Barthe and Gaboardi
    2018, Theorem 2) gives h'(t') <= q ((1 - b) h_removal(t) + b h_exchange(t)), b = t'/t, t >= 1.
    For normal noise on a clipped sum contributions on opposite sides are the worst, and tight
    (docs/theory/joint.md).
    """

    kind = "poisson_replace"
    exchange: Base
    removal: Base
    rate: Probability

    def check_fields(self) -> None:
        """Check the parameters."""
        need_pairs(
            "replace-one under Poisson sampling needs pairs; use fixed_size(batch_size, "
            "population, adjacency='replace')",
            exchange=self.exchange,
            removal=self.removal,
        )

    def pair(self, half: Half) -> Pair:
        """Return the finite pair of the bound, which lies above it between knots."""
        if self.rate == 0:
            return binary_pair(0.0)
        if self.rate == 1:
            return self.exchange.pair(Half.REPLACE)
        mu = self.removal.pair(Half.REMOVE).gaussian_mu
        # An exchange moves a sum at most twice as far as a removal.
        if mu and self.exchange.pair(Half.REPLACE).gaussian_mu >= 2 * mu * DOWN:
            return OppositePair(mu, self.rate)
        return _replaced(self)

    def check(self, adjacency: Adjacency) -> None:
        """The result is about replace-one only."""
        self.exchange.check(Adjacency.REPLACE)
        self.removal.check(Adjacency.ADD_REMOVE)
        if adjacency is not Adjacency.REPLACE:
            raise UnsoundConfiguration(
                "poisson(rate, removal=...) is for adjacency='replace'; for "
                f"adjacency={str(adjacency)!r} amplify the add/remove loss itself: "
                "removal.poisson(rate)"
            )
        if isinstance(self.exchange, Joint) or isinstance(self.removal, Joint):
            return  # of several, whose pair takes long to make
        mu = self.removal.pair(Half.REMOVE).gaussian_mu
        if mu and self.exchange.pair(Half.REPLACE).gaussian_mu > 2 * mu * (1 + _SAME_NOISE):
            raise UnsoundConfiguration(
                f"{self.exchange} costs more than {self.removal} twice, and taking a record out "
                "and putting another in is an exchange: the two are not of one release. Give both "
                "the same noise; for a sum clipped at C: gaussian(sigma, sensitivity=2 * C, "
                "adjacency='replace').poisson(rate, removal=gaussian(sigma, sensitivity=C))"
            )

    def __str__(self) -> str:
        """Return the call chain."""
        return f"{self.exchange}.poisson(rate={self.rate:g}, removal={self.removal})"


@lru_cache(maxsize=64)
def _replaced(release: PoissonReplace) -> Pair:
    """Return the symmetric pair of the bound at many thresholds."""
    rate = release.rate
    exchange, removal = release.exchange.pair(Half.REPLACE), release.removal.pair(Half.REMOVE)
    inner = _inner_thresholds(exchange, removal)
    with np.errstate(over="ignore"):
        outer = np.log1p(rate * np.expm1(inner))
        share = np.exp(outer - inner)
        bound = (1 - share) * removal.profile(inner) + share * exchange.profile(inner)
    bound = rate * bound * (1 + exchange.profile_error + removal.profile_error)
    above = pair_of_knots(_symmetric(outer, np.minimum(bound, 1.0)))
    # If taking a record out costs no more than an exchange, an exchange for a null record may cost
    # just that, and reaches the sampled removal.
    both = np.append(-inner[::-1], inner)
    # Profiles are rounded by some 1e-12 of themselves.
    reached = bool((removal.profile(both) <= exchange.profile(both) * (1 + 1e-12)).all())
    inside = SampledPair(removal, rate, Half.REMOVE) if reached else binary_pair(0.0)
    return EnclosedPair(
        above.losses, above.log_masses, above.mass_inf, above.mass_minus_inf, inside=inside
    )


def _inner_thresholds(*pairs: Pair) -> Vector:
    """Return log thresholds from zero up that resolve every profile."""
    grids = [pair.grid(_PROFILE_TAIL, _PROFILE_KNOTS) for pair in pairs]
    nodes = np.unique(np.concatenate([[0.0], *map(_thinned, grids)]))
    return nodes[(nodes >= 0) & (nodes < 600.0)]


def _thinned(grid: Vector) -> Vector:
    """Return at most so many nodes; a product of pairs has many more."""
    chosen = np.linspace(0, grid.size - 1, min(grid.size, _PROFILE_KNOTS)).astype(np.int64)
    return grid[chosen]


def _symmetric(epsilons: Vector, deltas: Vector) -> Knots:
    """Return the hull of a bound at log thresholds >= 0, extended below by the swap rule."""
    below = -np.expm1(-epsilons) + np.exp(-epsilons) * deltas
    return convex_knots(np.append(-epsilons[::-1], epsilons), np.append(below[::-1], deltas))


@dataclass(frozen=True)
class FixedSize(FixedSizeSample):
    """``base`` on a uniformly random subset of ``batch_size`` out of ``population`` records.

    ``base`` is a replace-one loss: exchanging a sampled record changes a clipped sum by up to
    twice the clipping norm. Under add/remove the larger dataset has ``population`` records; with
    ``exchange`` the size is public and a record is exchanged, perhaps for a null record.
    """

    kind = "fixed_size"
    base: Base
    batch_size: int
    population: int
    exchange: bool = False

    def check_fields(self) -> None:
        """Check the parameters."""
        if self.base.contains_batches:
            raise UnsoundConfiguration(
                "fixed_size of a sampled release: a uniform subset of a uniform subset is one "
                "uniform subset; use one sampler, with the inner batch and the outer population"
            )
        super().check_fields()
        if self.batch_size == self.population and not self.exchange:
            raise ValueError(
                f"batch_size must be smaller than population under add/remove, got "
                f"batch_size={self.batch_size}, population={self.population}"
            )

    @property
    def rate(self) -> float:
        """The fraction of records in the sample."""
        return self.batch_size / self.population

    def pair(self, half: Half) -> Pair:
        """Return the amplified half."""
        base = self.base.pair(Half.REPLACE)
        if self.rate == 1:
            return base
        if self.exchange:
            return ReplaceSampledPair(base, self.rate)
        return SampledPair(base, self.rate, half)

    def known_divergences(self, half: Half, orders: Vector) -> Vector | None:
        """Return the bound of the product's divergences, whose pair has cut tails."""
        if not isinstance(self.base, Joint) or not self.exchange:
            return None
        base = self.base.by_divergences
        return FixedSizeRenyi(base, self.batch_size, self.population).renyi(half, orders)

    def check(self, adjacency: Adjacency) -> None:
        """The base must have a replace-one pair; the relation decides what may be exchanged."""
        self.base.check(Adjacency.REPLACE)
        if self.exchange != (adjacency in (Adjacency.REPLACE, Adjacency.ZERO_OUT)):
            raise UnsoundConfiguration(
                f"this batch was made for another relation than {str(adjacency)!r}; "
                f"use fixed_size(batch_size, population, adjacency={str(adjacency)!r})"
            )
