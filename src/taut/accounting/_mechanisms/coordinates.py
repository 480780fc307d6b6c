"""Coordinate-wise and twice sampling of a clipped sum: known by their Renyi divergences alone.

Every coordinate of every record draws its own coin. The record that is hardest to hide then fills
as few coordinates as its clipping allows, but only for Renyi divergences in one direction: for the
hockey stick it may spread (docs/errata.md). So nothing here has a dominating pair.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.validate import Positive, PositiveInteger, Probability
from taut._base.worst_record import OPERATIONS_FACTOR, Vertex, l2_norm, vertex
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.cumulant_tables import (
    divergences_from,
    gaussian_cumulants,
    table_size,
)
from taut.accounting._mechanisms.noise import Gaussian
from taut.accounting._releases.release import Release
from taut.accounting._releases.renyi_only import RenyiOnly
from taut.accounting._releases.sampled import Poisson
from taut.accounting.renyi._sums import poisson_cumulants

__all__ = [
    "Coordinatewise",
    "TwiceSampled",
    "cell_sampled",
    "coordinatewise",
    "twice_sampled",
]


@lru_cache(maxsize=256)
def cell_sampled(rate: float, at: Vertex, sigma: float, largest: int) -> Vector:
    """Return the cumulants of coordinate-wise sampling at the vertex, orders 0 to ``largest``."""
    shifts = [at.large / sigma, at.rest / sigma]
    if at.rest == 0:
        shifts.pop()
    base = np.array([gaussian_cumulants(shift, largest) for shift in shifts])
    single, *last = poisson_cumulants(np.full(len(shifts), rate), base)
    total: Vector = (at.full * single + sum(last)) * OPERATIONS_FACTOR
    return total


@lru_cache(maxsize=64)
def _twice_sampled(
    record_rate: float, rate: float, at: Vertex, sigma: float, largest: int
) -> Vector:
    """Return the cumulants of twice sampling at the vertex, orders 0 to ``largest``."""
    return poisson_cumulants(record_rate, cell_sampled(rate, at, sigma, largest))


class _Clipped(RenyiOnly):
    """What both samplers share: rows clipped in two norms, and normal noise.

    Zero-out is covered as add/remove is: a null record leaves the sum as an absent one does.
    """

    no_exchange = (
        "{kind} has no theorem for adjacency='replace'; declare the release with "
        "adjacency='add_remove' or 'zero_out'"
    )
    sigma: float
    clip: float
    clip_inf: float
    dimension: int
    p: float

    def check_fields(self) -> None:
        """Check the parameters."""
        if self.p > 2:
            raise ValueError(
                f"p must be at most 2, got p={self.p!r}: beyond it the flat record is worse than "
                "the concentrated one. Convert the bound to l2: p=2 and "
                "clip * dimension**(1/2 - 1/p)"
            )

    @property
    def vertex(self) -> Vertex:
        """The record that is hardest to hide."""
        return vertex(self.clip, self.clip_inf, self.dimension, self.p)

    @property
    def l2_clip(self) -> float:
        """The largest l2-norm of a clipped record."""
        return l2_norm(self.vertex, self.clip)

    @property
    def multiplier(self) -> float:
        """The noise over the largest l2-norm of a clipped record."""
        return self.sigma / self.l2_clip

    @abstractmethod
    def _cumulants(self, largest: int) -> Vector:
        """Return the cumulants at the vertex, orders 0 to ``largest``."""

    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return the divergences at the vertex, the same bound in both directions."""
        return divergences_from(lambda largest: self._cumulants(table_size(largest)), orders)


@dataclass(frozen=True)
class Coordinatewise(_Clipped):
    """A clipped sum plus Gaussian noise, every coordinate of which has its own Poisson sample."""

    kind = "coordinatewise"
    rate: Probability
    sigma: Positive
    clip: Positive
    clip_inf: Positive
    dimension: PositiveInteger
    p: Positive

    @property
    def plain(self) -> Release:
        """A release whose pair dominates this one: the same noise without sampling."""
        return Gaussian(self.sigma, self.l2_clip)

    def sampled(self, rate: float) -> TwiceSampled:
        """Return the same release on a Poisson sample of the records."""
        return TwiceSampled(
            rate, self.rate, self.sigma, self.clip, self.clip_inf, self.dimension, self.p
        )

    def _cumulants(self, largest: int) -> Vector:
        return cell_sampled(self.rate, self.vertex, self.sigma, largest)


