"""A mechanism whose parameters follow from noisy statistics of the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from taut._base import validate
from taut._base.arrays import Vector, real_numbers
from taut.accounting import PrivacyLoss
from taut.adaptive._propose.boundary import asked
from taut.adaptive._propose.distance_test import checked_delta
from taut.adaptive._propose.frozen_fields import settle
from taut.adaptive._propose.general.losses import behind_release, checked_within
from taut.adaptive._propose.general.proposal import made
from taut.adaptive._propose.outcome import Outcome
from taut.errors import UnsoundConfiguration
from taut.noise import GaussianNoise, LaplaceNoise, RandomSource

__all__ = ["CalibratedRelease"]

_D = TypeVar("_D")
_P = TypeVar("_P")
_T = TypeVar("_T")
_MOST_SCALES = 2.0**40  # half of where releases are cut: from there on nothing is known
_QUANTILE_ERROR = 1 + 1e-9  # relative: ndtri, logarithm and sums are good to 1e-13


@dataclass(frozen=True)
class CalibratedRelease(Generic[_D, _P, _T]):
    """A mechanism with parameters for the worst data that noisy statistics leave possible.

    Args:
        statistics: function of the data: the numbers that its loss depends on.
        noise: mechanism that releases them, Laplace or Gaussian noise without a basis.
        choose: function of two vectors, lower and upper bounds on the statistics: parameters with
            which the mechanism costs at most ``within`` at all data between them; None to refuse.
        mechanism: function of the data and the parameters: what is published.
        within: loss of the mechanism with parameters that suit the data, from the data at hand to
            every neighbour: ``approximate(...)``, ``pure(...)`` or ``from_rdp(...)``.
        delta: probability, at most, that a statistic lies outside of its bounds; below 1/2.
        noise_delta: probability at which the loss of the noise is taken; 0 suits Laplace noise, and
            whatever is known in orders.
        fixed: whether ``choose`` has one parameter only, or refuses: then failures of the test and
            of the mechanism do not add up.

    Statistics leave with noise and are public from then on; bounds on them are wide enough for all
    coordinates at once.

    **Guarantee**: `loss`, for the adjacency of ``noise``, if neighbours' statistics differ by a
    member of its set (Zhu 2023, Theorem 6.4.6; docs/theory/propose-test-release.md). Functions that
    raise, and statistics that are not finite, lead to a refusal.

    Raises:
        UnsoundConfiguration: for other noise, for coordinates without noise, and for losses that
            are neither a point nor known in orders.
    """

    statistics: Callable[[_D], ArrayLike]
    noise: LaplaceNoise | GaussianNoise
    choose: Callable[[Vector, Vector], _P | None]
    mechanism: Callable[[_D, _P], _T]
    within: PrivacyLoss
    delta: float
    noise_delta: float = 0.0
    fixed: bool = False

    def __post_init__(self) -> None:
        """Check the parameters."""
        kinds = LaplaceNoise | GaussianNoise
        if not isinstance(self.noise, kinds) or getattr(self.noise, "basis", None) is not None:
            raise UnsoundConfiguration("noise must be Laplace or Gaussian noise without a basis")
        if not (self.noise.scales > 0).all():
            raise UnsoundConfiguration("noise must hide every statistic, and one has none")
        for name in ("statistics", "choose", "mechanism"):
            if not callable(getattr(self, name)):
                raise validate.WrongType(f"{name} must be a function")
        settle(
            self,
            delta=checked_delta(self.delta),
            noise_delta=validate.below_one(noise_delta=self.noise_delta),
            fixed=validate.flag(fixed=self.fixed),
        )
        checked_within(self.within, self.noise.sensitivity.adjacency, "forward")
        self.loss  # noqa: B018  # forms without a proof are refused here

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one release, refused or not."""
        return behind_release(
            self.noise.loss, self.noise_delta, self.within, self.delta, fixed=self.fixed
        )

    @cached_property
    def margins(self) -> Vector:
        """How far noisy statistics may lie from the true ones, but for ``delta``."""
        share = self.delta / self.noise.scales.size
        units = -math.log(share) if isinstance(self.noise, LaplaceNoise) else -ndtri(share / 2)
        margins: Vector = (units * self.noise.scales + self.noise.grid) * _QUANTILE_ERROR
        return margins

    def _bounds(self, noisy: Vector) -> tuple[Vector, Vector]:
        """Return vectors between which the statistics lie, infinite where they may be cut."""
        far = _MOST_SCALES * self.noise.scales
        low = np.where(noisy > -far, noisy - self.margins, -np.inf)
        return low, np.where(noisy < far, noisy + self.margins, np.inf)

    def release(self, data: _D, generator: RandomSource | None = None) -> Outcome[_T]:
        """Return what the mechanism releases, or a refusal.

        Args:
            data: dataset that statistics and mechanism are asked about.
            generator: source of the noise on the statistics, by default the secure generator.

        **Guarantee**: that of the class.
        """
        found = asked(lambda: real_numbers(self.statistics(data), "statistics"))
        shape = self.noise.scales.shape
        known = found is not None and found.shape == shape and bool(np.isfinite(found).all())
        noisy = self.noise.release(found if known else np.zeros(shape), generator)
        if not known:
            return Outcome(False, None, self.loss)
        parameters = asked(self.choose, *self._bounds(noisy))
        if parameters is None:
            return Outcome(False, None, self.loss)
        return made(lambda: self.mechanism(data, parameters), self.loss)
