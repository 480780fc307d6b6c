"""What a dominating pair is: the privacy loss of one release, in one direction.

A pair (P, Q) of output distributions enters the engines only through its privacy loss
L = log(p/q) under P. This module states what an engine may ask of it; the families that answer
live in the modules beside this one.

Domination means H_t(M(D) || M(D')) <= H_t(P || Q) for every threshold t >= 0 and all neighbours
in that direction (Zhu, Dong and Wang 2022, Definition 7); it survives adaptive composition.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taut._base.arrays import Vector
from taut._base.floats import RELATIVE_ERROR

__all__ = [
    "ATOMS_TAIL",
    "CUMULANT_ERROR",
    "Atoms",
    "Cells",
    "DerivedPair",
    "Pair",
    "Quadrature",
    "cumulant",
    "gauss_rule",
    "renyi_cumulants",
    "taken_from",
]


ATOMS_TAIL = 1e-300
"""Mass that may be missing where all atoms are asked for: as good as none."""

CUMULANT_ERROR = 1e-9
"""Bound on the relative error of a cumulant by quadrature, rounding included.

The rules converge exponentially: for Gaussians, sampled or not, with mu up to 50, they are within
1e-13 of the truth. Four digits are in reserve, and cost none of those that are printed.
"""
_SMALL_CUMULANT = 0.5  # from here on the logarithm of a moment loses one binary digit at most


class Atoms(NamedTuple):
    """Point masses of the loss.

    Attributes:
        losses: sorted loss values, shape (n,).
        masses: P-probability of each, shape (n,).
        q_masses: Q-probability of each, shape (n,); not derived from the others, which underflow.
    """

    losses: Vector
    masses: Vector
    q_masses: Vector


class Cells(NamedTuple):
    """The continuous part of the loss on cells (edge_i, edge_{i+1}].

    Attributes:
        mass: P-probability of each cell, shape (n,).
        q_mass: Q-probability of each cell, shape (n,).
        surplus: mass - exp(edge_i) q_mass, computed without losing digits where it matters,
            shape (n,). It says how a cell must be split between its edges.
        error: bound on the absolute rounding error of ``surplus``, shape (n,).
    """

    mass: Vector
    q_mass: Vector
    surplus: Vector
    error: Vector


class Quadrature(NamedTuple):
    """Nodes that integrate smooth functions of the loss: E_P f(L) ~ sum exp(log_weights) f(losses).

    Attributes:
        losses: loss at each node, shape (n,).
        log_weights: log of the P-weight of each node, shape (n,).
    """

    losses: Vector
    log_weights: Vector


class Pair(ABC):
    """The privacy loss L = log(p/q) under P of one release in one direction."""

    mass_inf: float = 0.0
    """P-probability of an infinite loss: outputs that betray the record outright."""

    mass_minus_inf: float = 0.0
    """Q-probability of outputs that P cannot produce; sampling turns it into a finite loss."""

    continuous: bool = True
    """Whether ``cells`` can hold mass (else the loss has atoms only)."""

    closed_form: bool = False
    """Whether ``log_mgf`` is a closed formula (else it is an accurate quadrature)."""

    profile_error: float = 1024 * RELATIVE_ERROR
    """Relative rounding error of ``profile``."""

    loss_error: float = 0.0
    """Absolute rounding error of a loss, beyond a relative one."""

    gaussian_mu: float = 0.0
    """The mu of a Gaussian pair, 0 for every other family; Gaussians merge exactly in a sum."""

    zcdp: float = math.inf
    """A rho with Renyi divergence at most rho * order, where that can beat the pair in a sum."""

    tight: bool = True
    """Whether, threshold by threshold, some release of the kind really has this profile."""

    @property
    def attained(self) -> Pair:
        """A pair that some release of the kind really has; differs where a maximum dominates."""
        return self

    @property
    def reached(self) -> Pair:
        """A pair that some release reaches for certain: ``attained``, to the end."""
        pair: Pair = self
        while pair.attained != pair:
            pair = pair.attained
        return pair

    @property
    def top_mass(self) -> float:
        """P-probability of the largest finite loss itself."""
        losses, masses, _ = self.atoms(ATOMS_TAIL)
        if losses.size and losses[-1] >= self.max_loss * (1 - 8 * RELATIVE_ERROR):
            return float(masses[-1])
        return 0.0

    @property
    @abstractmethod
    def max_loss(self) -> float:
        """Essential supremum of the finite loss, possibly infinite, and never rounded down."""

    @abstractmethod
    def profile(self, epsilon: Vector) -> Vector:
        """Return H_t(P || Q) at t = exp(epsilon), for any real epsilon; shape of ``epsilon``."""

    @abstractmethod
    def grid(self, tail: float, size: int) -> Vector:
        """Return increasing losses that resolve the pair.

        The P-mass above the last, the P-mass below the first and the Q-mass below the first are
        each at most ``tail``. The number of nodes is about ``size``.
        """

    @abstractmethod
    def quadrature(self, tilt: float, frequency: float = 0.0) -> Quadrature:
        """Return nodes for expectations of exp(z L) over finite losses.

        They serve Re z up to ``tilt`` and |Im z| up to ``frequency``.
        """

    def atoms(self, tail: float) -> Atoms:
        """Return the point masses of the finite loss, but for at most ``tail`` at either end."""
        return Atoms(np.empty(0), np.empty(0), np.empty(0))

    def cells(self, edges: Vector) -> Cells:
        """Return mass and surplus of the continuous part between consecutive ``edges``."""
        zeros = np.zeros(edges.size - 1)
        return Cells(zeros, zeros, zeros, zeros)

    def log_mgf(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return log E_P[exp(z L); L finite] for complex ``z``, shape of ``z``."""
        tilt, frequency = np.max(np.real(z), initial=0.0), np.max(np.abs(np.imag(z)), initial=0.0)
        rule = self.quadrature(float(tilt), float(frequency))
        return cumulant(rule.losses, rule.log_weights, z)