@dataclass(frozen=True)
class TwiceSampled(_Clipped):
    """Coordinate-wise sampling at ``coordinate_rate`` of a Poisson sample of the records."""

    kind = "twice_sampled"
    record_rate: Probability
    coordinate_rate: Probability
    sigma: Positive
    clip: Positive
    clip_inf: Positive
    dimension: PositiveInteger
    p: Positive

    @property
    def plain(self) -> Release:
        """A release whose pair dominates this one: the same noise and records, all coordinates."""
        return Poisson(Gaussian(self.sigma, self.l2_clip), self.record_rate)

    def sampled(self, rate: float) -> TwiceSampled:
        """Return the same release on a Poisson sample of the records: rates multiply."""
        return replace(self, record_rate=validate.probability(rate=rate) * self.record_rate)

    def _cumulants(self, largest: int) -> Vector:
        # The published proof of "absent against present" is complete at even orders; the binomial
        # sum holds at all of them: the divergences of the masked row cover both directions.
        rates = self.record_rate, self.coordinate_rate
        return _twice_sampled(*rates, self.vertex, self.sigma, largest)


def coordinatewise(
    rate: float,
    sigma: float,
    *,
    clip: float = 1.0,
    clip_inf: float,
    dimension: int,
    p: float = 2.0,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of a noisy sum in which each coordinate of each record is sampled by itself.

    The release is o_l = sum over a fresh Poisson(``rate``) sample, drawn for coordinate l alone,
    of the l-th coordinates of clipped rows, plus N(0, sigma^2).

    Args:
        rate: probability with which a cell takes part, all cells independently.
        sigma: standard deviation of the noise on every coordinate.
        clip: bound on the l_p-norm of a row.
        clip_inf: bound on the magnitude of a single coordinate of a row.
        dimension: number of coordinates.
        p: exponent of the norm that ``clip`` bounds, in (0, 2].
        adjacency: add/remove, one of its halves, or zero-out.

    **Guarantee**: upper bounds on Renyi divergences for add/remove and zero-out, with secret,
    independent and fresh masks, and a sum, or a mean over a public number (Xiao, Wan and Devadas
    2023, Theorem 5.2 and Remark 5.1). At integer orders they are attained by a record that fills
    floor((clip/clip_inf)^p) coordinates and part of one more; real orders take chords. There is
    no dominating pair: epsilon comes from the divergences.

    Raises:
        ValueError: for a rate outside [0, 1], p above 2, or bounds that are not positive.
        UnsoundConfiguration: for replace-one, which has no theorem.

    Example:
        >>> from taut.accounting import coordinatewise
        >>> step = coordinatewise(0.01, sigma=0.5, clip_inf=0.25, dimension=1000)
        >>> round(step.rdp(8), 7)
        0.0018521
    """
    release = Coordinatewise(rate, sigma, clip, clip_inf, dimension, p)
    return PrivacyLoss([(release, 1)], adjacency)


def twice_sampled(
    record_rate: float,
    coordinate_rate: float,
    sigma: float,
    *,
    clip: float = 1.0,
    clip_inf: float,
    dimension: int,
    p: float = 2.0,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of sampling records first and then the coordinates of each of them.

    At the price of the same gradients, plain Poisson sampling of records is never worse:
    ``equal_compute_plan`` shows by how much. Masks pay where a cell costs money or bandwidth.

    Args:
        record_rate: probability with which a record takes part.
        coordinate_rate: probability with which a coordinate of a sampled record takes part.
        sigma: standard deviation of the noise on every coordinate.
        clip: bound on the l_p-norm of a row.
        clip_inf: bound on the magnitude of a single coordinate of a row.
        dimension: number of coordinates.
        p: exponent of the norm that ``clip`` bounds, in (0, 2].
        adjacency: add/remove, one of its halves, or zero-out.

    **Guarantee**: upper bounds on Renyi divergences for add/remove and zero-out, Poisson samples
    and masks, secret and fresh at each release (Xiao, Wan and Devadas 2023, Theorem 5.4). Attained
    with the record present against absent, at integer orders. In the other direction their proof is
    complete at even orders, and docs/theory/renyi.md closes the odd ones. There is no dominating
    pair.

    Raises:
        ValueError: for a rate outside [0, 1], p above 2, or bounds that are not positive.
        UnsoundConfiguration: for replace-one, which has no theorem.

    Example:
        >>> from taut.accounting import twice_sampled
        >>> step = twice_sampled(0.02, 0.5, sigma=0.6, clip_inf=0.1, dimension=100_000)
        >>> round((5_000 * step).epsilon(delta=1e-5), 2)
        7.39
    """
    release = TwiceSampled(record_rate, coordinate_rate, sigma, clip, clip_inf, dimension, p)
    return PrivacyLoss([(release, 1)], adjacency)
