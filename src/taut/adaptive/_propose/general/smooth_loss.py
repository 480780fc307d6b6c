"""A mechanism behind a private upper bound on its loss, by smooth sensitivity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from scipy.special import ndtri

from taut._base import validate
from taut.accounting import Adjacency, PrivacyLoss, from_rdp, gaussian
from taut.adaptive._propose.boundary import asked, loss_of
from taut.adaptive._propose.distance_test import checked_delta
from taut.adaptive._propose.frozen_fields import settle
from taut.adaptive._propose.general.losses import behind_release
from taut.adaptive._propose.general.proposal import made
from taut.adaptive._propose.outcome import Outcome
from taut.noise import Box, GaussianNoise, RandomSource, gaussian_with_scales

__all__ = ["SmoothLossRelease", "smooth_noise_rdp"]

_D = TypeVar("_D")
_T = TypeVar("_T")
_QUANTILE_ERROR = 1 + 1e-9  # relative: ndtri and a sum are good to 1e-13
# Of the limit: sensitivities and losses beyond them change no decision, and with a sigma of 0.01 or
# more a release lies within 2^41 scales of zero, where it is not cut.
# Divergences grow with the order; nearer to one a rounding over the excess of the order would show
# beyond 1e-10 of the smoothness.
_LEAST_SMOOTH_ORDER = 1 + 1e-5
_LEAST_PART, _MOST_PART = 1e-6, 1e3


@dataclass(frozen=True)
class SmoothLossRelease(Generic[_D, _T]):
    """A mechanism, if a noisy upper bound on its loss at the data is within a limit.

    Args:
        mechanism: function of the data that draws its own noise and returns what is published.
        loss_at: function of the data: a bound on the Renyi divergence of ``order`` from the
            mechanism's output to that of every neighbour.
        smooth_sensitivity: function of the data: a bound on how far a record moves ``loss_at``
            here, that moves by a factor of at most exp(``smoothness``) with a record.
        smoothness: the logarithm of that factor, between 1e-6 and 1.
        order: the order that all of this is about, above 1.
        limit: largest divergence with which the mechanism is run.
        sigma: noise of both releases of the test, in units of what a record moves; 0.01 to 1e6.
        delta: probability, at most, that a bound is too small; below 1/2.
        adjacency: relation in which all of this holds.

    First the logarithm of the smooth sensitivity is released, with normal noise and so much more
    that its exponential S is too small with probability ``delta`` / 2 only. Then the loss is, with
    normal noise of deviation ``sigma`` S, a public number: unlike noise in proportion to the
    smooth sensitivity itself (Papernot et al. 2018) it costs what a Gaussian mechanism does, at
    every order, and its digits tell nothing.

    **Guarantee**: `loss`: ``delta``-approximate Renyi differential privacy of ``order`` / sigma^2 +
    ``limit`` at that order (docs/theory/propose-test-release.md). Functions that raise, or say what
    is no loss, lead to a refusal.

    Raises:
        ValueError: if a parameter is out of range.
    """

    mechanism: Callable[[_D], _T]
    loss_at: Callable[[_D], float]
    smooth_sensitivity: Callable[[_D], float]
    smoothness: float
    order: float
    limit: float
    sigma: float
    delta: float
    adjacency: Adjacency | str

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name in ("mechanism", "loss_at", "smooth_sensitivity"):
            if not callable(getattr(self, name)):
                raise validate.WrongType(f"{name} must be a function of the data")
        if not 1e-6 <= validate.positive(smoothness=self.smoothness) <= 1:  # see _LEAST_PART
            raise ValueError(f"smoothness must be between 1e-6 and 1, got {self.smoothness!r}")
        settle(self, limit=validate.positive(limit=self.limit), delta=checked_delta(self.delta))
        if not 0.01 <= validate.positive(sigma=self.sigma) <= 1e6:  # see _LEAST_PART
            raise ValueError(f"sigma must be between 0.01 and 1e6, got {self.sigma!r}")
        if not validate.finite(order=self.order) > 1:
            raise ValueError(f"order must be above 1, got order={self.order!r}")
        settle(
            self,
            smoothness=float(self.smoothness),
            order=float(self.order),
            sigma=float(self.sigma),
            adjacency=Adjacency(self.adjacency),
        )

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release, refused or not."""
        both = 2 * gaussian(self.sigma, adjacency=self.adjacency)
        within = from_rdp({self.order: self.limit * _QUANTILE_ERROR}, adjacency=self.adjacency)
        return behind_release(both, 0.0, within, self.delta, fixed=True)

    def release(self, data: _D, generator: RandomSource | None = None) -> Outcome[_T]:
        """Return what the mechanism releases, or a refusal.

        Args:
            data: dataset that all functions are asked about.
            generator: source of the noise of the test, by default the secure generator.

        **Guarantee**: that of the class.
        """
        # In units of the limit; within public ends the logarithm is as smooth as before.
        found = loss_of(asked(self.smooth_sensitivity, data)) / self.limit
        smooth = min(max(found, _LEAST_PART), _MOST_PART)
        noisy = self._above(math.log(smooth), self.smoothness, generator)
        # No record moves what follows by more than its range, and public ends tell nothing.
        width = math.exp(min(max(noisy, math.log(_LEAST_PART)), math.log(_MOST_PART)))
        spent = loss_of(asked(self.loss_at, data)) / self.limit
        upper = self._above(min(spent, _MOST_PART), width, generator)
        if not upper <= 1 or math.isinf(spent):
            return Outcome(False, None, self.loss)
        return made(lambda: self.mechanism(data), self.loss)

    def _above(self, value: float, width: float, generator: RandomSource | None) -> float:
        """Release a number that a record moves by a width, raised above it but for a half delta."""
        noise = self._noise(width)
        margin = -float(ndtri(self.delta / 2)) * float(noise.scales[0]) + float(noise.grid[0])
        return float(noise.release([value], generator)[0]) + margin * _QUANTILE_ERROR

    def _noise(self, width: float) -> GaussianNoise:
        return gaussian_with_scales(Box([width], adjacency=self.adjacency), [width * self.sigma])


def smooth_noise_rdp(order: float, smoothness: float, sigma: float) -> float:
    """Return the worst divergence of normal noise in proportion to a smooth sensitivity.

    Args:
        order: the Renyi order, above 1.
        smoothness: b, where a record moves the logarithm of the smooth sensitivity S by at most b.
        sigma: deviation of the noise in units of S.

    The release is f + sigma S N(0, 1), where a record moves f by at most the smaller S.

    **Guarantee**: exact but for rounding, and infinite where order (1 - exp(-2 b)) >= 1; orders
    below 1.00001 have the value there. Papernot et al. (2018, Theorem 23) and Zhu (2023, Lemma
    6.4.12) state less, and too little (docs/errata.md).

    Example:
        >>> from taut.adaptive import smooth_noise_rdp
        >>> round(smooth_noise_rdp(40, 0.01, 15), 6)
        0.428873
    """
    a, b = validate.finite(order=order), validate.non_negative(smoothness=smoothness)
    scale = validate.positive(sigma=sigma)
    if not a > 1:
        raise ValueError(f"order must be above 1, got order={order!r}")
    a = max(a, _LEAST_SMOOTH_ORDER)
    shrinks = a * math.expm1(-2 * b)
    if shrinks <= -1:
        return math.inf
    moved = a * math.exp(-2 * b) / (1 + shrinks) / 2 / scale / scale
    return moved + max(-(math.log1p(shrinks) / 2 + a * b) / (a - 1), 0.0)
