"""Gaussian and Laplace noise with uniform noise on top: known by Renyi divergences alone.

Uniform noise spreads the loss of a small shift over many outputs that tell nothing. A bound on
single coordinates then pays, because the record that is hardest to hide concentrates; but noise
of the same variance that is all Gaussian hides more: ``compare_mixing`` says how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR, UP
from taut._base.validate import NonNegative, Positive, PositiveInteger, Probability
from taut._base.worst_record import Vertex, vertex
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._loss import PrivacyLoss
from taut.accounting._mechanisms.cumulant_tables import divergences_from, table_size
from taut.accounting._mechanisms.noise import Gaussian, Laplace
from taut.accounting._mechanisms.uniform_moments import (
    gaussian_uniform_cumulants,
    laplace_uniform_cumulants,
)
from taut.accounting._releases.release import Release, refuse_sampled_exchange
from taut.accounting._releases.renyi_only import RenyiOnly, divergences
from taut.accounting._releases.sampled import Poisson
from taut.accounting.renyi._sums import poisson_cumulants

__all__ = [
    "MixedGaussian",
    "MixedLaplace",
    "mixed_gaussian",
    "mixed_laplace",
]

Cumulants = Callable[[float, float, int], Vector]
"""From shift, width (both in units of the other noise) and largest order to cumulants."""


@lru_cache(maxsize=64)
def _sampled_table(
    cumulants: Cumulants, at: Vertex, noise: float, width: float, rate: float, largest: int
) -> Vector:
    """Return the cumulants of the sampled release at the vertex, orders 0 to ``largest``."""
    base = at.full * cumulants(at.large / noise, width / noise, largest)
    if at.rest > 0:
        base = base + cumulants(at.rest / noise, width / noise, largest)
    return poisson_cumulants(rate, base * (1 + 4 * RELATIVE_ERROR))


class _Mixed(RenyiOnly):
    """What the two kinds share: the worst record, sampling, checks and a name."""

    norm: ClassVar[float]
    """Which norm the sensitivity bounds."""
    width: float
    sensitivity: float
    sensitivity_inf: float
    dimension: int | None
    rate: float

    @property
    def vertex(self) -> Vertex:
        """The record that is hardest to hide."""
        return vertex(self.sensitivity, self.sensitivity_inf, self.dimension, self.norm)

    def sampled(self, rate: float) -> Self:
        """Return the same release on a Poisson sample of the records: rates multiply."""
        return replace(self, rate=validate.probability(rate=rate) * self.rate)  # type: ignore[call-arg]

    def check(self, adjacency: Adjacency) -> None:
        """Sampling needs add/remove or zero-out; without it all relations serve."""
        refuse_sampled_exchange(self, self.rate, adjacency)

    def __str__(self) -> str:
        """Return the call that makes this release, without what was left out."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        inside = ", ".join(f"{name}={value:g}" for name, value in values if value is not None)
        return f"{self.kind}({inside})"


