"""Twice sampling of rows that are clipped, and hidden by noise, block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.validate import Probability
from taut._base.worst_record import OPERATIONS_FACTOR, Vertex, l2_norm, vertex
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.coordinates import TwiceSampled, cell_sampled
from taut.accounting._mechanisms.cumulant_tables import divergences_from, table_size
from taut.accounting._mechanisms.noise import Gaussian
from taut.accounting._releases.release import Release
from taut.accounting._releases.renyi_only import RenyiOnly
from taut.accounting._releases.sampled import Poisson
from taut.accounting.renyi._sums import poisson_cumulants

__all__ = ["TwiceSampledBlocks", "twice_sampled_blocks"]


@lru_cache(maxsize=64)
def _cumulants(
    record_rate: float,
    rate: float,
    parts: tuple[tuple[Vertex, float], ...],
    largest: int,
) -> Vector:
    """Return the cumulants of twice sampling at the vertex of every block, orders 0 to largest."""
    inside: Vector = np.sum([cell_sampled(rate, *part, largest) for part in parts], axis=0)
    return poisson_cumulants(record_rate, inside * OPERATIONS_FACTOR)


@dataclass(frozen=True)
class TwiceSampledBlocks(RenyiOnly):
    """Twice sampling of rows in blocks, every one with bounds and noise of its own.

    ``coordinate_rate`` and ``record_rate`` are as for ``TwiceSampled``; the other fields hold one
    number for every block.
    """

    kind = "twice_sampled_blocks"
    no_exchange = TwiceSampled.no_exchange
    record_rate: Probability
    coordinate_rate: Probability
    sigmas: tuple[float, ...]
    clips: tuple[float, ...]
    clip_infs: tuple[float, ...]
    dimensions: tuple[int, ...]

    def check_fields(self) -> None:
        """Check the parameters."""
        counts = {len(self.sigmas), len(self.clips), len(self.clip_infs), len(self.dimensions)}
        if len(counts) != 1 or 0 in counts:
            raise ValueError(
                "sigmas, clips, clip_infs and dimensions must hold one number for every block, got "
                f"{len(self.sigmas)}, {len(self.clips)}, {len(self.clip_infs)} and "
                f"{len(self.dimensions)}"
            )
        for name in ("sigmas", "clips", "clip_infs"):
            for value in getattr(self, name):
                validate.positive(**{name: value})
        for value in self.dimensions:
            validate.positive_integer(dimensions=value)

    def __str__(self) -> str:
        """Return rates and noise; bounds are left to JSON."""
        noise = ", ".join(f"{sigma:g}" for sigma in self.sigmas)
        rates = f"record_rate={self.record_rate:g}, coordinate_rate={self.coordinate_rate:g}"
        return f"{self.kind}({rates}, sigmas=({noise}))"

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        """The record that is hardest to hide, block by block."""
        bounds = zip(self.clips, self.clip_infs, self.dimensions, strict=True)
        return tuple(vertex(*bound, 2.0) for bound in bounds)

    @property
    def length(self) -> float:
        """The largest l2-norm of a clipped record, in units of the noise, rounded up."""
        parts = zip(self.vertices, self.clips, self.sigmas, strict=True)
        return (
            math.hypot(*(l2_norm(at, clip) / sigma for at, clip, sigma in parts))
            * OPERATIONS_FACTOR
        )

    @property
    def multiplier(self) -> float:
        """The noise over the largest l2-norm of a clipped record, both after whitening."""
        return 1 / self.length

    @property
    def plain(self) -> Release:
        """A release whose pair dominates this one: the same noise and records, all coordinates."""
        return Poisson(Gaussian(1.0, self.length), self.record_rate)

    def sampled(self, rate: float) -> TwiceSampledBlocks:
        """Return the same release on a Poisson sample of the records: rates multiply."""
        return replace(self, record_rate=validate.probability(rate=rate) * self.record_rate)

    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return the divergences at the vertex, the same bound in both directions."""
        parts = tuple(zip(self.vertices, self.sigmas, strict=True))

        def cumulants(largest: int) -> Vector:
            return _cumulants(self.record_rate, self.coordinate_rate, parts, table_size(largest))

        return divergences_from(cumulants, orders)


def twice_sampled_blocks(
    record_rate: float,
    coordinate_rate: float,
    sigmas: Sequence[float],
    *,
    clips: Sequence[float],
    clip_infs: Sequence[float],
    dimensions: Sequence[int],
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of twice sampling where rows are clipped block by block.

    With ``record_rate=1`` it is that of coordinate-wise sampling. ``equal_compute_plan`` shows the
    plain plan of the same cost, which is never worse.

    Args:
        record_rate: probability with which a record takes part.
        coordinate_rate: probability with which a coordinate of a sampled record takes part.
        sigmas: standard deviation of the noise on every coordinate, by block.
        clips: bound on the l2-norm of a row in every block.
        clip_infs: bound on the magnitude of a single coordinate, by block.
        dimensions: number of coordinates of every block.
        adjacency: add/remove, one of its halves, or zero-out.

    **Guarantee**: upper bounds on Renyi divergences for add/remove and zero-out, Poisson samples
    and masks, secret and fresh at each release (Xiao, Wan and Devadas 2023, Theorem 5.6, with the
    exact vertex of every block). Any sequence of sigmas is accounted for, whatever chose it, as
    long as it does not depend on the records. There is no dominating pair.

    Raises:
        ValueError: for a rate outside [0, 1], sequences of different lengths, or bounds that are
            not positive.
        UnsoundConfiguration: for replace-one, which has no theorem.

    Example:
        >>> from taut.accounting import twice_sampled_blocks
        >>> step = twice_sampled_blocks(
        ...     0.1, 0.5, [1.236, 0.6411, 0.3194],
        ...     clips=[1.0, 0.6, 0.3], clip_infs=[0.5, 0.15, 0.0375], dimensions=[50, 200, 750],
        ... )
        >>> round(step.rdp(6), 4)
        0.05
    """
    release = TwiceSampledBlocks(
        record_rate,
        coordinate_rate,
        tuple(sigmas),
        tuple(clips),
        tuple(clip_infs),
        tuple(dimensions),
    )
    return PrivacyLoss([(release, 1)], adjacency)