def taken_from(path: str) -> Any:
    """Return a property of a pair that is read from one of its parts, such as ``base.tight``."""
    return property(attrgetter(path))


@dataclass(frozen=True)
class DerivedPair(Pair):
    """What becomes of another pair, which is ``base``, and is as tight and continuous as that."""

    base: Pair

    continuous = taken_from("base.continuous")
    tight = taken_from("base.tight")

    @property
    def attained(self) -> Pair:
        """The same of what the base attains."""
        return replace(self, base=self.base.attained)


def cumulant(
    losses: Vector, log_weights: Vector, z: NDArray[np.complex128]
) -> NDArray[np.complex128]:
    """Return log sum exp(log_weights + z losses) for every complex ``z``, without overflow."""
    flat = np.atleast_1d(np.asarray(z, dtype=np.complex128)).ravel()
    out = np.full_like(flat, -math.inf)
    if losses.size == 0:
        return out.reshape(np.shape(z))
    # Blocks keep the (block, n) exponent matrix within a few megabytes.
    block = max(1, 262_144 // max(1, losses.size))
    for start in range(0, flat.size, block):
        part = flat[start : start + block]
        with np.errstate(invalid="ignore"):
            exponent = log_weights + part[:, None] * losses
        peak = exponent.real.max(axis=1)
        shift = np.where(np.isfinite(peak), peak, 0.0)
        with np.errstate(divide="ignore"):
            out[start : start + block] = shift + np.log(
                np.exp(exponent - shift[:, None]).sum(axis=1)
            )
    return out.reshape(np.shape(z))


def gauss_rule(size: int) -> tuple[Vector, Vector]:
    """Return ``size`` nodes and weights of Gauss-Legendre quadrature on the unit interval."""
    nodes, weights = np.polynomial.legendre.leggauss(size)
    return (nodes + 1) / 2, weights / 2


def renyi_cumulants(pair: Pair, tilts: Vector) -> Vector:
    """Return log E exp(c L) at ``tilts`` c > 0, small ones to full relative accuracy.

    E exp(-L) is known, so that E [exp(c L) - 1 + c (exp(-L) - 1)] can be summed instead of
    E exp(c L): its terms are non-negative and small where the loss is.
    """
    if pair.mass_inf > 0:
        return np.full(tilts.shape, math.inf)
    with np.errstate(over="ignore", under="ignore"):
        value = pair.log_mgf(tilts.astype(np.complex128)).real
        small = np.flatnonzero(value < _SMALL_CUMULANT)
        if pair.gaussian_mu or small.size == 0:
            return value
        losses, log_weights = pair.quadrature(float(tilts[small].max()))
        weights, back = np.exp(log_weights), np.exp(log_weights - losses)
        fall = np.where(losses > -1, weights * np.expm1(np.minimum(-losses, 1.0)), back - weights)
        for i in small.tolist():
            c = float(tilts[i])
            rise = np.where(
                c * losses < 1,
                weights * np.expm1(np.minimum(c * losses, 1.0)),
                np.exp(log_weights + c * losses) - weights,
            )
            value[i] = math.log1p(float((rise + c * fall).sum()) + c * pair.mass_minus_inf)
    return value
