"""The releases that taut knows by name: what was released, and its dominating pair.

A release is a frozen description that serialises as its parameters; the pair it returns holds
the mathematics. A new mechanism is one short class here, and one factory that returns its loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from taut._base import validate
from taut._base.validate import Positive, PositiveInteger
from taut.accounting._adjacency import Adjacency, Half
from taut.accounting._loss import PrivacyLoss
from taut.accounting._pairs.exponential import check_reach, laplace_pair
from taut.accounting._pairs.finite import DiscreteGaussianPair, binary_pair, discrete_laplace_pair
from taut.accounting._pairs.gaussian import GaussianPair, VariancePair
from taut.accounting._pairs.pair import Pair
from taut.accounting._releases.release import Release

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "Laplace",
    "Variance",
    "discrete_gaussian",
    "discrete_laplace",
    "gaussian",
    "laplace",
    "variance_pair",
]


_LEAST_RATIO = 1e-100  # whose square is a double
_MOST_RATIO = 1e70  # half its square is the largest loss: the variance of 10^15 of them is a double
_MOST_UNITS = 10**100  # of an integer query: beyond, no usual noise hides anything


@dataclass(frozen=True)
class Gaussian(Release):
    """Normal noise of standard deviation sigma on a query of given l2-sensitivity.

    Its pair is two normal distributions whose means differ by sensitivity / sigma, in any
    dimension: rotations leave the noise as it is.
    """

    kind = "gaussian"
    sigma: Positive
    sensitivity: Positive

    def check_fields(self) -> None:
        """Check the parameters."""
        ratio = self.sensitivity / self.sigma
        if not 1e-100 < ratio < 1e100:  # squares and cubes stay floats
            raise ValueError(
                f"sensitivity / sigma must lie between 1e-100 and 1e100, got {ratio:g} for "
                f"sigma={self.sigma!r}; noise so small hides nothing, and noise so large everything"
            )

    def pair(self, half: Half) -> Pair:
        """Symmetric."""
        return GaussianPair(self.sensitivity / self.sigma)


@dataclass(frozen=True)
class Laplace(Release):
    """Laplace noise of given scale on a query of given l1-sensitivity."""

    kind = "laplace"
    scale: Positive
    sensitivity: Positive

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        check_reach(self.sensitivity / self.scale, f"scale={self.scale!r}")

    def pair(self, half: Half) -> Pair:
        """Symmetric."""
        ratio = self.sensitivity / self.scale
        if Fraction(ratio) * Fraction(self.scale) < Fraction(self.sensitivity):
            ratio = math.nextafter(ratio, math.inf)
        return laplace_pair(ratio)


@dataclass(frozen=True)
class DiscreteGaussian(Release):
    """Integer Gaussian noise on one integer query of integer sensitivity.

    The mass of x is proportional to exp(-x^2 / (2 sigma^2)).
    """

    kind = "discrete_gaussian"
    sigma: Positive
    sensitivity: PositiveInteger

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        ratio = _ratio(self.sensitivity, self.sigma)
        if not _LEAST_RATIO <= ratio <= _MOST_RATIO:
            raise ValueError(
                f"sensitivity / sigma must lie between {_LEAST_RATIO:g} and {_MOST_RATIO:g}, got "
                f"{ratio:.3g} for sigma={self.sigma!r}; noise so small hides nothing, and noise "
                "so large everything"
            )

    def pair(self, half: Half) -> Pair:
        """Symmetric."""
        return DiscreteGaussianPair(self.sigma, self.sensitivity)


@dataclass(frozen=True)
class DiscreteLaplace(Release):
    """Two-sided geometric noise on one integer query of integer sensitivity.

    The mass of x is proportional to exp(-|x| / scale), and the loss takes one value for every unit
    of the sensitivity.
    """

    kind = "discrete_laplace"
    scale: Positive
    sensitivity: PositiveInteger

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        check_reach(_ratio(self.sensitivity, self.scale), f"scale={self.scale!r}")

    def pair(self, half: Half) -> Pair:
        """Symmetric."""
        return discrete_laplace_pair(self.scale, self.sensitivity)


@dataclass(frozen=True)
class Variance(Release):
    """Centred normal noise whose deviation is sigma_p without the record, sigma_q with it.

    The loss is a shifted and scaled chi-square: bounded on one side, unbounded on the other.
    """

    kind = "variance_pair"
    no_exchange = (
        "variance_pair is not symmetric, so it has no pair under adjacency='replace'; "
        "use adjacency='add_remove', or from_profile with the maximum of both profiles"
    )
    sigma_p: Positive
    sigma_q: Positive

    def check_fields(self) -> None:
        """Check the parameters."""
        if not 1e-50 < self.sigma_p / self.sigma_q < 1e50:  # fourth powers stay floats
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


def _ratio(units: int, noise: float) -> float:
    """Return a ratio of an integer of any size."""
    return math.inf if units > _MOST_UNITS else units / noise


def gaussian(
    sigma: float, sensitivity: float = 1.0, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of adding N(0, sigma^2) to every coordinate of a vector.

    Args:
        sigma: standard deviation of the noise.
        sensitivity: largest l2-distance between the vectors of two neighbours.
        adjacency: the relation for which ``sensitivity`` holds. Replacing a record in a sum
            clipped at C moves it by up to 2 C.

    **Guarantee**: exact, in any dimension (Balle and Wang 2018, Theorem 8).

    Example:
        >>> import taut
        >>> round(taut.gaussian(sigma=1.0).epsilon(delta=1e-5), 4)
        4.3772
    """
    noise, length = validate.positive(sigma=sigma), validate.positive(sensitivity=sensitivity)
    return PrivacyLoss([(Gaussian(noise, length), 1)], adjacency)


