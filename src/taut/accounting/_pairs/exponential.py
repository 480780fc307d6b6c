"""Pairs whose loss has a density proportional to exp(l/2) on an interval.

Two mechanisms share this shape. For Laplace noise half of the P-mass sits on the largest loss; the
exponential mechanism has no atoms (its bounded-range profile, see ``docs/theory/exponential.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR
from taut.accounting._pairs.finite import binary_pair
from taut.accounting._pairs.pair import Atoms, Cells, Pair, Quadrature

__all__ = [
    "ExponentialPair",
    "check_reach",
    "exponential_mechanism_pair",
    "laplace_pair",
    "permute_and_flip_pair",
]

# On a panel, at most 2 of loss and 64 radians long, exp(z l) is entire: 128 nodes of Gauss's rule
# are exact for degree 255, so its series is cut at (32 / 256)^256 or less.
_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(128)

_LEAST_REACH = 1e-100  # below, squares of losses vanish in doubles
_MOST_REACH = 1e6  # nodes for it take gigabytes, and a ratio of exp(10^6) hides nothing


@dataclass(frozen=True)
class ExponentialPair(Pair):
    """Loss on [-reach, reach] with P-density exp(log_density + l/2) and atoms at both ends.

    The atom at +reach has P-mass ``atom``, the one at -reach has ``atom * exp(-reach)``: the pair
    is symmetric.
    """

    reach: float
    log_density: float
    atom: float
    zcdp: float = math.inf
    binary: float = 0.0
    """The loss of a release with two outcomes that is reached where the pair as a whole is not."""
    closed_form = True

    @property
    def attained(self) -> Pair:
        """Profiles of selections are a maximum over releases; one of them has two outcomes."""
        return binary_pair(self.binary) if self.binary else self

    @property
    def max_loss(self) -> float:
        """The end of the interval."""
        return self.reach

    def profile(self, epsilon: Vector) -> Vector:
        """Return P[L > e] - exp(e) Q[L > e]."""
        low = np.clip(epsilon, -self.reach, self.reach)
        width = self.reach - low
        # Over (low, reach] the continuous surplus is 8 exp(low/2) sinh^2(width/4) times density.
        density = math.exp(self.log_density + self.reach / 2)
        inside = -2 * density * np.expm1(-width / 2) * -np.expm1(-width / 2)
        inside = inside + self.atom * -np.expm1(-width)
        with np.errstate(over="ignore"):
            return np.where(epsilon < -self.reach, -np.expm1(epsilon), inside)

    def grid(self, tail: float, size: int) -> Vector:
        """Return equispaced losses."""
        return np.linspace(-self.reach, self.reach, size)

    def atoms(self, tail: float) -> Atoms:
        """Return the two ends of the interval."""
        if not self.atom:
            return super().atoms(tail)
        masses = np.array([self.atom * math.exp(-self.reach), self.atom])
        return Atoms(np.array([-self.reach, self.reach]), masses, masses[::-1])

    def cells(self, edges: Vector) -> Cells:
        """Return masses and surplus in closed form, free of cancellation."""
        inner = np.clip(edges, -self.reach, self.reach)
        low, high, width = inner[:-1], inner[1:], np.diff(inner)
        # The upper end of a cell sets the scale: exp(high/2) is at most exp(reach/2), which
        # log_density compensates, while a wide cell would overflow seen from its lower end.
        with np.errstate(under="ignore"):
            share = -np.expm1(-width / 2)
            mass = 2 * np.exp(self.log_density + high / 2) * share
            q_mass = 2 * np.exp(self.log_density - low / 2) * share
            outside = np.minimum(edges[:-1] - low, 0.0)
            below = 2 * np.exp(self.log_density + low / 2) * share  # exp(low) q_mass
            surplus = mass * share - np.expm1(outside) * below
        return Cells(mass, q_mass, np.minimum(surplus, mass), RELATIVE_ERROR * surplus)

    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return the atoms and Gauss-Legendre nodes on panels of bounded length."""
        panels = max(1, math.ceil(self.reach * max(1.0, frequency / 32)))
        edges = np.linspace(-self.reach, self.reach, panels + 1)
        half = (edges[1] - edges[0]) / 2
        losses = ((edges[:-1] + half)[:, None] + half * _PANEL_NODES).ravel()
        log_weights = np.tile(np.log(_PANEL_WEIGHTS * half), panels) + self.log_density + losses / 2
        ends = self.atoms(0.0)
        with np.errstate(divide="ignore"):
            return Quadrature(
                np.concatenate([losses, ends.losses]),
                np.concatenate([log_weights, np.log(ends.masses)]),
            )

    def log_mgf(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the closed form, with sinh(s reach)/s evaluated at s = z + 1/2."""
        s = np.asarray(z, dtype=np.complex128) + 0.5
        s = np.where(s.real < 0, -s, s)  # every term is even in s
        decay = np.exp(-2 * s * self.reach)
        safe = np.where(s == 0, 1.0, s)
        # (exp(s r) - exp(-s r)) / s without its factor exp(s r); the limit at s = 0 is 2 r.
        slope = np.where(s == 0, 2 * self.reach, -np.expm1(-2 * safe * self.reach) / safe)
        ends = self.atom * math.exp(-self.reach / 2) * (1 + decay)
        return s * self.reach + np.log(math.exp(self.log_density) * slope + ends)


def check_reach(reach: float, said: str, *, least: float = _LEAST_REACH) -> None:
    """Refuse a largest loss that is no promise, or that doubles cannot tell from its neighbours.

    Args:
        reach: the largest loss.
        said: what it follows from, as the caller gave it.
        least: smallest loss that is taken; 0 for pairs of few outcomes, which square nothing.
    """
    if not least <= reach <= _MOST_REACH:
        raise ValueError(
            f"epsilon of one release must lie between {least:g} and {_MOST_REACH:g}, got "
            f"{reach:.3g} for {said}; noise so small hides nothing, and noise so large everything"
        )


def laplace_pair(reach: float) -> ExponentialPair:
    """Return the pair of Laplace noise whose l1-sensitivity / scale is ``reach``."""
    return ExponentialPair(reach, -math.log(4) - reach / 2, 0.5)


def exponential_mechanism_pair(epsilon: float) -> ExponentialPair:
    """Return the tight pair of an ``epsilon``-bounded-range mechanism.

    No single release attains the whole profile, so in a sum the zCDP bound epsilon^2 / 8 (Rogers
    and Steinke 2021) can be smaller than what the pair gives; the answer takes the minimum.
    """
    # log(1 / (4 sinh(epsilon / 2))), safe for large and small epsilon.
    log_density = -math.log(2) - epsilon / 2 - math.log(-math.expm1(-epsilon))
    return ExponentialPair(epsilon, log_density, 0.0, epsilon**2 / 8, binary=epsilon / 2)


def permute_and_flip_pair(epsilon: float) -> ExponentialPair:
    """Return the tight pair of permute-and-flip, that of Laplace noise.

    Every threshold has a choice between two candidates that reaches it, but none reaches all. The
    symmetric one, between utilities that a neighbour exchanges, errs with exp(-epsilon / 2) / 2.
    """
    truth = epsilon / 2 + math.log(2 - math.exp(-epsilon / 2))  # log(2 exp(epsilon / 2) - 1)
    return replace(laplace_pair(epsilon), binary=truth * (1 - RELATIVE_ERROR))
