"""The exact loss of a sample from the posterior of a ridge regression, when one record is added.

Two posteriors that differ by one record differ along its features only. There, in standard units,
they are N(0, 1) without the record and N(shift, 1 / (1 + growth)) with it, where growth is what the
record adds to the precision (docs/theory/posterior-sampling.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, ndtr

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR, UP
from taut.accounting import Adjacency, PrivacyLoss, from_profile

__all__ = ["PosteriorPair", "has_shift", "largest_shift"]

_LEAST = 1e-300  # stated where the true probability leaves the range of floats
_LARGEST_EPSILON = 1e4  # no sum of promises needs more
_LARGEST_GROWTH = 1e12  # a record that outweighs all others; no promise is kept far below it
_LARGEST_SHIFT = 1e6  # deviations; squares and their products with the growth stay floats
_LEAST_SHIFT = 1e-12  # below, noise is a trillion times what it hides
_KNOTS = 512  # of a profile; its chords err by about the square of their distance
_LEAST_DELTA = 1e-18  # down to which knots lie
_LARGEST_KNOT = 490.0  # the range of profiles ends at 500
_HALVINGS = 60  # of logarithms or epsilons: down to neighbouring floats
_FARTHEST = 1e200  # profiles fall, so that what holds there holds beyond; products stay floats
_FAR = 39.0  # deviations beyond which the normal density is below the smallest float


@dataclass(frozen=True)
class PosteriorPair:
    """N(0, 1) against N(shift, 1 / (1 + growth)): a posterior without and with one record.

    Args:
        shift: bound on how far the record moves the mean, along its features, in units of the
            deviation without it.
        growth: bound on how much of the precision along its features the record adds.

    **Guarantee**: what is said here covers both directions, and all records with a smaller shift
    *and* a smaller growth, at every epsilon of at least zero: adding a record is the worse
    direction, and its profile rises with both (docs/theory/posterior-sampling.md).

    Example:
        >>> from taut.estimators import PosteriorPair
        >>> round(PosteriorPair(shift=0.2 / 1.01, growth=0.01).epsilon(delta=1e-6), 6)
        0.921763
    """

    shift: float
    growth: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name, most in (("shift", _LARGEST_SHIFT), ("growth", _LARGEST_GROWTH)):
            value = validate.non_negative(**{name: getattr(self, name)})
            if not value <= most:
                raise ValueError(
                    f"{name} must be at most {most:g}, got {name}={value!r}; raise the ridge, or "
                    "lower the precision"
                )
            object.__setattr__(self, name, value)

    def profile(self, epsilon: Vector | float) -> Vector:
        """Return delta at every epsilon of at least zero, rounded up.

        The loss is a parabola in the standard normal variable, so that it exceeds epsilon outside
        of two roots.
        """
        at = np.asarray(epsilon, dtype=float)
        if not (at >= 0).all():
            raise ValueError("epsilon must be at least 0: below, the other direction is worse")
        at = np.minimum(at, _FARTHEST)
        if self.shift == 0 and self.growth == 0:
            return np.zeros(at.shape)
        grown = 1 + self.growth
        slope = self.shift * grown
        middle = (self.shift * slope - math.log1p(self.growth)) / 2 - at
        root = np.sqrt(np.maximum(slope**2 - 2 * self.growth * middle, 0.0))
        far = slope + root
        with np.errstate(all="ignore"):
            near = 2 * middle / far
            end = np.where(self.growth > 0, far / self.growth, np.inf)
            # Rounding moves the loss at the roots by this much, and both tails with it.
            size = self.shift * slope + at + 1
            found = self._side(-near, (self.shift - near) * math.sqrt(grown), size)
            found += self._side(end, (end - self.shift) * math.sqrt(grown), size)
        bound: Vector = np.minimum(found + _LEAST, 1.0)
        return bound

    def _side(self, ours: Vector, theirs: Vector, size: Vector) -> Vector:
        """Return P beyond a root, less exp(epsilon) times Q beyond it, rounded up.

        Args:
            ours: distance of the root from the mean without the record, in deviations.
            theirs: the same with the record.
            size: magnitude of the terms of the loss at the root.
        """
        density = np.exp(-0.5 * np.minimum(np.abs(ours), _FAR) ** 2) / math.sqrt(2 * math.pi)
        # At a root densities are in the ratio exp(epsilon): tails share a factor, and only
        # well-scaled ratios are subtracted.
        hidden = density * _mills(theirs) / math.sqrt(1 + self.growth)
        error = RELATIVE_ERROR * (256 + 64 * (size + np.minimum(ours**2, _FAR**2)))
        beyond = ndtr(-ours)
        value = np.where(np.abs(ours) > _FAR, beyond, beyond * (1 + error) - hidden * (1 - error))
        bound: Vector = np.maximum(value, 0.0)
        return bound

    def delta(self, epsilon: float) -> float:
        """Return the exact delta at an epsilon, rounded up.

        Args:
            epsilon: at least zero.
        """
        return float(self.profile(validate.non_negative(epsilon=epsilon)))

    def epsilon(self, delta: float) -> float:
        """Return the exact epsilon at a delta, rounded up; infinite above ten thousand.

        Args:
            delta: probability delta, above zero.
        """
        level = validate.below_one(delta=delta)
        if self.delta(0.0) <= level:
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > level:
            low, high = high, 2 * high
            if high > _LARGEST_EPSILON:
                return math.inf
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= level else (middle, high)
        return high

    def renyi(self, order: float) -> float:
        """Return the Renyi divergence of both directions, rounded up; infinite for large orders.

        Args:
            order: above 1; finite divergences need (order - 1) growth < 1.
        """
        a = validate.finite(order=order)
        if not a > 1:
            raise ValueError(f"order must be above 1, got order={order!r}")
        left = 1 - (a - 1) * self.growth * UP
        if left <= 0:
            return math.inf
        moved = a * self.shift**2 * (1 + self.growth) / (2 * left)
        grown = -math.log(left) / (a - 1) - math.log1p(self.growth)
        # Two logarithms that nearly cancel are off by the error of the larger one.
        slack = 4 * RELATIVE_ERROR * (moved + math.log1p(self.growth) - math.log(left) / (a - 1))
        return max(moved + grown / 2, 0.0) + slack

    def loss(
        self, *, adjacency: Adjacency | str, tight_at: float = 0.0, failure: float = 0.0
    ) -> PrivacyLoss:
        """Return the loss of one sample, for sums with other losses.

        Args:
            adjacency: relation; an exchange of two records removes one and adds the other, both
                within the bounds of the pair.
            tight_at: epsilon at which the loss is to be no larger than that of the pair, as far as
                profiles reach, which is to 490.
            failure: bound on the total variation between samples and the posterior.
        """
        relation = Adjacency(adjacency)
        steps = 2 if relation is Adjacency.REPLACE else 1
        last = _LARGEST_KNOT / steps
        goal = min(validate.non_negative(tight_at=tight_at) / steps, last)
        top = min(max(self.epsilon(_LEAST_DELTA), goal), last)
        knots = np.unique(np.append(np.linspace(0.0, top, _KNOTS), goal))
        with np.errstate(over="ignore"):
            deltas = self.profile(knots) * (1 + (steps - 1) * np.exp(knots)) * UP
            deltas += failure * (1 + np.exp(steps * knots)) * UP
        points = zip((steps * knots).tolist(), np.minimum(deltas, 1.0).tolist(), strict=True)
        return from_profile(dict(points), adjacency=relation)


def largest_shift(growth: float, *, epsilon: float, delta: float) -> float | None:
    """Return the largest shift that keeps a promise, None if no shift does.

    Args:
        growth: bound on what a record adds to the precision along its features, relatively.
        epsilon: promise for one sample.
        delta: probability delta of it.
    """
    goal, level = validate.positive(epsilon=epsilon), validate.below_one(delta=delta)

    if not has_shift(growth, epsilon=goal, delta=level):
        return None
    low, high = _LEAST_SHIFT, _LARGEST_SHIFT
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        fits = PosteriorPair(middle, growth).delta(goal) <= level
        low, high = (middle, high) if fits else (low, middle)
    return low


def has_shift(growth: float, *, epsilon: float, delta: float) -> bool:
    """Return whether a promise can be kept with any shift at all.

    Args:
        growth: bound on what a record adds to the precision along its features, relatively.
        epsilon: promise for one sample.
        delta: probability delta of it.
    """
    if not growth <= _LARGEST_GROWTH:
        return False
    return PosteriorPair(_LEAST_SHIFT, growth).delta(epsilon) <= delta


def _mills(x: Vector) -> Vector:
    """Return (1 - Phi(x)) / phi(x)."""
    ratio: Vector = math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2.0))
    return ratio
