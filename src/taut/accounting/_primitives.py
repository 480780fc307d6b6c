"""The releases that taut knows by name: what was released, and its dominating pair.

A primitive is a frozen description that serialises as its parameters; the pair it returns holds
the mathematics. A new mechanism is one short class here and one factory in ``_bank.py``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import ClassVar

import numpy as np

from taut._base import validate
from taut._base.arrays import Vector
from taut._base.floats import ROUNDING
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._exponential import exponential_mechanism_pair, laplace_pair
from taut.accounting._finite import (
    DiscreteGaussianPair,
    FailingPair,
    FinitePair,
    binary_pair,
    discrete_laplace_pair,
    finite_pair,
)
from taut.accounting._gaussian import GaussianPair, VariancePair
from taut.accounting._pair import Pair
from taut.accounting._profile import Knots, larger_pair, pair_of_knots
from taut.errors import UnsoundConfiguration

__all__ = [
    "Approximate",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "Finite",
    "Gaussian",
    "Laplace",
    "Primitive",
    "Profile",
    "Pure",
    "RandomizedResponse",
    "StabilityRelease",
    "Variance",
]


@dataclass(frozen=True)
class Primitive(ABC):
    """One release, described by its parameters."""

    kind: ClassVar[str]

    caveat: ClassVar[str] = ""
    """What the guarantee rests on beyond published proofs, if anything."""

    draws_batches: ClassVar[bool] = False
    """Whether the release draws a batch of fixed size from the records it is given."""

    @abstractmethod
    def pair(self, half: Half) -> Pair:
        """Return the pair that dominates this release in the direction ``half``."""

    def check(self, adjacency: Adjacency) -> None:
        """Raise ``UnsoundConfiguration`` if no pair is known under ``adjacency``."""
        return

    @property
    def contains_batches(self) -> bool:
        """Whether the release, or one inside of it, draws a batch of fixed size."""
        values = [getattr(self, field.name) for field in fields(self)]
        items = [item for v in values for item in (v if isinstance(v, tuple) else (v,))]
        inside = [item for item in items if isinstance(item, Primitive)]
        return self.draws_batches or any(release.contains_batches for release in inside)

    def known_divergences(self, half: Half, orders: Vector) -> Vector | None:
        """Return bounds on Renyi divergences that are better than those of the pair, if any."""
        return None

    def sampled(self, rate: float) -> Primitive | None:
        """Return this release on a Poisson sample, if it knows better than the general theorem."""
        return None

    def __str__(self) -> str:
        """Return the call that makes this release."""
        inside = ", ".join(f"{field.name}={getattr(self, field.name):g}" for field in fields(self))
        return f"{self.kind}({inside})"


@dataclass(frozen=True)
class Gaussian(Primitive):
    """Normal noise of standard deviation sigma on a query of given l2-sensitivity."""

    kind = "gaussian"
    sigma: float
    sensitivity: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.positive(sigma=self.sigma)
        validate.positive(sensitivity=self.sensitivity)
        ratio = self.sensitivity / self.sigma
        if not 1e-100 < ratio < 1e100:
            raise ValueError(
                f"sensitivity / sigma must lie between 1e-100 and 1e100, got {ratio:g} for "
                f"sigma={self.sigma!r}; noise so small hides nothing, and noise so large everything"
            )

    def pair(self, half: Half) -> Pair:
        """Symmetric."""
        return GaussianPair(self.sensitivity / self.sigma)


@dataclass(frozen=True)
class Laplace(Primitive):
    """Laplace noise of given scale on a query of given l1-sensitivity."""

    kind = "laplace"
    scale: float
    sensitivity: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.positive(scale=self.scale)
        validate.positive(sensitivity=self.sensitivity)

    def pair(self, half: Half) -> Pair:
        """Symmetric."""
        ratio = self.sensitivity / self.scale
        if Fraction(ratio) * Fraction(self.scale) < Fraction(self.sensitivity):
            ratio = math.nextafter(ratio, math.inf)
        return laplace_pair(ratio)


@dataclass(frozen=True)
class RandomizedResponse(Primitive):
    """A bit that is true with probability p."""

    kind = "randomized_response"
    p: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.probability(p=self.p)

    def pair(self, half: Half) -> Pair:
        """Symmetric; p below one half is the mirrored mechanism, p of 0 or 1 hides nothing."""
        p = max(self.p, 1 - self.p)
        if p == 1:
            return FinitePair((), (), 1.0, 1.0)
        loss = math.log1p((2 * p - 1) / (1 - p))  # 2 p - 1 is exact, and so is 1 - p
        return binary_pair(loss * (1 + ROUNDING))


@dataclass(frozen=True)
class Pure(Primitive):
    """Anything that satisfies epsilon-DP."""

    kind = "pure"
    epsilon: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.non_negative(epsilon=self.epsilon)

    def pair(self, half: Half) -> Pair:
        """Symmetric: randomized response is the worst case."""
        return binary_pair(self.epsilon)


@dataclass(frozen=True)
class Approximate(Primitive):
    """Anything that satisfies (epsilon, delta)-DP."""

    kind = "approximate"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.non_negative(epsilon=self.epsilon)
        validate.below_one(delta=self.delta)

    def pair(self, half: Half) -> Pair:
        """Symmetric: randomized response, or failure with probability delta."""
        return FailingPair(binary_pair(self.epsilon), self.delta)


@dataclass(frozen=True)
class DiscreteGaussian(Primitive):
    """Integer Gaussian noise on one integer query of integer sensitivity."""

    kind = "discrete_gaussian"
    sigma: float
    sensitivity: int

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.positive(sigma=self.sigma)
        validate.positive_integer(sensitivity=self.sensitivity)

    def pair(self, half: Half) -> Pair:
        """Symmetric."""
        return DiscreteGaussianPair(self.sigma, self.sensitivity)


@dataclass(frozen=True)
class DiscreteLaplace(Primitive):
    """Two-sided geometric noise on one integer query of integer sensitivity."""

    kind = "discrete_laplace"
    scale: float
    sensitivity: int

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.positive(scale=self.scale)
        validate.positive_integer(sensitivity=self.sensitivity)

    def pair(self, half: Half) -> Pair:
        """Symmetric."""
        return discrete_laplace_pair(self.scale, self.sensitivity)


@dataclass(frozen=True)
class Exponential(Primitive):
    """A mechanism whose log-likelihood ratios span at most epsilon, such as private selection."""

    kind = "exponential"
    epsilon: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.positive(epsilon=self.epsilon)

    def pair(self, half: Half) -> Pair:
        """Symmetric."""
        return exponential_mechanism_pair(self.epsilon)


@dataclass(frozen=True)
class Variance(Primitive):
    """Centred normal noise whose deviation is sigma_p without the record, sigma_q with it."""

    kind = "variance_pair"
    sigma_p: float
    sigma_q: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.positive(sigma_p=self.sigma_p)
        validate.positive(sigma_q=self.sigma_q)
        if not 1e-50 < self.sigma_p / self.sigma_q < 1e50:
            raise ValueError(
                "sigma_p / sigma_q must lie between 1e-50 and 1e50, got "
                f"sigma_p={self.sigma_p!r}, sigma_q={self.sigma_q!r}"
            )

    def pair(self, half: Half) -> Pair:
        """Asymmetric: the halves differ."""
        if self.sigma_p == self.sigma_q:
            return binary_pair(0.0)
        if half is Half.ADD:
            return VariancePair(self.sigma_p, self.sigma_q)
        return VariancePair(self.sigma_q, self.sigma_p)

    def check(self, adjacency: Adjacency) -> None:
        """Replace-one would need a pair that dominates both orders."""
        if adjacency is Adjacency.REPLACE:
            raise UnsoundConfiguration(
                "variance_pair is not symmetric, so it has no pair under adjacency='replace'; "
                "use adjacency='add_remove', or from_profile with the maximum of both profiles"
            )


@dataclass(frozen=True)
class Finite(Primitive):
    """Finitely many outcomes: p without the record, q with it."""

    kind = "finite"
    p: tuple[float, ...]
    q: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check the parameters."""
        _check_distribution(p=self.p)
        _check_distribution(q=self.q)
        if len(self.p) != len(self.q):
            raise ValueError(
                f"p and q must list the same outcomes, got {len(self.p)} and {len(self.q)} entries"
            )

    def pair(self, half: Half) -> Pair:
        """Asymmetric; under replace-one the maximum of both profiles."""
        p, q = _normalised(self.p), _normalised(self.q)
        if half is Half.ADD:
            return finite_pair(p, q)
        if half is Half.REMOVE:
            return finite_pair(q, p)
        return larger_pair(finite_pair(p, q), finite_pair(q, p))

    def __str__(self) -> str:
        """Return the number of outcomes only."""
        return f"finite({len(self.p)} outcomes)"