def laplace(
    scale: float, sensitivity: float = 1.0, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of adding Laplace noise of ``scale`` to a query.

    Args:
        scale: the b of the density exp(-|x| / b) / (2 b).
        sensitivity: largest l1-distance between the answers of two neighbours.
        adjacency: the relation for which ``sensitivity`` holds.

    **Guarantee**: exact for one coordinate. With independent noise on several coordinates the
    one-coordinate shift is the worst case of the same l1-length (docs/theory/laplace-noise.md).

    Example:
        >>> import taut
        >>> taut.laplace(scale=2.0).epsilon(delta=0)
        0.5
    """
    noise, length = validate.positive(scale=scale), validate.positive(sensitivity=sensitivity)
    return PrivacyLoss([(Laplace(noise, length), 1)], adjacency)


def discrete_gaussian(
    sigma: float, sensitivity: int = 1, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of integer Gaussian noise on one integer query.

    **Guarantee**: exact for a single coordinate. No dominating pair is known in several
    dimensions: account each coordinate as a release of its own.
    """
    noise, units = (
        validate.positive(sigma=sigma),
        validate.positive_integer(sensitivity=sensitivity),
    )
    return PrivacyLoss([(DiscreteGaussian(noise, units), 1)], adjacency)


def discrete_laplace(
    scale: float, sensitivity: int = 1, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of two-sided geometric noise on one integer query.

    The mass of x is proportional to exp(-|x| / scale).
    """
    noise, units = (
        validate.positive(scale=scale),
        validate.positive_integer(sensitivity=sensitivity),
    )
    return PrivacyLoss([(DiscreteLaplace(noise, units), 1)], adjacency)


def variance_pair(
    sigma_p: float, sigma_q: float, *, adjacency: Adjacency | str = "add_remove"
) -> PrivacyLoss:
    """Return the loss of noise whose own deviation depends on the record.

    Args:
        sigma_p: standard deviation without the record.
        sigma_q: standard deviation with it.
        adjacency: add/remove, one of its halves, or zero-out.
    """
    release = Variance(validate.positive(sigma_p=sigma_p), validate.positive(sigma_q=sigma_q))
    return PrivacyLoss([(release, 1)], adjacency)
