"""What sampling coordinates buys: the plain plan of equal cost, limits, and sampling error.

Functions named ``estimate_*`` return limits for ever more coordinates. They are approached from
above, so they are below the truth at every finite dimension, and no guarantee can be made of them
(docs/errata.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut.accounting._adjacency import Half, halves
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.coordinate_blocks import TwiceSampledBlocks
from taut.accounting._mechanisms.coordinates import Coordinatewise, TwiceSampled
from taut.accounting._mechanisms.cumulant_tables import gaussian_cumulants
from taut.accounting._mechanisms.noise import Gaussian
from taut.accounting._releases.renyi_only import RenyiOnly
from taut.accounting._releases.sampled import Poisson
from taut.accounting.renyi._conversions import epsilon_from_rdp
from taut.accounting.renyi._sums import poisson_cumulants

__all__ = [
    "EqualComputePlan",
    "equal_compute_plan",
    "estimate_many_coordinates",
    "renyi_epsilon",
    "sampled_mean_error",
]


@dataclass(frozen=True)
class EqualComputePlan:
    """Twice sampling beside the plain plan that evaluates the same records.

    Attributes:
        loss: the loss of the plain plan: no mask, no bound on single coordinates.
        rate: its sampling rate of records.
        multiplier: its noise multiplier, at which the noise of the estimate is the same.
        epsilon: a certified epsilon of the plain plan, never above ``twice_epsilon``.
        renyi_epsilon: what the Renyi divergences of the plain plan prove, by the same conversion.
        twice_epsilon: the epsilon that the Renyi divergences of twice sampling prove.
        delta: at which all hold.
    """

    loss: PrivacyLoss
    rate: float
    multiplier: float
    epsilon: float
    twice_epsilon: float
    delta: float
    renyi_epsilon: float


def equal_compute_plan(
    loss: PrivacyLoss, delta: float, *, conversion: str = "improved"
) -> EqualComputePlan:
    """Return the plain Poisson plan that costs the gradients of a twice-sampled one.

    Multiplying each clipped row by the coordinate rate has the mean of masking it, at less
    sampling variance; noise sigma on it is a multiplier sigma / (coordinate_rate * clip).

    Args:
        loss: repetitions of one twice-sampled or coordinate-wise release, in blocks or not; the
            latter touches all records.
        delta: probability delta of the guarantee, in (0, 1).
        conversion: rule that turns divergences into epsilon, as for ``epsilon_from_rdp``, for both
            plans.

    **Guarantee**: the relation of ``loss``. The plain divergences are the limit of the
    twice-sampled ones for ever more coordinates, which they approach from above
    (docs/theory/coordinates.md), so ``epsilon <= twice_epsilon``.

    Raises:
        ValueError: if ``loss`` is something else, or masks everything.

    Example:
        >>> from taut.accounting import equal_compute_plan, twice_sampled
        >>> step = twice_sampled(0.02, 0.5, sigma=0.6, clip_inf=0.25, dimension=1000)
        >>> plan = equal_compute_plan(5000 * step, delta=1e-5)
        >>> plan.multiplier, plan.epsilon < plan.twice_epsilon
        (1.2, True)
    """
    release, count = _only_release(loss)
    if isinstance(release, Coordinatewise):
        release = release.sampled(1.0)
    if release.coordinate_rate == 0:
        raise ValueError("coordinate_rate=0 releases noise alone; there is no plan to compare with")
    multiplier = release.multiplier / release.coordinate_rate
    plain = Poisson(Gaussian(multiplier, 1.0), release.record_rate)
    unmasked = TwiceSampled(release.record_rate, 1.0, multiplier, 1.0, 1.0, 1, 2.0)
    directions = halves(loss.adjacency)
    twice_epsilon = renyi_epsilon(release, count, directions, delta, conversion)
    by_renyi = renyi_epsilon(unmasked, count, directions, delta, conversion)
    total = PrivacyLoss([(plain, count)], loss.adjacency)
    return EqualComputePlan(
        total,
        release.record_rate,
        multiplier,
        min(by_renyi, total.epsilon(delta), twice_epsilon),
        twice_epsilon,
        delta,
        by_renyi,
    )


def renyi_epsilon(
    release: RenyiOnly, count: int, directions: Sequence[Half], delta: float, conversion: str
) -> float:
    """Return the epsilon of ``count`` releases that the larger divergence of two proves."""

    def curve(orders: Vector) -> Vector:
        values: Vector = np.max([release.renyi(half, orders) for half in directions], axis=0)
        return count * values

    return epsilon_from_rdp(curve, delta, conversion=conversion).value


def estimate_many_coordinates(loss: PrivacyLoss, order: int) -> float:
    """Return the limit of a Renyi divergence as a record spreads over ever more coordinates.

    An estimate, from below: a q^2 c^2 / (2 sigma^2) with the l2-norm c of the record for
    coordinate-wise sampling, and the Poisson sum over that for twice sampling (Xiao, Wan and
    Devadas 2023, Theorem 5.3 for p = 2 and Corollary 5.5).

    Args:
        loss: repetitions of one coordinate-wise or twice-sampled release.
        order: an integer from 2 on.

    Raises:
        ValueError: if ``loss`` is something else, or ``order`` below 2.
    """
    release, count = _only_release(loss)
    if validate.positive_integer(order=order) < 2:
        raise ValueError(f"order must be at least 2, got order={order!r}")
    if isinstance(release, Coordinatewise):
        rates = 1.0, release.rate
    else:
        rates = release.record_rate, release.coordinate_rate
    base = gaussian_cumulants(rates[1] / release.multiplier, order)
    return count * float(poisson_cumulants(rates[0], base)[order]) / (order - 1)


Masked: TypeAlias = Coordinatewise | TwiceSampled | TwiceSampledBlocks
"""Releases that sample coordinates."""


def _only_release(loss: PrivacyLoss) -> tuple[Masked, int]:
    """Return the only release of a sum with its count, or refuse."""
    validate.instance(PrivacyLoss, loss=loss)
    if len(loss.terms) == 1:
        release, count = loss.terms[0]
        if isinstance(release, Coordinatewise | TwiceSampled | TwiceSampledBlocks):
            return release, count
    raise ValueError(
        f"loss must be a multiple of one coordinatewise or twice_sampled release, got loss={loss!r}"
    )


def sampled_mean_error(rows: ArrayLike, rate: float, sigma: float = 0.0) -> float:
    """Return E||o / (n rate) - mean||^2 for a sum o whose cells take part with probability rate.

    The same for sampling records, coordinates, or records and then coordinates with rates that
    multiply to ``rate`` (Xiao, Wan and Devadas 2023, Proposition 5.1).

    Args:
        rows: clipped rows, shape (n, d).
        rate: sampling rate, in (0, 1].
        sigma: standard deviation of the noise on every coordinate of the sum.

    Raises:
        ValueError: if ``rows`` is not a matrix, or ``rate`` not in (0, 1].
    """
    y = real_numbers(rows, "rows")
    if y.ndim != 2 or y.shape[0] == 0:
        raise ValueError(f"rows must be a matrix with at least one row, got shape {y.shape}")
    q = validate.probability(rate=rate)
    if q == 0:
        raise ValueError("rate must be greater than 0: without a sample there is no estimate")
    deviation = np.float64(validate.non_negative(sigma=sigma))
    n = y.shape[0]
    with np.errstate(all="ignore"):  # rows that are not finite have a mean error that is none
        share = np.float64(q)  # whose quotients are infinite where those of floats raise
        sampled = (1 - share) / (share * n**2) * np.sum(y**2)
        return float(sampled + y.shape[1] * (deviation / (n * share)) ** 2)