@dataclass(frozen=True)
class MixedGaussian(_Mixed):
    """A sum over a Poisson sample plus N(0, sigma^2) plus uniform noise, on every coordinate."""

    kind = "mixed_gaussian"
    norm = 2.0
    caveat = "the worst record is known by high-precision computation, not by proof"
    sigma: Positive
    width: NonNegative
    sensitivity: Positive
    sensitivity_inf: Positive
    dimension: PositiveInteger | None
    rate: Probability

    @property
    def plain(self) -> Release:
        """A release whose pair dominates this one: uniform noise is post-processing of it."""
        return Poisson(Gaussian(self.sigma, self.sensitivity), self.rate)

    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return the smaller of the mixed bound and that of the Gaussian alone, at every order.

        At integers the mixed bound is never the larger. Elsewhere the Gaussian is asked only if it
        can win: its divergence is at least the one at the integer below.
        """

        def table(at: Vertex, width: float, largest: int) -> Vector:
            arguments = at, self.sigma, width, self.rate, table_size(largest)
            return _sampled_table(gaussian_uniform_cumulants, *arguments)

        def alone(largest: int) -> Vector:
            return table(Vertex(1, self.sensitivity, 0.0), 0.0, largest)

        mixed = divergences_from(lambda largest: table(self.vertex, self.width, largest), orders)
        below = np.floor(orders)
        floor = np.where(below < 2, 0.0, divergences_from(alone, np.maximum(below, 2.0)))
        # Both are computed to more than six digits; where they are nearer, asking does no harm.
        ask = (below != orders) & np.isfinite(mixed) & (mixed > floor * (1 - 1e-6))
        if ask.any():
            mixed[ask] = np.minimum(mixed[ask], divergences(self.plain, half, orders[ask]))
        return mixed


@dataclass(frozen=True)
class MixedLaplace(_Mixed):
    """A sum over a Poisson sample plus Laplace plus uniform noise, on every coordinate."""

    kind = "mixed_laplace"
    norm = 1.0
    scale: Positive
    width: NonNegative
    sensitivity: Positive
    sensitivity_inf: Positive
    dimension: PositiveInteger | None
    rate: Probability

    @property
    def plain(self) -> Release:
        """The release without uniform noise."""
        return Poisson(Laplace(self.scale, self.sensitivity), self.rate)

    @property
    def max_loss(self) -> float:
        """The largest loss of any output, which uniform noise leaves as it is, rounded up."""
        loss = np.float64(self.sensitivity / self.scale * UP)
        if self.rate in (0.0, 1.0):
            return float(loss * self.rate)
        # log(1 + q (e^L - 1)), without overflow
        log_odds = math.log(self.rate) + loss + np.log(-np.expm1(-loss))
        return float(np.logaddexp(0.0, log_odds) * UP)

    def renyi(self, half: Half, orders: Vector) -> Vector:
        """Return the divergences at the vertex, capped by the largest loss."""

        def cumulants(largest: int) -> Vector:
            size = table_size(largest)
            arguments = self.vertex, self.scale, self.width, self.rate
            return _sampled_table(laplace_uniform_cumulants, *arguments, size)

        mixed = divergences_from(cumulants, orders)
        return np.minimum(mixed, self.max_loss)


def mixed_gaussian(
    sigma: float,
    width: float,
    *,
    sensitivity: float = 1.0,
    sensitivity_inf: float | None = None,
    dimension: int | None = None,
    rate: float = 1.0,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of a sum with Gaussian and uniform noise on every coordinate.

    Args:
        sigma: standard deviation of the Gaussian noise.
        width: length of the interval of the uniform noise, centred and independent of the rest.
        sensitivity: bound on the l2-norm of the contribution of a record.
        sensitivity_inf: bound on each of its coordinates; by default ``sensitivity``.
        dimension: number of coordinates, which matters only if all of them at
            ``sensitivity_inf`` stay below ``sensitivity``.
        rate: probability with which a record takes part in the sum.
        adjacency: the relation for which the sensitivities hold; not replace-one if ``rate`` < 1.

    **Guarantee**: upper bounds on Renyi divergences for add/remove and zero-out with a secret
    Poisson sample (all relations without one), uniform noise that is secret, fresh and independent
    on **every** coordinate, and nothing released or kept that depends on the sum before the noise
    (Xiao, Wan and Devadas 2022, Theorem 4.1 and Corollary 4.1, corrected as in docs/errata.md).
    Integer orders; real ones take chords. Never above the bound of the Gaussian noise alone. That
    the worst record concentrates rests on the convexity of a moment in the squared shift, which is
    checked in high precision but not proven (docs/theory/mixed-noise.md). There is no dominating
    pair other than that of the Gaussian alone.

    Raises:
        ValueError: for a rate outside [0, 1], or noise or sensitivities out of range.
        UnsoundConfiguration: for replace-one with a sample, which has no theorem.

    Example:
        >>> from taut.accounting import mixed_gaussian
        >>> step = mixed_gaussian(0.335, 11.25, sensitivity_inf=0.1, rate=0.03)
        >>> round((3_400 * step).epsilon(delta=1e-5), 2)
        7.25
    """
    largest = sensitivity if sensitivity_inf is None else sensitivity_inf
    release = MixedGaussian(sigma, width, sensitivity, largest, dimension, rate)
    return PrivacyLoss([(release, 1)], adjacency)


def mixed_laplace(
    scale: float,
    width: float,
    *,
    sensitivity: float = 1.0,
    sensitivity_inf: float | None = None,
    dimension: int | None = None,
    rate: float = 1.0,
    adjacency: Adjacency | str = "add_remove",
) -> PrivacyLoss:
    """Return the loss of a sum with Laplace and uniform noise on every coordinate.

    Args:
        scale: the b of the density exp(-|x| / b) / (2 b).
        width: length of the interval of the uniform noise, centred and independent of the rest.
        sensitivity: bound on the l1-norm of the contribution of a record.
        sensitivity_inf: bound on each of its coordinates; by default ``sensitivity``.
        dimension: number of coordinates, as for :func:`mixed_gaussian`.
        rate: probability with which a record takes part in the sum.
        adjacency: neighbouring relation, as for :func:`mixed_gaussian`.

    **Guarantee**: as for :func:`mixed_gaussian`, under an l1-bound (Xiao, Wan and Devadas 2022,
    Remark C.1); here the worst record is proven (docs/theory/mixed-noise.md). Uniform noise never
    lowers the largest loss, sensitivity / scale, which caps every divergence.

    Raises:
        ValueError: for a rate outside [0, 1], or noise or sensitivities out of range.
        UnsoundConfiguration: for replace-one with a sample, which has no theorem.

    Example:
        >>> from taut.accounting import mixed_laplace
        >>> round(mixed_laplace(1.0, 10.0).rdp(2), 6)
        0.143511
    """
    largest = sensitivity if sensitivity_inf is None else sensitivity_inf
    release = MixedLaplace(scale, width, sensitivity, largest, dimension, rate)
    return PrivacyLoss([(release, 1)], adjacency)
