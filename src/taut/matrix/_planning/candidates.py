"""Kinds of encoders and samplers that are tried, and for which numbers of bands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from taut.accounting import PrivacyLoss
from taut.matrix._accounting.amplified import amplified_loss
from taut.matrix._accounting.samplers import (
    BallsInBins,
    CyclicAllocation,
    CyclicPoisson,
    PoissonRounds,
    SecretSampler,
)
from taut.matrix._accounting.unamplified import unamplified_loss
from taut.matrix._encoders.encoder import Encoder
from taut.matrix._encoders.factories import identity, square_root
from taut.matrix._encoders.optimised import banded_inverse, banded_toeplitz, buffered
from taut.matrix._participation import ONCE, FixedOrder, Participation
from taut.matrix._workloads import Workload

__all__ = ["SAMPLERS", "Encoders", "Family", "Sampler", "families", "run_loss"]

Sampler: TypeAlias = SecretSampler | Participation

SAMPLERS = ("poisson", "allocation", "cyclic_poisson", "balls_in_bins", "fixed_order")
"""Names of the ways to draw batches that are ranked."""

_MOST_SEARCHED = 256  # bands that `banded_toeplitz` looks for; beyond it the square root serves
_TRIED_BUFFERS = 4  # within a few per mille of the best for thousands of steps
_TOLERANCE = 1e-4  # of noise: errors of rows are compared to a per mille
_TOLERANCE_OF_BINS = 1e-2  # bounds for bins take a second each, and are never among the least
_BANDS_OF_INVERSES = (2, 4, 8, 16)  # of the inverse, whose reach is longer than its bands


@dataclass(frozen=True)
class Encoders:
    """Makes every encoder once: none depends on epsilon, and few on the sampler.

    Attributes:
        workload: answers that are wanted.
        order: public rule of the steps, which decides encoders that reach beyond an epoch.
        goal: error that is minimised.
    """

    workload: Workload
    order: FixedOrder
    goal: str
    _made: dict[tuple[str, int], Encoder] = field(default_factory=dict, repr=False)

    def get(self, noise: str, bands: int) -> Encoder:
        """Return an encoder of a kind with so many bands or buffers."""
        if (noise, bands) not in self._made:
            self._made[noise, bands] = self._make(noise, bands)
        return self._made[noise, bands]

    def _make(self, noise: str, bands: int) -> Encoder:
        workload, goal = self.workload, self.goal
        if bands == 1 and noise == "banded":
            return identity(workload.steps)
        if noise == "square root" or (noise == "banded" and bands > _MOST_SEARCHED):
            return square_root(workload, bands)
        if noise == "banded":  # columns of an example are orthogonal, as with one participation
            return banded_toeplitz(workload, bands, ONCE, goal=goal)
        if noise == "blt":
            return buffered(workload, bands, self.order, goal=goal)
        return banded_inverse(workload, bands, self.order, goal=goal)


@dataclass(frozen=True)
class Family:
    """A kind of encoder with a kind of sampler.

    Attributes:
        noise: kind of encoder.
        sampling: kind of sampler.
        bands: numbers of bands to begin with, in ascending order.
        sampler: function from bands to the sampler that goes with them.
        allows: function that says whether a number of bands can be had; None if those alone.
        tolerance: relative accuracy of the noise that keeps the promise.
    """

    noise: str
    sampling: str
    bands: Sequence[int]
    sampler: Callable[[int], Sampler]
    allows: Callable[[int], bool] | None = None
    tolerance: float = _TOLERANCE


def families(samplers: Sequence[str], steps: int, epoch: int) -> list[Family]:
    """Return what is tried for epochs of so many steps.

    All have one expected batch size, a share of one in ``epoch`` of the examples.
    """
    doubled = [2**k for k in range(1, epoch.bit_length()) if 2**k <= min(epoch, steps)]
    if epoch <= steps and epoch > 1 and epoch not in doubled:
        doubled.append(epoch)
    divisors = [g for g in range(2, min(epoch, steps) + 1) if epoch % g == 0]
    order = FixedOrder(epoch)
    single = "independent"
    found = [
        Family(single, "poisson", [1], lambda _: PoissonRounds(1 / epoch)),
        Family(single, "allocation", [1], lambda _: CyclicAllocation(1, epoch)),
        Family("banded", "allocation", divisors, lambda g: CyclicAllocation(g, epoch // g)),
        Family(
            "banded",
            "cyclic_poisson",
            doubled,
            lambda g: CyclicPoisson(g, g / epoch),
            lambda g: g <= min(epoch, steps),
        ),
        Family(
            "banded",
            "balls_in_bins",
            doubled[2::3] or doubled[-1:],
            lambda _: BallsInBins(epoch),
            tolerance=_TOLERANCE_OF_BINS,
        ),
        Family(single, "fixed_order", [1], lambda _: order),
        Family("banded", "fixed_order", doubled[-3:], lambda _: order),
        Family("blt", "fixed_order", [_TRIED_BUFFERS], lambda _: order),
        Family("inverse", "fixed_order", _BANDS_OF_INVERSES, lambda _: order),
        Family("square root", "fixed_order", [steps], lambda _: order),
    ]
    return [family for family in found if family.sampling in samplers and family.bands]


def run_loss(encoder: Encoder, sampler: Sampler, sigma: float, delta: float) -> PrivacyLoss:
    """Return the certified loss of a run, by the theorem of its sampler."""
    if isinstance(sampler, Participation):
        return unamplified_loss(encoder, sampler, sigma)
    return amplified_loss(encoder, sampler, sigma, delta=delta)