@dataclass(frozen=True)
class StabilityRelease(Primitive):
    """The exact answer, or nothing, by a noisy distance-to-instability test.

    Failure has mass delta / 2, half of what is usually quoted: only one tail of the Laplace noise
    crosses the threshold log(1/delta)/epsilon.
    """

    kind = "stability_release"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Check the parameters."""
        validate.positive(epsilon=self.epsilon)
        if not validate.below_one(delta=self.delta) > 0:
            raise ValueError(f"delta must be greater than 0, got delta={self.delta!r}")

    def pair(self, half: Half) -> Pair:
        """Symmetric: a shorter Laplace loss, or failure (docs/theory/stability.md)."""
        failure = self.delta / 2
        reach = self.epsilon + 2 * math.log1p(-failure)
        return FailingPair(laplace_pair(reach) if reach > 0 else binary_pair(0.0), failure)


@dataclass(frozen=True)
class Profile(Primitive):
    """Any mechanism with a known upper bound on its privacy profile.

    ``direction`` is the half that the bound is about, or None if it holds for both.
    """

    kind = "profile"
    log_thresholds: tuple[float, ...]
    deltas: tuple[float, ...]
    direction: str | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        if len(self.log_thresholds) != len(self.deltas) or not self.deltas:
            raise ValueError("a profile needs as many deltas as log thresholds, at least one")
        for value in self.log_thresholds:
            validate.finite(log_threshold=value)
        for value in self.deltas:
            validate.probability(delta=value)
        thresholds, deltas = np.exp(self.log_thresholds), np.array(self.deltas)
        if not (np.diff(thresholds) > 0).all():
            raise ValueError("log_thresholds must increase")
        if not (deltas >= (1 - thresholds) * (1 - 1e-12)).all():
            raise ValueError("deltas must be at least 1 - threshold, as every profile is")
        steps = np.diff(np.append(0.0, thresholds))
        slopes = np.append(np.diff(np.append(1.0, deltas)) / steps, 0.0)
        if not (np.diff(slopes) >= -1e-9 * np.abs(slopes).max()).all():
            raise ValueError("deltas must be convex in the threshold and must not rise")
        if self.direction not in (None, "add", "remove"):
            raise ValueError(f"direction must be 'add', 'remove' or None, got {self.direction!r}")

    def pair(self, half: Half) -> Pair:
        """The same pair in every direction, unless the bound is one-sided."""
        pair = pair_of_knots(Knots(np.array(self.log_thresholds), np.array(self.deltas)))
        return pair if self.direction in (None, half) else pair.swapped()

    def __str__(self) -> str:
        """Return the number of knots only."""
        return f"profile({len(self.deltas)} knots)"


def _normalised(masses: tuple[float, ...]) -> Vector:
    """Return masses that sum to one but for rounding; rounded ones are best left alone."""
    total = math.fsum(masses)
    return np.array(masses) if abs(total - 1) <= 1e-15 else np.array(masses) / total


def _check_distribution(**argument: tuple[float, ...]) -> None:
    ((name, masses),) = argument.items()
    for mass in masses:
        validate.probability(**{name: mass})
    total = math.fsum(masses)
    if not abs(total - 1) <= 1e-9:
        raise ValueError(f"{name} must sum to 1, got a sum of {total!r}; divide by the sum")
